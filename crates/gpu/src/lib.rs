//! One GPU engine over any vendor's [`Driver`].
//!
//! A vendor's crate gives a [`Driver`]: memory, compiled programs, one queue in order, and products of matrices by the
//! vendor's library. Everything else is here, once:
//!
//! * **Memory** is [pooled](MemoryConfig): work happens in order, so that a block may be used again as soon as nobody
//!   holds it, and a training step after the first asks nothing of the system.
//! * **Tensors** are a block and a [`Layout`](kiln_ir::Layout): reshape, permute, broadcast, slice and windows only write
//!   another layout.
//! * **Kernels** are those of [`kiln_kernel`]: a fused region, and each op that has a form there, is printed as C++ for
//!   its dtypes and strides and compiled for the device. Compiled kernels are kept in memory and on disk
//!   (`KILN_CACHE_DIR`).
//! * **Products** are the vendor's library's, with a bias and an activation where nothing else follows (`KILN_EPILOGUES=off`: without).
//! * **Fourier transforms** whose lines fit shared memory are kernels, which store both parts of complex numbers apart; others are the
//!   vendor's library's (`KILN_FOURIER_KERNELS=off`: all of them), or go through memory more than once.
//! * **Native kernels** of ops that have no such form, by index, in order, over windows and random ones, are C++ too (`native/`).
//! * Every other op **expands**: what it is made of runs on the device as well. [`Expand`](kiln_ir::Expand) around the engine runs
//!   custom ops.
//!
//! Work waits until there is enough of it, or something is read. Steps that repeat are queued together, as one graph of the
//! device's, with what changed among their arguments (`KILN_GRAPHS=off` queues each alone, at once). Launches of one kernel
//! over other tensors that follow each other are one (`KILN_JOIN=off`: they are not). A thread of the queue's own
//! does so while the program goes on.
//!
//! Errors never end a program: memory that runs out, a kernel that does not compile or an index out of range poisons the
//! value, and reading it gives the error. Whether an index was out of range only the device knows; values carry the word
//! that tells, and it is looked at when they are read.
#![deny(unsafe_code)]

mod array;
mod attention;
mod bundle;
mod convolve;
// Launching is unsafe: the device reads and writes where it is told.
#[allow(unsafe_code)]
pub mod driver;
#[allow(unsafe_code)]
mod dry;
mod engine;
mod epilogue;
mod float8;
mod fourier;
mod index;
mod joint;
mod kernels;
mod matmul;
mod memory;
mod missing;
mod native;
mod order;
mod pad_channels;
mod pool;
#[allow(unsafe_code)]
mod queue;
mod random;
mod recover;
mod region;
mod resize;
mod scan;
mod slim;
mod sort;
mod strided;
mod suspicion;
mod trace;
mod view;

pub use driver::{DeviceInfo, Driver};
pub use dry::{DryDriver, DryFunction, DryMemory};
pub use engine::Gpu;
pub use memory::MemoryConfig;
pub use missing::Missing;
pub use queue::GraphUse;
pub use trace::{Traced, table};
