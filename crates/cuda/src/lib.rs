//! The engine for NVIDIA GPUs.
//!
//! The engine is that of [`kiln_gpu`]; this crate implements its [driver](CudaDriver). Memory and streams use the CUDA
//! driver API, NVRTC compiles kernels for the device's architecture, cuBLASLt runs matmuls, cuDNN convolutions and
//! attention, and cuFFT long Fourier transforms. All libraries are loaded at run time, so a program builds on a machine
//! without CUDA. On a machine without a GPU [`open`] returns an error that names the missing library and the searched
//! places. No toolkit is needed, only the driver and these libraries, which PyTorch's packages also contain. Without
//! cuDNN, convolutions expand and attention uses Kiln's own kernels; without cuFFT, so do all Fourier transforms.
//!
//! ```no_run
//! use kiln_ir::{Engine, TensorData};
//!
//! let gpu = kiln_cuda::open(0)?;
//! let x = gpu.write(TensorData::new(vec![1.0f32, 2.0], [2])?);
//! # Ok::<(), kiln_ir::Error>(())
//! ```

mod blas;
mod compile;
mod dnn;
mod driver;
mod failure;
mod fft;
mod graph;
mod library;
mod readback;
mod staging;
mod stopwatch;

pub use driver::{CudaDriver, CudaFunction, CudaMemory};
pub use graph::CudaGraph;

use kiln_gpu::Gpu;
use kiln_ir::{MemoryConfig, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The engine of an NVIDIA GPU.
pub type Cuda = Gpu<CudaDriver>;

/// Whether `f32` matmuls round their factors to TF32 (10 of the 23 mantissa bits). They run on tensor cores, many times
/// as fast, with relative errors of about 1e-3 ([`set_tf32`]).
pub fn tf32() -> bool {
    blas::tf32()
}

/// Sets whether `f32` matmuls use TF32, on all devices from now on. Default: no, unless `KILN_TF32=on` is in the
/// environment.
pub fn set_tf32(on: bool) {
    blas::set_tf32(on);
}

/// Whether cuBLASLt may round partial sums of 16-bit matmuls to 16 bits ([`set_reduced_sums`]).
pub fn reduced_sums() -> bool {
    blas::reduced_sums()
}

/// Sets whether cuBLASLt may round partial sums of 16-bit matmuls to 16 bits, on all devices from now on. Default: no,
/// unless `KILN_REDUCED_SUMS=on` is in the environment. PyTorch's `allow_bf16_reduced_precision_reduction` is on by
/// default.
pub fn set_reduced_sums(on: bool) {
    blas::set_reduced_sums(on);
}

/// Whether algorithms of cuBLASLt and cuDNN are autotuned ([`set_autotune`]).
pub fn autotune() -> bool {
    blas::autotune()
}

/// Sets whether algorithms of cuBLASLt and cuDNN are timed at the first use of a shape, on all devices from now on.
/// Otherwise the libraries' first proposals run. Default: yes, unless `KILN_TUNE=off` is in the environment.
pub fn set_autotune(on: bool) {
    blas::set_autotune(on);
}

/// Opens GPU number `index`, counted as `CUDA_VISIBLE_DEVICES` shows them.
///
/// # Errors
/// When a library or the device is missing; the error names it and the searched places.
pub fn open(index: usize) -> Result<Cuda> {
    open_with(index, MemoryConfig::new())
}

/// As [`open`], with limits on its memory.
///
/// # Errors
/// As [`open`].
pub fn open_with(index: usize, memory: MemoryConfig) -> Result<Cuda> {
    Ok(Gpu::new(CudaDriver::open(index)?, memory))
}

/// The process-wide shared engine of GPU number `index`, opened by the first call and cached. A separate engine from
/// [`open`] has its own memory, and cannot read values of this one.
///
/// # Errors
/// As [`open`]; the next call tries again.
pub fn shared(index: usize) -> Result<Arc<Cuda>> {
    static OPENED: Mutex<BTreeMap<usize, Arc<Cuda>>> = Mutex::new(BTreeMap::new());
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(engine) = opened.get(&index) {
        return Ok(engine.clone());
    }
    let engine = Arc::new(open(index)?);
    opened.insert(index, engine.clone());
    Ok(engine)
}

/// Compiles a CUDA C++ source to machine code for an architecture such as `sm_90`. Needs the compiler, but no GPU.
///
/// # Errors
/// When the compiler is missing, or the source does not compile: the error contains the compiler's log.
pub fn compile(source: &str, architecture: &str) -> Result<Vec<u8>> {
    library::load(library::COMPILER, "cuda")?;
    compile::compile(source, architecture, "cuda")
}

/// The number of GPUs; 0 without CUDA.
pub fn count() -> usize {
    driver::count().unwrap_or(0)
}

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The vendor's model name.
    pub model: String,
    /// The bytes of its memory.
    pub memory_bytes: u64,
}

/// The GPUs of this machine, at least one, in the order that `CUDA_VISIBLE_DEVICES` gives them. Opens none of them.
///
/// # Errors
/// When the driver is missing or reports no GPU.
///
/// ```
/// match kiln_cuda::list() {
///     Ok(gpus) => assert_eq!(gpus.len(), kiln_cuda::count()),
///     Err(error) => assert!(error.to_string().contains("cuda"), "{error}"),
/// }
/// ```
pub fn list() -> Result<Vec<Installed>> {
    driver::list()
}
