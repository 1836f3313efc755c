//! One GPU engine over any vendor's [`Driver`].
//!
//! A vendor's crate implements [`Driver`]: memory, compiled programs, one in-order queue, and matmuls by the vendor's
//! library. This crate implements everything else:
//!
//! * **Memory** is [pooled](kiln_ir::MemoryConfig): the queue is in order, so a block may be reused as soon as no tensor holds
//!   it. A training step after the first allocates nothing from the system.
//! * **Tensors** are a block and a [`Layout`](kiln_ir::Layout): reshape, permute, broadcast, slice and windows only
//!   change the layout.
//! * **Kernels** are those of [`kiln_kernel`]: a fused region, and each op that has a form there, is printed as C++ for
//!   its dtypes and strides and compiled for the device. Compiled kernels are kept in memory and on disk
//!   (`KILN_CACHE_DIR`).
//! * **Matmuls** use the vendor's library, with a bias and an activation as its epilogue where nothing else follows
//!   (`KILN_EPILOGUES=off` disables epilogues). Devices without a library run block kernels, which [`Gpu::tune`] chooses
//!   by measurements.
//! * **Fourier transforms** whose lines fit shared memory are kernels, which store real and imaginary parts separately.
//!   Others use the vendor's library (`KILN_FOURIER_KERNELS=off`: all of them), or several passes over memory.
//! * **Native kernels** of other ops (indexing, sorting, pooling, random numbers) are CUDA too (`native/`). Other devices
//!   run block kernels, written once for all vendors, in their place (`KILN_NATIVE_KERNELS=off`: CUDA devices too).
//! * Every other op **expands**: its expansion runs on the device as well. [`Expand`](kiln_ir::Expand) around the
//!   engine runs custom ops for which no [kernel is registered](register_kernel).
//!
//! Steps are queued lazily: they run once enough are pending, or when a value is read. Repeated steps are replayed as
//! one device graph with updated arguments (`KILN_GRAPHS=off` launches each step alone, at once). Consecutive launches
//! of one kernel over other tensors are joined (horizontal fusion; `KILN_JOIN=off` disables it). A thread of the queue
//! submits the work while the program continues.
//!
//! Errors never abort a program. An exhausted memory, a compile error or an index out of range poisons the value, and
//! reading it returns the error. Only the device knows whether an index was out of range: values carry a deferred
//! bounds-check flag, which is checked at a read.
#![deny(unsafe_code)]

mod array;
mod attention;
mod bindings;
mod block;
mod bundle;
mod convolve;
mod custom;
pub mod disk;
// Launching is unsafe: kernels access the memory that their arguments point to.
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

pub use custom::{CustomKernel, MakeKernel, register_kernel};
pub use driver::{DeviceInfo, Driver};
pub use dry::{DryDriver, DryFunction, DryMemory};
pub use engine::Gpu;
pub use queue::GraphUse;
pub use trace::{Traced, table};
