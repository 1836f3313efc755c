//! The driver of one device: its context, stream and memory.

use crate::blas::{Blas, Target, reduced_sums, tf32};
use crate::dnn::{Addresses, Dnn};
use crate::failure::Failure;
use crate::fft::Fft;
use crate::graph::CudaGraph;
use crate::readback::{self, Readback, Readbacks};
use crate::staging::Staging;
use crate::stopwatch::Laps;
use crate::{Installed, compile, library};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use kiln_gpu::DeviceInfo;
use kiln_gpu::driver::{
    Argument, Attend, Attention, Convolution, Convolve, DevicePtr, Driver, Fourier, Graph, Grid, Library,
    Products, Recorder, Step, Transform,
};
use kiln_ir::{BoxFuture, Error, Result};
use kiln_kernel::print::{Dialect, Entry};
use smallvec::SmallVec;
use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The CUDA driver of one device.
pub struct CudaDriver {
    info: DeviceInfo,
    /// Opened by the first convolution or attention, and closed before the context is released.
    dnn: OnceLock<Result<Dnn>>,
    /// Opened by the first Fourier transform, and closed before the context is released.
    fft: OnceLock<Result<Fft>>,
    pub(crate) context: Arc<Context>,
    pub(crate) stream: sys::CUstream,
    /// A stream for graph capture; nothing runs on it.
    pub(crate) capture: Mutex<Stream>,
    /// A second capture stream, for testing whether libraries accept a call while the first may be in use.
    pub(crate) trials: Mutex<Stream>,
    architecture: String,
    /// Whether its tensor cores support 8-bit floats.
    float8: bool,
    pub(crate) deterministic: bool,
    /// Whether kernels of a graph may overlap (programmatic dependent launch).
    pub(crate) overlaps: bool,
    pub(crate) blas: Blas,
    staging: Mutex<Staging>,
    readbacks: Readbacks,
    laps: Mutex<Laps>,
    /// Memory for the fill that keeps the device busy before a stopwatch lap.
    filler: OnceLock<Result<CudaMemory>>,
}

/// A CUDA stream.
pub(crate) struct Stream(pub(crate) sys::CUstream);

// SAFETY: CUDA's contexts and streams may be used from any thread; each call first makes the context current.
unsafe impl Send for CudaDriver {}
// SAFETY: as above; calls from several threads at once are queued by CUDA.
unsafe impl Sync for CudaDriver {}

/// The primary context of a device, which all its users share.
pub(crate) struct Context {
    device: sys::CUdevice,
    pub(crate) handle: sys::CUcontext,
}

// SAFETY: as for `CudaDriver`.
unsafe impl Send for Context {}
// SAFETY: as for `CudaDriver`.
unsafe impl Sync for Context {}

/// A block of device memory.
pub struct CudaMemory {
    address: sys::CUdeviceptr,
    len: usize,
    context: Arc<Context>,
}

/// A loaded entry point.
pub struct CudaFunction {
    pub(crate) handle: sys::CUfunction,
    /// Keeps the module loaded, to which the handle belongs.
    _module: Arc<Module>,
}

/// A loaded binary.
struct Module {
    handle: sys::CUmodule,
    context: Arc<Context>,
}

// SAFETY: CUDA's modules may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

// SAFETY: CUDA's functions may be launched from any thread.
unsafe impl Send for CudaFunction {}
// SAFETY: as above.
unsafe impl Sync for CudaFunction {}

impl Context {
    /// Makes the context current on the calling thread.
    pub(crate) fn enter(&self) -> core::result::Result<(), DriverError> {
        thread_local! {
            static CURRENT: Cell<usize> = const { Cell::new(0) };
        }
        let address = self.handle.addr();
        if CURRENT.get() != address {
            // SAFETY: the context is retained for as long as `self`.
            unsafe { result::ctx::set_current(self.handle)? };
            CURRENT.set(address);
        }
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once; no object of it is left.
        let released = unsafe { result::primary_ctx::release(self.device) };
        debug_assert!(released.is_ok(), "[cuda] {released:?}");
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        // SAFETY: the address came from `malloc_sync` and is freed once; the call waits for work that uses it.
        let freed = self.context.enter().and_then(|()| unsafe { result::free_sync(self.address) });
        // A lost device has no memory left to free.
        let _ = freed;
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the module's functions hold it, so none is left, and it is unloaded once.
        let unloaded = self.context.enter().and_then(|()| unsafe { result::module::unload(self.handle) });
        // A lost device has already unloaded it.
        let _ = unloaded;
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        // The slots are freed in their context.
        let entered = self.context.enter();
        let _ = (entered, std::mem::take(&mut self.staging));
        self.readbacks.clear();
        let [capture, trials] = [&mut self.capture, &mut self.trials]
            .map(|stream| stream.get_mut().map_or_else(|poisoned| poisoned.into_inner().0, |it| it.0));
        for stream in [self.stream, capture, trials] {
            // SAFETY: the stream was created by `open`, and nothing uses it any more.
            let destroyed = self.context.enter().and_then(|()| unsafe { result::stream::destroy(stream) });
            let _ = destroyed;
        }
    }
}

/// The first compute capability whose tensor cores support 8-bit floats.
const FLOAT8: (i32, i32) = (8, 9);

/// The first compute capability and driver version with overlapping kernels (programmatic dependent launch).
const OVERLAPS: (i32, i32) = (9, 12030);

/// The number of devices.
pub(crate) fn count() -> Result<usize> {
    library::load(library::DRIVER, "cuda")?;
    let failed = |error: DriverError| error.on("cuda", "starting CUDA");
    result::init().map_err(failed)?;
    Ok(result::device::get_count().map_err(failed)?.max(0) as usize)
}

/// Every device, at least one.
pub(crate) fn list() -> Result<Vec<Installed>> {
    let devices = count()?;
    if devices == 0 {
        let problem = "CUDA reports no GPU";
        return Err(Error::device("cuda", problem).hint("CUDA_VISIBLE_DEVICES may hide some"));
    }
    let describe = |index: usize| {
        let device = result::device::get(index as i32)?;
        // SAFETY: the device exists.
        let memory_bytes = unsafe { result::device::total_mem(device)? } as u64;
        Ok(Installed { model: result::device::get_name(device)?, memory_bytes })
    };
    (0..devices)
        .map(describe)
        .collect::<core::result::Result<_, DriverError>>()
        .map_err(|error| error.on("cuda", "listing devices"))
}

impl CudaDriver {
    /// Opens a device.
    ///
    /// # Errors
    /// When a library or the device is missing.
    pub fn open(index: usize) -> Result<CudaDriver> {
        let name = format!("cuda:{index}");
        let devices = count()?;
        if index >= devices {
            let problem = format!("no such device: CUDA reports {devices}");
            return Err(Error::device(&name, problem).hint("CUDA_VISIBLE_DEVICES may hide some"));
        }
        library::load(library::COMPILER, &name)?;
        library::load(library::BLAS, &name)?;
        Self::start(index, &name).map_err(|error| error.on(&name, "opening the device"))?
    }

    fn start(index: usize, name: &str) -> core::result::Result<Result<CudaDriver>, DriverError> {
        let device = result::device::get(index as i32)?;
        use sys::CUdevice_attribute_enum as Attribute;
        // SAFETY: the device exists.
        let attribute = |which: Attribute| unsafe { result::device::get_attribute(device, which) };
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let number = |which: Attribute| attribute(which).map(|number| number.max(1) as usize);
        // SAFETY: as above; it is released when the context is dropped.
        let handle = unsafe { result::primary_ctx::retain(device)? };
        let context = Arc::new(Context { device, handle });
        context.enter()?;
        let stream = || result::stream::create(result::stream::StreamKind::NonBlocking);
        let (stream, capture, trials) =
            (stream()?, Mutex::new(Stream(stream()?)), Mutex::new(Stream(stream()?)));
        let mut version = 0;
        // SAFETY: the version is written before the call returns.
        unsafe { sys::cuDriverGetVersion(&mut version).result()? };
        // Architecture-specific instructions need the suffix `a`.
        let architecture = format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" });
        let (compiler_major, compiler_minor) = compile::version();
        let info = DeviceInfo {
            name: name.to_owned(),
            model: result::device::get_name(device)?,
            target: format!(
                "cuda {architecture} driver {version} nvrtc {compiler_major}.{compiler_minor} fmad off"
            ),
            language: kiln_kernel::print::Target::new(Dialect::Cuda),
            keeps_binaries: true,
            // SAFETY: the device exists.
            memory: unsafe { result::device::total_mem(device)? },
            multiprocessors: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            multiprocessor_threads: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            block_threads: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            warp_threads: number(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
            shared_bytes: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
            bindings: None,
            binding_bytes: None,
            cooperative_matrices: Vec::new(),
        };
        Ok(Blas::new(name).map(|blas| CudaDriver {
            info,
            dnn: OnceLock::new(),
            fft: OnceLock::new(),
            context,
            stream,
            capture,
            trials,
            architecture,
            float8: (major, minor) >= FLOAT8,
            deterministic: kiln_ir::deterministic(),
            overlaps: kiln_ir::switch("KILN_OVERLAP", true) && major >= OVERLAPS.0 && version >= OVERLAPS.1,
            blas,
            staging: Mutex::default(),
            readbacks: Readbacks::default(),
            laps: Mutex::default(),
            filler: OnceLock::new(),
        }))
    }

    /// Converts the outcome of a driver call; `what` names the operation in errors.
    fn done<T>(&self, what: &str, outcome: core::result::Result<T, DriverError>) -> Result<T> {
        outcome.map_err(|error| error.on(&self.info.name, what))
    }

    fn module(&self, binary: &[u8]) -> Result<Arc<Module>> {
        self.enter()?;
        // SAFETY: the binary is complete: the compiler made it, or the disk cache returned it with its source.
        let module = unsafe { result::module::load_data(binary.as_ptr().cast::<c_void>()) };
        let handle = self.done("loading a kernel", module)?;
        Ok(Arc::new(Module { handle, context: self.context.clone() }))
    }

    fn function(&self, module: &Arc<Module>, entry: &str) -> Result<CudaFunction> {
        let name = CString::new(entry)
            .map_err(|_| Error::device(&self.info.name, "an entry point's name contains a zero byte"))?;
        // SAFETY: the module is loaded.
        let found = unsafe { result::module::get_function(module.handle, name) };
        let handle = self.done("finding a kernel's entry point", found)?;
        Ok(CudaFunction { handle, _module: module.clone() })
    }

    /// Copies bytes from the device and waits for them: all work of the device is in one stream.
    pub(crate) fn read_now(&self, from: &DevicePtr<CudaMemory>, bytes: usize) -> Result<Vec<u8>> {
        self.enter()?;
        let mut copied = vec![0; bytes];
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: callers read within the block.
        let read = unsafe { staging.read(address(from), &mut copied, self.stream) };
        self.done("copying from the device", read)?;
        Ok(copied)
    }

    /// Queues copies of ranges to the host, with an event after them. `None` where they must be copied at once: they are
    /// too long, or the system has no more pinned memory.
    fn start_read(&self, ranges: &[(DevicePtr<CudaMemory>, usize)]) -> Result<Option<Readback>> {
        let all = ranges.iter().try_fold(0usize, |all, (_, bytes)| all.checked_add(*bytes));
        if all.is_none_or(|all| all > readback::MOST) {
            return Ok(None);
        }
        self.enter()?;
        let ranges: SmallVec<[(sys::CUdeviceptr, usize); 8]> =
            ranges.iter().map(|(from, bytes)| (address(from), *bytes)).collect();
        // SAFETY: callers read within the blocks.
        match unsafe { self.readbacks.start(&ranges, &self.context, self.stream) } {
            Ok(started) => Ok(Some(started)),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Ok(None),
            Err(error) => Err(error.on(&self.info.name, "copying from the device")),
        }
    }

    fn synchronize_now(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream lives as long as `self`.
        self.done("waiting for the device", unsafe { result::stream::synchronize(self.stream) })
    }

    /// Queues a convolution into a stream.
    ///
    /// # Safety
    /// As [`Library::convolve`].
    pub(crate) unsafe fn convolve_on(&self, convolve: &Convolve<CudaMemory>, to: Target) -> Result<()> {
        let [x, w, y] = &convolve.tensors;
        let memory = Addresses { tensors: &[x, w, y].map(address), workspace: address(&convolve.workspace) };
        // SAFETY: as the caller says.
        unsafe { self.dnn()?.convolve(&convolve.convolution, &memory, to, &self.info.name) }
    }

    /// Queues an attention into a stream.
    ///
    /// # Safety
    /// As [`Library::attend`].
    pub(crate) unsafe fn attend_on(&self, attend: &Attend<CudaMemory>, to: Target) -> Result<()> {
        let tensors: Vec<sys::CUdeviceptr> = attend.tensors.iter().map(address).collect();
        let memory = Addresses { tensors: &tensors, workspace: address(&attend.workspace) };
        // SAFETY: as the caller says.
        unsafe { self.dnn()?.attend(&attend.attention, &memory, to, &self.info.name) }
    }

    /// Queues Fourier transforms into a stream.
    ///
    /// # Safety
    /// As [`Library::transform`].
    pub(crate) unsafe fn transform_on(&self, transform: &Transform<CudaMemory>, to: Target) -> Result<()> {
        let [x, y] = &transform.tensors;
        let (tensors, workspace) = ([address(x), address(y)], address(&transform.workspace));
        // SAFETY: as the caller says.
        unsafe { self.fft()?.transform(&transform.fourier, tensors, workspace, to, &self.info.name) }
    }

    /// The cuFFT handle, in the device's context.
    fn fft(&self) -> Result<&Fft> {
        self.enter()?;
        self.fft.get_or_init(|| Fft::open(&self.info.name)).as_ref().map_err(Clone::clone)
    }

    /// The cuDNN handle, in the device's context.
    fn dnn(&self) -> Result<&Dnn> {
        self.enter()?;
        self.dnn.get_or_init(|| Dnn::open(&self.info.name, self.deterministic)).as_ref().map_err(Clone::clone)
    }

    fn enter(&self) -> Result<()> {
        self.done("entering the device's context", self.context.enter())
    }
}

pub(crate) fn address(place: &DevicePtr<CudaMemory>) -> sys::CUdeviceptr {
    place.memory.address + place.offset as u64
}

/// The kernel arguments as an array of pointers, as CUDA takes them.
pub(crate) fn with_arguments<R>(
    arguments: &[Argument<CudaMemory>],
    body: impl FnOnce(&mut [*mut c_void]) -> R,
) -> R {
    let word = |argument: &Argument<CudaMemory>| match argument {
        Argument::Pointer(place) => address(place),
        Argument::Word(bytes) => u64::from_ne_bytes(*bytes),
    };
    let mut words: SmallVec<[u64; 32]> = arguments.iter().map(word).collect();
    let mut addresses: SmallVec<[*mut c_void; 32]> =
        words.iter_mut().map(|word| (&raw mut *word).cast()).collect();
    body(&mut addresses)
}

impl Driver for CudaDriver {
    type Memory = CudaMemory;
    type Function = CudaFunction;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn deterministic(&self) -> bool {
        self.deterministic
    }

    fn allocate(&self, bytes: usize) -> Result<CudaMemory> {
        self.enter()?;
        // SAFETY: the memory is freed when the block is dropped.
        let address =
            self.done(&format!("allocating {bytes} bytes"), unsafe { result::malloc_sync(bytes.max(1)) })?;
        Ok(CudaMemory { address, len: bytes, context: self.context.clone() })
    }

    fn size(&self, memory: &CudaMemory) -> usize {
        memory.len
    }

    fn write(&self, to: &DevicePtr<CudaMemory>, bytes: &[u8]) -> Result<()> {
        self.enter()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: callers write within the block.
        let written = unsafe { staging.write(address(to), bytes, self.stream) };
        self.done("copying to the device", written)
    }

    /// Short ranges are only queued, and polling the future blocks until the device has copied them. Long ones are
    /// copied before the call returns.
    fn read_all(
        &self,
        ranges: &[(DevicePtr<CudaMemory>, usize)],
    ) -> BoxFuture<'static, Result<Vec<Vec<u8>>>> {
        let started = match self.start_read(ranges) {
            Ok(None) => {
                let read: Result<Vec<Vec<u8>>> =
                    ranges.iter().map(|(from, bytes)| self.read_now(from, *bytes)).collect();
                return Box::pin(core::future::ready(read));
            }
            Ok(Some(started)) => Ok(started),
            Err(error) => Err(error),
        };
        let name = self.info.name.clone();
        Box::pin(async move { started?.end().map_err(|error| error.on(&name, "copying from the device")) })
    }

    fn fill(&self, to: &DevicePtr<CudaMemory>, bytes: usize, value: u8) -> Result<()> {
        self.enter()?;
        // SAFETY: callers write within the block.
        let filled = unsafe { result::memset_d8_async(address(to), value, bytes, self.stream) };
        self.done("setting memory", filled)
    }

    fn compile(&self, source: &str) -> Result<Vec<u8>> {
        compile::compile(source, &self.architecture, &self.info.name)
    }

    fn load(&self, binary: &[u8], entries: &[&Entry]) -> Result<Vec<Option<CudaFunction>>> {
        let module = self.module(binary)?;
        Ok(entries.iter().map(|entry| self.function(&module, &entry.name).ok()).collect())
    }

    unsafe fn launch(
        &self,
        function: &CudaFunction,
        grid: Grid,
        arguments: &[Argument<CudaMemory>],
    ) -> Result<()> {
        self.enter()?;
        let (blocks, threads) = ((grid.blocks as u32, 1, 1), (grid.threads, 1, 1));
        let launched = with_arguments(arguments, |list| {
            // SAFETY: the caller passes the entry point's arguments; CUDA copies them before the call returns.
            unsafe { result::launch_kernel(function.handle, blocks, threads, 0, self.stream, list) }
        });
        self.done("launching a kernel", launched)
    }

    fn synchronize(&self) -> BoxFuture<'static, Result<()>> {
        let started = match self.start_read(&[]) {
            Ok(None) => return Box::pin(core::future::ready(self.synchronize_now())),
            Ok(Some(started)) => Ok(started),
            Err(error) => Err(error),
        };
        let name = self.info.name.clone();
        Box::pin(async move {
            let ended = started?.end().map_err(|error| error.on(&name, "waiting for the device"));
            ended.map(drop)
        })
    }

    fn library(&self) -> Option<&dyn Library<CudaMemory>> {
        Some(self)
    }

    fn recorder(&self) -> Option<&dyn Recorder<CudaDriver>> {
        Some(self)
    }
}

impl Library<CudaMemory> for CudaDriver {
    fn has_float8(&self) -> bool {
        self.float8
    }

    fn multiplies(&self, products: &Products<CudaMemory>) -> bool {
        self.context.enter().is_ok() && self.blas.multiplies(products, self)
    }

    fn settings(&self) -> u64 {
        u64::from(tf32()) | u64::from(reduced_sums()) << 1
    }

    unsafe fn multiply(&self, products: &Products<CudaMemory>) -> Result<()> {
        self.enter()?;
        // SAFETY: as the caller says.
        unsafe { self.blas.multiply(products, Target::Device(self.stream), self) }
    }

    fn convolutions(&self) -> Result<()> {
        self.dnn().map(|_| ())
    }

    fn workspace(&self, convolution: &Convolution) -> Result<Option<usize>> {
        Ok(self.dnn()?.workspace(convolution))
    }

    unsafe fn convolve(&self, convolve: &Convolve<CudaMemory>) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.convolve_on(convolve, Target::Device(self.stream)) }
    }

    fn attention_workspace(&self, attention: &Attention) -> Result<Option<usize>> {
        // Without the library, our own kernels compute it.
        Ok(self.dnn().ok().and_then(|dnn| dnn.attention_workspace(attention)))
    }

    unsafe fn attend(&self, attend: &Attend<CudaMemory>) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.attend_on(attend, Target::Device(self.stream)) }
    }

    fn fourier_workspace(&self, fourier: &Fourier) -> Result<Option<usize>> {
        // Without the library, our own kernels compute it.
        Ok(self.fft().ok().and_then(|fft| fft.workspace(fourier)))
    }

    unsafe fn transform(&self, transform: &Transform<CudaMemory>) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.transform_on(transform, Target::Device(self.stream)) }
    }
}

impl Recorder<CudaDriver> for CudaDriver {
    unsafe fn record(&self, steps: &[Step<CudaDriver>]) -> Option<Box<dyn Graph<CudaDriver>>> {
        // Launching the steps individually reports any device error.
        // SAFETY: as the caller says.
        let graph = unsafe { CudaGraph::new(self, steps).ok()? };
        Some(Box::new(graph))
    }

    fn start_laps(&self) -> Result<()> {
        /// The bytes and the number of fills: about half a millisecond, enough to queue some hundred steps.
        const FILLED: (usize, usize) = (128 << 20, 16);
        let filler = self.filler.get_or_init(|| self.allocate(FILLED.0)).as_ref().map_err(Clone::clone)?;
        for _ in 0..FILLED.1 {
            // SAFETY: the block has that many bytes.
            let filled = unsafe { result::memset_d8_async(filler.address, 0, FILLED.0, self.stream) };
            self.done("setting memory", filled)?;
        }
        let mut laps = self.laps.lock().unwrap_or_else(PoisonError::into_inner);
        self.done("starting a clock", laps.start(self.stream))
    }

    fn lap(&self) -> Result<()> {
        let mut laps = self.laps.lock().unwrap_or_else(PoisonError::into_inner);
        self.done("reading a clock", laps.lap(self.stream))
    }

    fn laps(&self) -> Result<Vec<f64>> {
        let laps = self.laps.lock().unwrap_or_else(PoisonError::into_inner);
        self.done("reading a clock", laps.times())
    }
}

impl Graph<CudaDriver> for CudaGraph {
    unsafe fn amend(&mut self, driver: &CudaDriver, place: usize, step: &Step<CudaDriver>) -> bool {
        // SAFETY: as the caller says.
        unsafe { self.update(driver, place, step).is_ok() }
    }

    unsafe fn replay(&mut self, driver: &CudaDriver) -> Result<()> {
        // SAFETY: as the caller says.
        driver.done("launching a graph", unsafe { self.launch(driver.stream) })
    }
}

impl CudaMemory {
    pub(crate) fn address(&self) -> sys::CUdeviceptr {
        self.address
    }
}
