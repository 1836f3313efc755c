//! Automatic batching: a function of one example runs on a batch.
//!
//! [`Vmap`] is an [`Engine`](kiln_ir::Engine) around another one. A *batched* value has the type of one example, and
//! holds a value of the inner engine with a leading batch axis. Each op has a batching rule:
//! one op (or few ops) on all examples at once. Only a custom op without expansion and random numbers with a key for
//! each example loop over the examples. Values that are the same for all examples are values of the inner engine,
//! without overhead.
//!
//! * [`Vmap::batch`] and [`Vmap::unbatch`] enter and leave the batch. [`Vmap::scope`] sets the number of examples for
//!   random ops, which have no operand to infer it from.
//! * Layers nest: `Vmap` around `Vmap` has two batch axes; below automatic differentiation it computes per-example
//!   gradients, above it the gradient of a batch.
//!
//! ```
//! use kiln_ir::{Engine, Var, block_on};
//! use kiln_reference::Reference;
//! use kiln_vmap::Vmap;
//! use std::sync::Arc;
//!
//! let layer = Vmap::new(Arc::new(Reference::new()));
//! let examples = layer.inner().write([[1.0f32, 2.0], [3.0, 4.0]].into());
//! let x = Var::new(&layer, layer.batch(examples, 0));
//! let weight = Var::new(&layer, layer.write([10.0f32, 1.0].into()));
//! let dot = (x * weight).sum(&[0]); // of one example
//! let dots = layer.unbatch(&dot.into_value(), 2, 0);
//! assert_eq!(block_on(layer.inner().read(dots))?.into_vec::<f32>()?, [12.0, 34.0]);
//! # Ok::<(), kiln_ir::Error>(())
//! ```
//!
//! Three operations have no batching rule and return an error: [`NonZero`](kiln_ir::Op::NonZero), whose shape would
//! differ between examples, sends of a batched value to another member of a group, and reads of a batched value.
//!
//! The transform is [JAX's `vmap`](https://docs.jax.dev/en/latest/automatic-vectorization.html). The crate is `no_std`
//! (with `alloc`) and free of `unsafe`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod call;
mod layer;
mod rules;
mod scope;

pub use layer::Vmap;
pub use scope::Randomness;
