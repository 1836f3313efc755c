//! Extremes, running reductions and order.
//!
//! Numbers compare by keys: unsigned integers in the order of the elements, with NaN above all and both zeros alike.

mod extreme;
mod key;
mod lines;
mod scan;
mod sort;

pub(crate) use extreme::arg_reduce;
pub(crate) use scan::scan;
pub(crate) use sort::{sort, topk};
