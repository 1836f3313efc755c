//! A driver without a device: compiles kernels, counts memory and launches, and runs nothing.

use crate::driver::{
    Argument, Attend, Attention, Convolution, DeviceInfo, DevicePtr, Driver, Fourier, Grid, Products, Step,
    Transform,
};
use kiln_ir::{DType, Error, Result};
use kiln_kernel::print::Dialect;
use std::sync::atomic::{AtomicU64, Ordering};

/// The compiler of kernel sources.
type Compile = dyn Fn(&str) -> Result<Vec<u8>> + Send + Sync;

/// A driver that runs nothing. It compiles the kernels that an engine would launch, without a device.
///
/// Memory is only counted, and reads return 0. A given function compiles the kernels, for example for a device of
/// another machine.
pub struct DryDriver {
    info: DeviceInfo,
    compile: Box<Compile>,
    launches: AtomicU64,
    has_libraries: bool,
    /// Callback for the next read; it sets the bytes.
    #[cfg(test)]
    pub(crate) answer: std::sync::Mutex<Option<Answer>>,
}

#[cfg(test)]
pub(crate) type Answer = Box<dyn FnOnce(&mut [u8]) + Send>;

/// Memory without contents: its size in bytes.
pub struct DryMemory(usize);

/// A function that never runs.
pub struct DryFunction(());

impl DeviceInfo {
    /// The properties of an NVIDIA GPU for dry runs: the 132 multiprocessors of an H200, and unlimited memory.
    pub fn absent(target: impl Into<String>) -> DeviceInfo {
        DeviceInfo {
            name: "cuda:dry".to_owned(),
            model: "a GPU that is not there".to_owned(),
            target: target.into(),
            dialect: Dialect::Cuda,
            memory: 1 << 40,
            multiprocessors: 132,
            multiprocessor_threads: 2048,
            block_threads: 1024,
            warp_threads: 32,
            shared_bytes: 48 << 10,
        }
    }
}

impl DryDriver {
    /// Creates a driver for a device of that kind, with a compiler for its kernels.
    pub fn new(
        info: DeviceInfo,
        compile: impl Fn(&str) -> Result<Vec<u8>> + Send + Sync + 'static,
    ) -> DryDriver {
        DryDriver {
            info,
            compile: Box::new(compile),
            launches: AtomicU64::new(0),
            has_libraries: false,
            #[cfg(test)]
            answer: std::sync::Mutex::default(),
        }
    }

    /// Reports libraries for matmuls and convolutions, and graph replay. An engine then issues the same steps as on a
    /// real device.
    #[must_use]
    pub fn with_libraries(self) -> DryDriver {
        DryDriver { has_libraries: true, ..self }
    }

    /// The number of kernel launches so far.
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

    fn allocate(&self, bytes: usize) -> Result<DryMemory> {
        Ok(DryMemory(bytes))
    }

    fn size(&self, memory: &DryMemory) -> usize {
        memory.0
    }

    fn write(&self, _: &DevicePtr<DryMemory>, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read(&self, _: &DevicePtr<DryMemory>, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(0);
        #[cfg(test)]
        {
            let answer = self.answer.lock().unwrap().take();
            answer.into_iter().for_each(|answer| answer(bytes));
        }
        Ok(())
    }

    fn fill(&self, _: &DevicePtr<DryMemory>, _: usize, _: u8) -> Result<()> {
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

    fn has_float8(&self) -> bool {
        self.has_libraries
    }

    /// Without a library, matmuls are kernels too.
    fn multiplies(&self, products: &Products<DryMemory>) -> bool {
        let is_float = products.dtype.is_float() && products.dtype == products.result;
        self.has_libraries && (is_float || products.float8.is_some())
    }

    unsafe fn multiply(&self, _: &Products<DryMemory>) -> Result<()> {
        Ok(())
    }

    unsafe fn record(&self, _: &[Step<DryDriver>]) -> Option<()> {
        self.has_libraries.then_some(())
    }

    unsafe fn amend(&self, (): &mut (), _: usize, _: &Step<DryDriver>) -> bool {
        self.has_libraries
    }

    unsafe fn replay(&self, (): &mut ()) -> Result<()> {
        Ok(())
    }

    fn convolutions(&self) -> Result<()> {
        if self.has_libraries {
            return Ok(());
        }
        Err(Error::unsupported(&self.info.name, "has no library for convolutions"))
    }

    fn workspace(&self, _: &Convolution) -> Result<Option<usize>> {
        Ok(self.has_libraries.then_some(0))
    }

    fn attention_workspace(&self, attention: &Attention) -> Result<Option<usize>> {
        let has = self.has_libraries && matches!(attention.dtype, DType::F16 | DType::BF16);
        Ok(has.then_some(0))
    }

    unsafe fn attend(&self, _: &Attend<DryMemory>) -> Result<()> {
        Ok(())
    }

    fn fourier_workspace(&self, _: &Fourier) -> Result<Option<usize>> {
        Ok(self.has_libraries.then_some(0))
    }

    unsafe fn transform(&self, _: &Transform<DryMemory>) -> Result<()> {
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}
