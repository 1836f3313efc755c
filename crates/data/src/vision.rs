//! Image data sets.

mod mnist;

pub use mnist::{MnistDataset, MnistItem, MnistSplit};
