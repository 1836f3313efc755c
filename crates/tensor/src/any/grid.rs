//! Grids of coordinates, and sampling at them.

mod coordinates;
mod sample;

pub use coordinates::Indexing;
pub use sample::{GridPadding, GridSampleMode, GridSampleOptions};
