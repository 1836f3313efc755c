//! Reshapes, permutations, slices, repetition and padding.

mod axes;
mod repeat;
mod shape;
mod slice;
mod split;
mod triangle;

pub use shape::ReshapeArgs;
