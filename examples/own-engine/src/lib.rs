//! An out-of-tree engine and an out-of-tree layer as backends. The book's chapter "Your own engine" explains them.
//!
//! * [`Plain`] is a CPU engine: plain loops, one thread, 17 ops and matmuls of `f32`. Kiln expands all other ops.
//! * [`Profile`] is a layer: it counts the calls of each op and measures their time.
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
