//! Automatic differentiation, as layers around any engine: reverse mode ([`Autodiff`]) and forward mode ([`Forward`]).
//!
//! [`Autodiff`] is an [`Engine`](kiln_ir::Engine) that wraps another one. Values that need no gradient are values of
//! the inner engine. [`Autodiff::require_grad`] creates a *leaf*. Results of float ops on tracked values are tracked:
//! each has a node with the op, its parents, and the values saved for the gradient rule
//! ([`kiln_ir::vjp`](mod@kiln_ir::vjp)). The tape is this graph of nodes. It is owned by the values and freed with
//! them; there is no global state.
//!
//! * [`Autodiff::backward`] traverses the graph from the newest node to the oldest and returns [`Gradients`];
//!   [`Autodiff::backward_owned`] frees the tape on the way.
//! * [`Checkpointing`] is automatic activation checkpointing, [`Autodiff::checkpoint`] checkpoints a block.
//! * [`Autodiff::no_grad`] pauses the recording of a layer on one thread, [`no_grad`](fn@no_grad) that of all layers.
//! * A tracked value that moves to an engine under another layer ([`Engine::import`](kiln_ir::Engine::import)) stays
//!   tracked: a node connects the tapes of both layers. A backward pass computes gradients on the engine that recorded
//!   that part of the tape, and transfers them between engines. The gradient of a leaf is on the leaf's inner engine.
//! * [`Forward`] computes directional derivatives (JVPs) with the values, without a tape.
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
pub use pause::{no_grad, with_checkpointing};
