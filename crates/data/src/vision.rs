//! Image datasets.

mod mnist;

pub use mnist::{MnistDataset, MnistItem, MnistSplit};
