//! Kiln's eager CPU engine.
//!
//! [`Cpu`] is an [`Engine`](kiln_ir::Engine) with one match arm per op; ops run natively and immediately.
//! [`Expand`](kiln_ir::Expand) around it runs custom ops. Optimizations:
//!
//! * A tensor is a buffer and a layout: shape, strides, offset. Reshape, permute, broadcast, slice and windows only
//!   change the layout.
//! * Results reuse the memory of an operand without other owners.
//! * Kernels are plain loops compiled for several instruction sets; the engine selects one when it is created.
//! * A caching allocator reuses freed buffers: new memory costs a page fault for every few kilobytes, which takes as
//!   long as writing them ([`Memory`](kiln_ir::Memory) reports and trims the cache).
//! * Large tensors are split between a fixed number of threads; small ones are not. The split does not depend on the
//!   number of threads, so results do not either.
//!
//! ```
//! use kiln_cpu::Cpu;
//! use kiln_ir::{Engine, TensorData, Var, block_on};
//!
//! let cpu = Cpu::new();
//! let x = Var::new(&cpu, cpu.write(TensorData::from([1.0f32, 2.0, 3.0])));
//! let y = cpu.read((x * 2.0 + 1.0).into_value());
//! assert_eq!(block_on(y).unwrap().into_vec::<f32>().unwrap(), [3.0, 5.0, 7.0]);
//! ```
//!
//! Without the feature `threads` the crate runs on the caller's thread, and without `std` it needs only an allocator;
//! vector instructions are then those of the target's baseline.
//!
//! `KILN_NUM_THREADS` sets the number of shared threads; `KILN_CPU_ISA` (`scalar`, `avx2`, `avx512`) lowers the
//! instruction set, for tests; `KILN_CPU_POOL_BYTES` limits the cached bytes of freed memory; `KILN_PLAN_CACHE_BYTES` limits
//! the size of cached fused regions ([`Cpu::set_plan_limit`]); `KILN_INT8_ACTIVATIONS`
//! (`on`, `off`) rounds activations to one byte in matmuls with quantized blocks ([`Cpu::with_int8_activations`]).
//!
//! With the crate feature `blas`, large matmuls of `f32` and `f64` run in the vendor's BLAS: OpenBLAS, oneMKL or Accelerate,
//! which `KILN_BLAS` chooses (`openblas`, `mkl`, `accelerate`, a path, or `off`). Their sums may depend on the number of
//! threads. Without the variable the first library that is found is used, and Kiln's own kernels if there is none.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod array;
#[cfg(feature = "blas")]
mod blas;
mod buffer;
mod composite;
mod contraction;
mod copy;
mod elementwise;
mod engine;
mod fill;
mod functions;
mod half_float;
mod index;
mod isa;
mod kernels;
mod lane;
#[cfg(feature = "std")]
mod mapped;
mod math;
mod order;
mod reduce;
mod scalar;
mod threads;
mod tile;
mod view;
mod walk;

#[cfg(feature = "blas")]
pub use blas::{blas, set_blas};
pub use engine::Cpu;
#[cfg(feature = "std")]
pub use mapped::MappedFile;
pub use threads::MAX_THREADS;

/// The resources that [`Cpu::new`] uses on this machine, such as `CPU: 8 threads, AVX-512`. With the crate feature `blas` the
/// library of matmuls follows.
///
/// ```
/// assert!(kiln_cpu::processor().starts_with("CPU: "));
/// ```
pub fn processor() -> alloc::string::String {
    #[cfg(feature = "blas")]
    use alloc::string::ToString;

    let threads = threads::Pool::shared().threads();
    let plural = if threads == 1 { "" } else { "s" };
    let own = alloc::format!("CPU: {threads} thread{plural}, {}", isa::Level::detect().title());
    #[cfg(feature = "blas")]
    return match blas::blas() {
        Ok(Some(name)) => alloc::format!("{own}, matmuls by {name}"),
        Ok(None) => alloc::format!("{own}, matmuls by Kiln: no BLAS was found or wanted"),
        Err(error) => {
            alloc::format!("{own}, matmuls fail: {}", error.to_string().lines().next().unwrap_or_default())
        }
    };
    #[cfg(not(feature = "blas"))]
    own
}
