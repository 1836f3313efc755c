//! Automatic differentiation, as layers around any engine: reverse mode ([`Autodiff`]) and forward mode ([`Forward`]).
//!
//! [`Autodiff`] is an [`Engine`](kiln_ir::Engine) that wraps another one. Values without a gradient are the inner
//! engine's own and are forwarded unchanged. [`Autodiff::require_grad`] creates a *leaf*. Results of float ops on
//! tracked values are tracked too: each has a node with the op, its parents, and the saved tensors that the op's
//! gradient rule ([`kiln_ir::vjp`](mod@kiln_ir::vjp)) reads. The tape is this graph of nodes. It is owned by the values
//! and freed with them; there is no global state.
//!
//! * [`Autodiff::backward`] traverses the graph from the newest node to the oldest and returns [`Gradients`];
//!   [`Autodiff::backward_owned`] frees the tape on the way.
//! * [`Checkpointing`] trades time for memory automatically, [`Autodiff::checkpoint`] for a chosen block.
//! * [`Autodiff::no_grad`] disables the recording of a layer on one thread, [`no_grad`](fn@no_grad) that of all layers.
//! * A tracked value that moves to an engine under another layer stays tracked
//!   ([`Engine::import`](kiln_ir::Engine::import)). A transfer node connects the tape of the new layer to that of the
//!   old one. A backward pass computes the gradients of each part of the tape on the engine that recorded it, and
//!   transfers them where the values were transferred. The gradient of a leaf is a value of the leaf's inner engine.
//! * [`Forward`] computes directional derivatives along with the values, without a tape.
//!
//! Gradients are values of the inner engine. If that is another [`Autodiff`], they are tracked there: stacked layers
//! compute derivatives of any order.
//!
//! ```
//! use kiln_autodiff::{Autodiff, Checkpointing};
//! use kiln_ir::{Engine, Var, block_on};
//! use kiln_reference::Reference;
//! use std::sync::Arc;
//!
//! let layer = Autodiff::new(Arc::new(Reference::new()), Checkpointing::None);
//! let leaf = layer.require_grad(layer.write([1.0f32, 2.0, 3.0].into()));
//! let x = Var::new(&layer, leaf.clone());
//! let loss = (&x * &x).sum(&[0]).into_value();
//! let gradients = layer.backward(&loss, None)?;
//! let gradient = gradients.get(&leaf).expect("the loss depends on it");
//! let data = block_on(layer.inner().read(gradient))?;
//! assert_eq!(data.into_vec::<f32>()?, [2.0, 4.0, 6.0]);
//! # Ok::<(), kiln_ir::Error>(())
//! ```
//!
//! The crate is `no_std` (with `alloc`) and free of `unsafe`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod backward;
mod block;
mod forward;
mod gradients;
mod layer;
mod node;
#[cfg(feature = "std")]
mod pause;
mod recompute;
mod tracked;
mod transfer;

pub use backward::Around;
pub use block::BlockFn;
pub use forward::Forward;
pub use gradients::Gradients;
pub use layer::{Autodiff, Checkpointing};
pub use node::NodeId;
#[cfg(feature = "std")]
pub use pause::no_grad;
