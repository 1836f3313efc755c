//! Kernels: an IR for fused loop nests, and code generation for GPUs.
//!
//! A [`Kernel`] says *what* one loop nest computes: axes, parameters with affine accesses, and a body of scalar
//! instructions in the alphabet of [`Op`](kiln_ir::Op). It holds no extents and no strides, so one kernel serves every
//! batch size. [`Launch`] holds those. *How* the axes are spread over a machine is a schedule, separate data.
//!
//! A tour, from a program of ops to something that runs:
//!
//! * [`Nest`] finds the loops of a region: it takes ops one by one, and matches their axes by splitting both sides until
//!   they agree. An op whose axes do not match is refused and leaves the nest as it was; that is how a fusion
//!   layer learns where a region ends. Padded operands, and operands one after the other, are read where they lie: the load is
//!   guarded by a test of the index ([`Compute::LoadWhere`]).
//! * [`Nest::lower`] turns the region into a [`Kernel`] and a [`Launch`], given where the operands lie in memory. Axes
//!   that every parameter crosses with matching strides become one.
//! * [`verify()`] checks what kernels promise, [`interpret()`] says what they mean, [`Kernel::cost`] counts, and
//!   [`text`] prints and reads them.
//! * [`match_epilogue`] and [`match_quantized_matmul`] find the forms of regions that engines have one kernel for; the planner notes
//!   them as the region's [`Pattern`](kiln_ir::Pattern).
//! * [`GpuSchedule`] and [`TileSchedule`] say how the axes are spread over a machine. [`print`](mod@print) writes C++ for CUDA
//!   and HIP, and WGSL; the CPU engine's tile machine runs kernels without a compiler.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

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
