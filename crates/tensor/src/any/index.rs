//! Indexing by integers and masks.
//!
//! Indices are in `0..length`: negative indices do not count from the end. An index out of range is an error of the
//! result, reported when the result is read.

mod mask;
mod nd;
mod read;
mod reduce;
mod search;
mod strided;
mod write;

pub use write::ScatterReduction;
