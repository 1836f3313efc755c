//! Kiln's eager engine for the processor.
//!
//! [`Cpu`] is an [`Engine`](kiln_ir::Engine) with one arm per op; ops run natively and at once.
//! [`Expand`](kiln_ir::Expand) around it runs custom ops. The sources of its speed:
//!
//! * A tensor is a buffer and a layout: shape, strides, offset. Reshape, permute, broadcast, slice and windows only
//!   write another layout.
//! * An operand without other owners is overwritten: results reuse its memory.
//! * Kernels are plain loops compiled for several instruction sets, chosen when the engine is made.
//! * A caching allocator reuses freed buffers: fresh memory costs a page fault for every few kilobytes, which takes as
//!   long as writing them ([`Memory`](kiln_ir::Memory) reports and trims the cache).
//! * Large tensors are split between a fixed number of threads; small ones never are. The split does not depend on the
//!   number of threads, and so neither do results.
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
//! Without the feature `threads` the crate runs on the caller's thread, and without `std` it needs an allocator only;
//! vector instructions are then those the target always has.
//!
//! `KILN_NUM_THREADS` sets the number of shared threads; `KILN_CPU_ISA` (`scalar`, `avx2`, `avx512`) lowers the
//! instruction set, for tests; `KILN_CPU_POOL_BYTES` bounds the bytes that are kept after they are freed.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod array;
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

pub use engine::Cpu;
#[cfg(feature = "std")]
pub use mapped::MappedFile;
pub use threads::MAX_THREADS;
