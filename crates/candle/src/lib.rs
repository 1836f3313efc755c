//! Kiln's engine over [candle-core](candle_core).
//!
//! [`Candle`] is an [`Engine`](kiln_ir::Engine) whose values are candle's tensors. A tour:
//!
//! * **Devices.** [`CandleDevice`] names the processor, an NVIDIA GPU (crate feature `cuda`) or an Apple GPU (crate feature
//!   `metal`); [`Candle::open`](kiln_foreign::Foreign::open) makes the engine of one.
//! * **Ops.** Each op takes one of three ways. Candle's kernels run it where they give Kiln's results ([`NATIVE`](kiln_foreign::NATIVE)
//!   lists the kinds). The CPU engine runs it on the host where candle lacks the function or the dtype, and no simpler op exists: bit
//!   operations, random numbers, 64-bit integer arithmetic, resizing. [`Expand`](kiln_ir::Expand), which every stack puts around the
//!   engine, writes the rest in simpler ops.
//! * **Dtypes.** All of Kiln's. Candle has `f64`, `f32`, `f16`, `bf16`, `i64`, `i32`, `i16`, `u32` and `u8`. The others are kept as
//!   their bits, `bool` and `i8` as `u8`, `u16` as `i16`, `u64` as `i64`: ops that move elements run natively on bits, arithmetic
//!   runs on the host.
//! * **Errors.** An error of candle poisons the results, with the op, the operands and candle's message.
//!
//! ```
//! use kiln_candle::{Candle, CandleDevice};
//! use kiln_ir::{Engine, TensorData, Var, block_on};
//!
//! let engine = Candle::open(CandleDevice::Cpu)?;
//! let x = Var::new(&engine, engine.write(TensorData::from([1.0f32, 2.0, 3.0])));
//! let y = engine.read((x * 2.0 + 1.0).into_value());
//! assert_eq!(block_on(y)?.into_vec::<f32>()?, [3.0, 5.0, 7.0]);
//! # Ok::<(), kiln_ir::Error>(())
//! ```
//!
//! # Where candle differs
//!
//! | candle | Kiln, and how the engine gets it |
//! |---|---|
//! | `minimum`, `maximum`, `max`, `argmax`, `max_pool2d` and their counterparts skip a NaN | a NaN wins: a mask of NaN is combined with the result |
//! | sorting refuses or misplaces NaN; GPUs sort unstably | stable, NaN last: tensors with a NaN, and GPUs, sort on the host |
//! | `round` rounds halves away from zero | to even: halves are corrected |
//! | `sign` of NaN and of `-0` is 0 | they stay: selected from the operand |
//! | `pow` is `exp(y ln x)`; no `rem`, `atan2`, `expm1`, `log1p`, `atan`, `erfcx` | accurate functions: on the host |
//! | overflow of integers panics in builds with checks, division by zero always | wraps, and gives 0: `i64` arithmetic for narrower dtypes, the host for 64 bits and products of `u32` |
//! | sums and products of 16-bit floats round after each step | `f32` inside an op, rounded once |
//! | conversions to 16-bit floats round twice (by way of `f32`) | once: on the host, except from `f32` and to it |
//! | the greatest index of a dtype means "skip"; bounds are not always checked | an error: indices are checked before each op |
//! | a duplicate index in a scatter has no order on GPUs | the last one wins: on the host |
//! | a failed allocation on the host ends the process | an error: memory for large results is tried first |
//! | a stack of products with one repeated factor misreads a transposed other one | both are copied to row-major first |
//! | the extreme along an axis of length 1 and stride 0 panics | such axes are left out |
//! | kernels refuse empty tensors | empty results and identities: on the host |
//! | convolutions and pooling have one stride, dilation and padding for all dimensions | others are expanded; uneven padding is added first |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod composite;
mod contraction;
mod device;
mod elementwise;
mod index;
mod library;
mod reduce;
mod view;

#[cfg(test)]
mod tests;

pub use device::CandleDevice;
pub use library::CandleCore;

/// The engine of a device of candle. See the [crate's tour](crate).
///
/// Opening a device fails when it is missing, or this build lacks its kernels; the error says which feature adds them.
///
/// ```
/// use kiln_candle::{Candle, CandleDevice};
/// use std::sync::Arc;
///
/// assert!(Candle::open(CandleDevice::Cpu).is_ok());
/// let (a, b) = (Candle::shared(CandleDevice::Cpu)?, Candle::shared(CandleDevice::Cpu)?);
/// assert!(Arc::ptr_eq(&a, &b));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
pub type Candle = kiln_foreign::Foreign<CandleCore>;
