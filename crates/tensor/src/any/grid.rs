//! Coordinate grids and grid sampling.

mod coordinates;
mod sample;

pub use coordinates::Indexing;
pub use sample::{GridPadding, GridSampleMode, GridSampleOptions};
