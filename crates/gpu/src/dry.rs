//! A driver without a device: compiles kernels, counts memory and launches, and runs nothing.

use crate::driver::{
    Argument, Attend, Attention, Convolution, DeviceInfo, DevicePtr, Driver, Fourier, Graph, Grid, Library,
    Products, Recorder, Step, Transform,
};
use kiln_ir::{BoxFuture, DType, Error, Result};
use kiln_kernel::print::{Dialect, Entry, Target};
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
    reads: AtomicU64,
    has_libraries: bool,
    /// Callback for the next read; it sets the bytes of each range.
    #[cfg(test)]
    pub(crate) answer: std::sync::Mutex<Option<Answer>>,
}

#[cfg(test)]
pub(crate) type Answer = Box<dyn FnOnce(&mut [Vec<u8>]) + Send>;

/// Memory without contents: its size in bytes.
pub struct DryMemory(usize);

/// A function that never runs.
pub struct DryFunction(());

impl DeviceInfo {
    /// The properties of an NVIDIA GPU for dry runs: the 132 multiprocessors of an H200, and 1 TiB of memory.
    pub fn absent(target: impl Into<String>) -> DeviceInfo {
        DeviceInfo {
            name: "cuda:dry".to_owned(),
            model: "a GPU that is not there".to_owned(),
            target: target.into(),
            language: Target::new(Dialect::Cuda),
            keeps_binaries: true,
            memory: 1usize.checked_shl(40).unwrap_or(usize::MAX),
            multiprocessors: 132,
            multiprocessor_threads: 2048,
            block_threads: 1024,
            warp_threads: 32,
            shared_bytes: 48 << 10,
            bindings: None,
            binding_bytes: None,
            cooperative_matrices: Vec::new(),
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
            reads: AtomicU64::new(0),
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

    /// The number of submitted reads so far, each of any number of ranges.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl Driver for DryDriver {
    type Memory = DryMemory;
    type Function = DryFunction;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, bytes: usize) -> Result<DryMemory> {
        if bytes > self.info.memory {
            return Err(Error::device(&self.info.name, format!("out of memory: {bytes} bytes")));
        }
        Ok(DryMemory(bytes))
    }

    fn size(&self, memory: &DryMemory) -> usize {
        memory.0
    }

    fn write(&self, _: &DevicePtr<DryMemory>, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read_all(&self, ranges: &[(DevicePtr<DryMemory>, usize)]) -> BoxFuture<'static, Result<Vec<Vec<u8>>>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        #[cfg_attr(not(test), expect(unused_mut, reason = "tests answer"))]
        let mut read: Vec<Vec<u8>> = ranges.iter().map(|(_, bytes)| vec![0; *bytes]).collect();
        #[cfg(test)]
        {
            let answer = self.answer.lock().unwrap().take();
            answer.into_iter().for_each(|answer| answer(&mut read));
        }
        Box::pin(async move { Ok(read) })
    }

    fn fill(&self, _: &DevicePtr<DryMemory>, _: usize, _: u8) -> Result<()> {
        Ok(())
    }

    fn compile(&self, source: &str) -> Result<Vec<u8>> {
        (self.compile)(source)
    }

    fn load(&self, _: &[u8], entries: &[&Entry]) -> Result<Vec<Option<DryFunction>>> {
        Ok(entries.iter().map(|_| Some(DryFunction(()))).collect())
    }

    unsafe fn launch(&self, _: &DryFunction, _: Grid, _: &[Argument<DryMemory>]) -> Result<()> {
        self.launches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn synchronize(&self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn library(&self) -> Option<&dyn Library<DryMemory>> {
        self.has_libraries.then_some(self as _)
    }

    fn deterministic(&self) -> bool {
        kiln_ir::deterministic()
    }

    fn recorder(&self) -> Option<&dyn Recorder<DryDriver>> {
        self.has_libraries.then_some(self as _)
    }
}

/// Libraries that compute nothing.
impl Library<DryMemory> for DryDriver {
    fn has_float8(&self) -> bool {
        true
    }

    fn multiplies(&self, products: &Products<DryMemory>) -> bool {
        let is_float = products.dtype.is_float() && products.dtype == products.result;
        is_float || products.float8.is_some()
    }

    unsafe fn multiply(&self, _: &Products<DryMemory>) -> Result<()> {
        Ok(())
    }

    fn convolutions(&self) -> Result<()> {
        Ok(())
    }

    fn workspace(&self, _: &Convolution) -> Result<Option<usize>> {
        Ok(Some(0))
    }

    fn attention_workspace(&self, attention: &Attention) -> Result<Option<usize>> {
        Ok(matches!(attention.dtype, DType::F16 | DType::BF16).then_some(0))
    }

    unsafe fn attend(&self, _: &Attend<DryMemory>) -> Result<()> {
        Ok(())
    }

    fn fourier_workspace(&self, _: &Fourier) -> Result<Option<usize>> {
        Ok(Some(0))
    }

    unsafe fn transform(&self, _: &Transform<DryMemory>) -> Result<()> {
        Ok(())
    }
}

/// Graphs whose replay does nothing, without a clock.
impl Recorder<DryDriver> for DryDriver {
    unsafe fn record(&self, _: &[Step<DryDriver>]) -> Option<Box<dyn Graph<DryDriver>>> {
        Some(Box::new(DryGraph))
    }

    fn start_laps(&self) -> Result<()> {
        Ok(())
    }

    fn lap(&self) -> Result<()> {
        Ok(())
    }

    fn laps(&self) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }
}

/// A graph that never runs.
struct DryGraph;

impl Graph<DryDriver> for DryGraph {
    unsafe fn amend(&mut self, _: &DryDriver, _: usize, _: &Step<DryDriver>) -> bool {
        true
    }

    unsafe fn replay(&mut self, _: &DryDriver) -> Result<()> {
        Ok(())
    }
}
