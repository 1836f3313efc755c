//! Kernels: an IR for fused loop nests, and code generation for GPUs.
//!
//! A [`Kernel`] describes one loop nest: axes, parameters with affine accesses, and a body of scalar instructions with
//! the functions of [`Op`](kiln_ir::Op). It holds no extents and no strides, so one kernel serves every batch size.
//! [`Launch`] holds those. The mapping of axes to a machine is a schedule, separate data.
//!
//! A tour, from a program of ops to executable code:
//!
//! * [`Nest`] finds the loops of a region: it takes ops one by one, and matches their axes by splitting both sides
//!   until they agree. An op whose axes do not match is rejected and leaves the nest unchanged, which tells a fusion
//!   layer the end of a region. Padded and concatenated operands are read in place: the load is guarded by a test of
//!   the index ([`Compute::LoadWhere`]). Reads by index are loads with an offset ([`Compute::LoadAt`]).
//! * [`Nest::lower`] turns the region into a [`Kernel`] and a [`Launch`], given the layouts of the operands. Axes with
//!   matching strides in every parameter are merged.
//! * [`verify()`] checks the invariants of kernels, [`interpret()`] defines their semantics, [`Kernel::cost`] counts,
//!   and [`text`] prints and parses them.
//! * [`match_epilogue`] and [`match_quantized_matmul`] find the region patterns for which engines have one kernel; the
//!   planner stores them as the region's [`Pattern`](kiln_ir::Pattern).
//! * [`GpuSchedule`] and [`TileSchedule`] map the axes to a machine. [`print`](mod@print) writes C++ for CUDA and HIP,
//!   and WGSL; the CPU engine's tile machine runs kernels without a compiler.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod block;
mod cost;
mod epilogue;
mod interpret;
mod kernel;
mod lower;
mod nest;
mod order;
mod passes;
pub mod print;
mod quantized;
mod schedule;
pub mod text;
mod verify;

pub use cost::KernelCost;
pub use epilogue::match_epilogue;
pub use interpret::{Argument, interpret};
pub use kernel::{
    Axis, AxisSet, Binding, Compute, Instruction, Kernel, KernelKind, Launch, Param, ParamKind, StrideClass,
    ValueId,
};
pub use lower::{Check, Layout, Lowered, NotLowered};
pub use nest::{Nest, Operand, Refusal, Savepoint, Slot};
pub use quantized::match_quantized_matmul;
pub use schedule::{GpuSchedule, TileSchedule};
pub use verify::{Invalid, verify};
