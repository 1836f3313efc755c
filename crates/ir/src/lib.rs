//! Kiln's intermediate representation: a closed set of tensor operations, as data.
//!
//! An operation is a value of [`Op`]. It holds attributes only, never a tensor. Operands and results are each a
//! [`Value`]: a [`TensorType`] (shape and dtype) plus a payload that is opaque outside its engine. An [`Engine`]
//! executes ops by one `match` over [`Op`]; a *layer* (autodiff, fusion) is an engine around another.
//!
//! A tour, in the order of execution:
//!
//! * [`infer`](mod@infer) checks an op against its operands and computes the types of its results, before anything
//!   runs.
//! * [`Engine::execute`] runs it. [`Engine::supports`] says which ops an engine runs natively; [`Expand`] wraps an
//!   engine and rewrites all others in simpler ops by [`expand`]. It also runs custom ops, and collectives of one
//!   member or of a `ThreadGroup`.
//! * [`vjp`](mod@vjp) has the gradient rules, written in ops, so gradients can be differentiated again.
//! * [`Program`] is a list of ops as data: [`Recorder`] captures one, [`text`] prints and parses it,
//!   [`verify`](mod@verify) checks it, [`cost`](mod@cost) counts its operations and bytes, and [`reuse`](mod@reuse)
//!   decides which operand a result may overwrite.
//!
//! Gradient rules and expansions are written with [`Var`], which has operators for ops:
//!
//! ```
//! use kiln_ir::{DType, Recorder, TensorType};
//!
//! let x = TensorType::new([2, 3], DType::F32);
//! let program = Recorder::trace(&[x], |inputs| {
//!     let x = &inputs[0];
//!     vec![x.exp() * 2.0 + x]
//! });
//! assert_eq!(program.instructions.len(), 3);
//! ```
//!
//! The crate is `no_std` (with `alloc`) and free of `unsafe`; it depends on no other crate of the workspace.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
pub mod anomaly;
#[cfg(feature = "ndarray")]
mod arrays;
mod block_format;
mod builder;
mod conversion;
pub mod cost;
mod custom;
mod data;
mod dtype;
mod engine;
mod error;
mod excerpt;
mod expand;
mod float8;
mod fused;
mod future;
mod fx_hasher;
#[cfg(feature = "std")]
mod group;
pub mod infer;
mod layer;
mod layout;
mod loop_op;
mod machine;
mod memory;
pub mod number;
mod op;
pub mod philox;
mod print;
#[cfg(feature = "std")]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
pub mod profile;
mod program;
#[cfg(feature = "std")]
mod read_error;
mod recorder;
pub mod reuse;
mod scalar;
mod setters;
#[cfg(feature = "std")]
mod settings;
mod shape;
mod shared;
#[cfg(feature = "std")]
mod system_memory;
pub mod text;
mod unavailable;
mod value;
pub mod verify;
pub mod vjp;
mod within;

/// The crate whose arrays [`TensorData`] converts from and to.
#[cfg(feature = "ndarray")]
pub use ::ndarray;
pub use block_format::BlockFormat;
pub use builder::{Var, VarNumber};
pub use conversion::{ElementConversion, ToElement};
pub use cost::{Cost, FlopsOf, cost};
pub use custom::{Custom, CustomOp};
pub use data::{Element, Elements, TensorData};
pub use dtype::{DType, DTypeSet};
pub use engine::{
    BoxFuture, Caps, Engine, OpSet, copied, has_no_work, or_poisoned, pass_async, poison_of, poisoned,
    recovered, select_unpoisoned,
};
pub use error::{Error, ErrorKind, Result};
pub use expand::{CustomKernel, Dispatch, Expand, MINIMAL, expand, expand_program, expand_values, expanding};
pub use float8::Float8;
pub use fused::{Activation, Epilogue, FusedOp, Pattern, QuantizedMatMul};
#[cfg(feature = "std")]
#[doc(hidden)]
pub use future::without_blocking;
pub use future::{block_on, try_block_on, wait_for};
pub use fx_hasher::{FxBuildHasher, FxHasher};
#[cfg(feature = "std")]
pub use group::{GroupMember, ThreadGroup};
pub use infer::{infer, infer_alike, infer_with_number};
pub use layer::{LayerId, Wrapped, imported_from, lowered};
pub use layout::Layout;
pub use loop_op::{LoopAttributes, LoopOp};
pub use machine::{Machine, Products};
pub use memory::{CacheStrategy, Memory, MemoryConfig, MemoryUse};
pub use op::*;
pub use print::{PrintOptions, print_options, set_print_options};
pub use program::{Instruction, Program, ProgramOperand};
#[cfg(feature = "std")]
pub use read_error::read_error;
pub use recorder::Recorder;
pub use reuse::reuse;
pub use scalar::{Real, Scalar};
#[cfg(feature = "std")]
pub use settings::{deterministic, set_deterministic, setting, switch};
pub use shape::{MAX_RANK, Shape, TensorType};
pub use shared::SharedBytes;
#[cfg(feature = "std")]
pub use system_memory::SystemMemory;
pub use unavailable::{Unavailable, or_unavailable};
pub use value::{Operand, OperandType, Operands, ResultTypes, Value, Values};
pub use verify::verify;
pub use vjp::{
    Gradient, GradientSum, Saved, SavedOf, differentiate, gradient_of, gradient_program, saved, vjp,
};
