//! Differential fuzzing of Kiln's engines.
//!
//! [`generate::trial`] makes a random typed program with inputs from a seed and a number; it generates every op
//! except [`NOT_GENERATED`](generate::NOT_GENERATED) on every supported dtype, with views of every layout. [`check::check`] runs it in several ways that must agree:
//! the reference engine, the CPU engine with one thread and with several, with operands shared and owned, under
//! automatic differentiation, recorded and fused, expanded into simpler ops, printed and read back; gradients are compared
//! with finite differences. [`shrink::shrink`] minimizes a failing trial, and [`Trial::to_filetest`] prints it as a
//! file of `filetests/run`, which the tests of this crate run. [`parser`] feeds damaged texts to the parser of
//! programs. [`campaign::run`] runs many trials on several threads. On a GPU the kernels of many programs are compiled
//! together before they run.
//!
//! `cargo xtask fuzz --programs 2000` runs it. [`raw`] runs ops with huge and empty sizes: `cargo xtask fuzz --raw`.
//!
//! ```
//! use kiln_fuzz::check::{Subjects, check};
//! use kiln_fuzz::generate::trial;
//!
//! let found = check(&trial(1, 0, None), &Subjects::cpu());
//! assert!(found.failure.is_none());
//! ```
#![forbid(unsafe_code)]

mod asynchronous;
pub mod campaign;
pub mod check;
#[cfg(feature = "cuda")]
pub mod dry;
pub mod generate;
mod narrow;
mod noise;
pub mod parser;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod precompile;
pub mod random;
pub mod raw;
pub mod shrink;
mod spread;
mod subnormal;
mod tolerance;
mod trace;
mod trial;

pub use trial::Trial;
