//! Argmin and argmax, scans, and sorting.
//!
//! Elements are compared by keys: unsigned integers in the order of the elements, with NaN greatest and both zeros
//! equal.

mod extreme;
mod key;
mod lines;
mod scan;
mod sort;

pub(crate) use extreme::arg_reduce;
pub(crate) use scan::scan;
pub(crate) use sort::{sort, topk};
