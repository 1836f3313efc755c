//! A driver without a device.

use crate::driver::{Argument, DeviceInfo, Driver, Grid, Place, Products, Step};
use kiln_ir::Result;
use std::sync::atomic::{AtomicU64, Ordering};

/// What compiles sources.
type Compile = dyn Fn(&str) -> Result<Vec<u8>> + Send + Sync;

/// A driver that runs nothing: what an engine would ask of a device, its kernels above all, is seen without one.
///
/// Memory is only counted, and all that is read back is 0. Kernels are compiled by a function that is given, which may be a
/// compiler for devices that are elsewhere.
pub struct DryDriver {
    info: DeviceInfo,
    compile: Box<Compile>,
    launches: AtomicU64,
}

/// Memory that is only counted.
pub struct DryMemory(());

/// A function that is never run.
pub struct DryFunction(());

impl DryDriver {
    /// A driver for a device of that kind, with what compiles its kernels.
    pub fn new(
        info: DeviceInfo,
        compile: impl Fn(&str) -> Result<Vec<u8>> + Send + Sync + 'static,
    ) -> DryDriver {
        DryDriver { info, compile: Box::new(compile), launches: AtomicU64::new(0) }
    }

    /// How many kernels would have run.
    pub fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }
}

impl Driver for DryDriver {
    type Memory = DryMemory;
    type Function = DryFunction;
    type Graph = ();

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, _: usize) -> Result<DryMemory> {
        Ok(DryMemory(()))
    }

    fn write(&self, _: &Place<DryMemory>, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read(&self, _: &Place<DryMemory>, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(0);
        Ok(())
    }

    fn fill(&self, _: &Place<DryMemory>, _: usize, _: u8) -> Result<()> {
        Ok(())
    }

    fn compile(&self, source: &str) -> Result<Vec<u8>> {
        (self.compile)(source)
    }

    fn load(&self, _: &[u8], _: &str) -> Result<DryFunction> {
        Ok(DryFunction(()))
    }

    unsafe fn launch(&self, _: &DryFunction, _: Grid, _: &[Argument<DryMemory>]) -> Result<()> {
        self.launches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// There is no library: products are kernels too.
    fn multiplies(&self, _: &Products<DryMemory>) -> bool {
        false
    }

    unsafe fn multiply(&self, _: &Products<DryMemory>) -> Result<()> {
        Ok(())
    }

    unsafe fn record(&self, _: &[Step<DryDriver>]) -> Option<()> {
        None
    }

    unsafe fn amend(&self, (): &mut (), _: usize, _: &Step<DryDriver>) -> bool {
        false
    }

    unsafe fn replay(&self, (): &mut ()) -> Result<()> {
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}
