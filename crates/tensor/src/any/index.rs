//! By index and by mask.
//!
//! Indices are integers in `0..length`. Negative ones do not count from the end: like all that are out of range they are
//! an error of the result, which surfaces when it is read.

mod mask;
mod nd;
mod read;
mod reduce;
mod search;
mod strided;
mod write;

pub use write::ScatterReduction;
