//! The reference engine: a naive implementation of every op of Kiln.
//!
//! [`Reference`] is the executable definition of each [`Op`](kiln_ir::Op). Other engines are tested against it.
//! It is not optimised: no strides, no blocking, no threads, no reuse of memory.
//!
//! Rules for every op:
//!
//! * A tensor is a dense, row-major [`TensorData`](kiln_ir::TensorData). Views copy bitwise.
//! * Floats are computed in `f64`, integers and `bool` in wrapping 128-bit integers. The stored result is rounded
//!   once, to nearest even, or wrapped once.
//! * Invalid data, such as an index out of range, returns [poisoned](kiln_ir::Value::poisoned) results. Poison
//!   propagates, and reading it returns the error.
//!
//! A tour: `engine` has the match over ops, `call` an op with its operands, `numbers` the two kinds of numbers,
//! `places` the index arithmetic. Then there is one module for each group of ops: `elementwise`, `random`, `view`,
//! `reduce`, `order`, `index`, `contraction`, `pool`, `normal` (softmax, norms), `attention`, `signal` (resizing,
//! Fourier), and `quantize`. [`Expand`](kiln_ir::Expand) runs custom ops and collectives. For tests of layers,
//! `limited` restricts an engine to some of its ops.
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
mod loops;
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
