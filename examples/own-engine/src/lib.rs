//! An engine and a layer that Kiln does not know, opened as backends. The book's chapter "Your own engine" explains them.
//!
//! * [`Plain`] is an engine of this machine: plain loops, one thread, 17 ops and products of floats. Kiln expands all others.
//! * [`Profile`] is a layer: it counts the ops that pass, and their time.
//!
//! ```
//! use kiln::{Autodiff, Tensor};
//! use own_engine::{Plain, Profiled};
//!
//! type B = Autodiff<Profiled<Plain>>;
//! let device = Default::default();
//! let x = Tensor::<B, 1>::from_floats([1.0, 2.0], &device).require_grad();
//! let gradients = (x.clone() * x.clone()).sum().backward();
//! assert_eq!(x.grad(&gradients).unwrap().into_data().to_vec::<f32>(), [2.0, 4.0]);
//! ```

mod array;
mod engine;
mod profile;
mod views;

pub use engine::{Plain, PlainDevice, PlainEngine};
pub use profile::{OpTime, Profile, Profiled};
