//! The same elements in another shape or order, or more than once.

mod axes;
mod repeat;
mod shape;
mod slice;
mod split;
mod triangle;

pub use shape::ReshapeArgs;
