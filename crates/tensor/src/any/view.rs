//! Reshapes, permutations, slices, repetition and padding.

mod axes;
mod pad;
mod repeat;
mod shape;
mod slice;
mod split;
mod triangle;

pub use pad::PadMode;
pub(crate) use triangle::zero;
