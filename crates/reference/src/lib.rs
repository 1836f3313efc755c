//! The reference engine: naive implementations of every op of Kiln.
//!
//! [`Reference`] is the executable definition of each [`Op`](kiln_ir::Op). It is written for readability, and other
//! engines are tested against it. It is slow: no strides, no blocking, no threads, no memory reuse.
//!
//! Rules for every op:
//!
//! * A tensor is a dense, row-major [`TensorData`](kiln_ir::TensorData). Views copy, bit for bit.
//! * Numbers are computed in `f64` (floats) or in wrapping 128-bit integers (integers and `bool`), for every dtype, and
//!   are rounded once, to nearest even, or wrapped once, when the result is stored.
//! * Invalid data, such as an index out of range, returns [poisoned](kiln_ir::Value::poisoned) results. Poison
//!   propagates, and reading it returns the error.
//!
//! A tour: `engine` holds the one match over ops; `call` an op with its operands; `numbers` the two kinds of numbers; `places` the arithmetic of
//! positions. Then follows one module for each group of ops: `elementwise`, `random`, `view`, `reduce`, `order`, `index`,
//! `contraction`, `pool`, `normal` (softmax, norms), `attention`, `signal` (resizing, Fourier), and `quantize`.
//! Custom ops and collectives are left to [`Expand`](kiln_ir::Expand). For tests of layers, `limited` restricts an engine to some of
//! its ops.
//!
//! ```
//! use kiln_ir::{Engine, Var, block_on};
//! use kiln_reference::Reference;
//!
//! let engine = Reference::new();
//! let x = Var::new(&engine, engine.write([1.0f32, 2.0, 3.0].into()));
//! let y = (&x * &x).sum(&[0]);
//! let data = block_on(engine.read(y.into_value())).unwrap();
//! assert_eq!(data.into_vec::<f32>().unwrap(), [14.0]);
//! ```
//!
//! The crate is `no_std` (with `alloc`) and free of `unsafe`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attention;
mod call;
mod contraction;
mod elementwise;
mod engine;
mod index;
mod limited;
mod normal;
mod numbers;
mod order;
mod places;
mod pool;
mod quantize;
mod random;
mod reduce;
mod signal;
mod view;

pub use engine::Reference;
pub use limited::Limited;
