//! Kiln's engine for NVIDIA GPUs.
//!
//! The engine is [`kiln_gpu`]'s; this crate gives its [driver](CudaDriver): memory and the queue by CUDA's driver API,
//! kernels compiled by NVRTC for the device's own architecture, products of matrices by cuBLASLt, convolutions and attention by
//! cuDNN, long Fourier transforms by cuFFT. All of them are loaded at run time: a program builds on a machine without CUDA, and on one without a GPU [`open`]
//! returns an error that says which library was looked for, and where. No toolkit is needed, only the driver and these
//! libraries, which PyTorch's packages bring too. Without cuDNN convolutions expand, and attention runs by kernels of our own;
//! so do all Fourier transforms without cuFFT.
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
mod staging;
mod stopwatch;

pub use driver::{CudaDriver, CudaFunction, CudaMemory};
pub use graph::CudaGraph;
pub use kiln_gpu::{MemoryConfig, Missing};

use kiln_gpu::Gpu;
use kiln_ir::Result;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The engine of an NVIDIA GPU.
pub type Cuda = Gpu<CudaDriver>;

/// Whether products of `f32` round their factors to TF32, 10 bits of the 23: on tensor cores many times as fast, with
/// relative errors of about 1e-3 ([`set_tf32`]).
pub fn tf32() -> bool {
    blas::tf32()
}

/// Lets products of `f32` round their factors to TF32, on all devices from now on, or not. The default is not, unless
/// `KILN_TF32=on` is in the environment.
pub fn set_tf32(on: bool) {
    blas::set_tf32(on);
}

/// Opens GPU number `index`, counted as `CUDA_VISIBLE_DEVICES` shows them.
///
/// # Errors
/// When a library or the device is missing; the error says which, and where it was looked for.
pub fn open(index: usize) -> Result<Cuda> {
    open_with(index, MemoryConfig::default())
}

/// As [`open`], with bounds on the memory that it takes.
///
/// # Errors
/// As [`open`].
pub fn open_with(index: usize, memory: MemoryConfig) -> Result<Cuda> {
    Ok(Gpu::new(CudaDriver::open(index)?, memory))
}

/// The engine of GPU number `index` that the whole process shares: opened by the first who asks, and kept. An engine of one's
/// own, by [`open`], has memory of its own, and does not read the other's values.
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

/// The machine code of a CUDA C++ source for an architecture such as `sm_90`. Needs the compiler, but no GPU.
///
/// # Errors
/// When the compiler is missing, or the source does not compile: the error holds what the compiler said.
pub fn compile(source: &str, architecture: &str) -> Result<Vec<u8>> {
    library::load(library::COMPILER, "cuda")?;
    compile::compile(source, architecture, "cuda")
}

/// How many GPUs there are; 0 where CUDA is missing.
pub fn count() -> usize {
    driver::count().unwrap_or(0)
}
