//! A dataset in random order.

use super::Dataset;
use crate::random::{Purpose, permutation};

/// Another dataset in a random order that a seed determines.
///
/// Loaders shuffle each epoch on their own ([`DataLoaderBuilder::shuffle`](crate::DataLoaderBuilder::shuffle)). This
/// dataset is for splits and samples.
#[derive(Clone, Debug)]
pub struct ShuffledDataset<D> {
    dataset: D,
    order: Vec<usize>,
}

impl<D> ShuffledDataset<D> {
    /// Shuffles `dataset`. The order depends only on `seed` and the length.
    pub fn new<I>(dataset: D, seed: u64) -> Self
    where
        D: Dataset<I>,
    {
        let order = permutation(dataset.len(), seed, Purpose::Shuffle);
        Self { dataset, order }
    }
}

impl<I, D: Dataset<I>> Dataset<I> for ShuffledDataset<D> {
    fn get(&self, index: usize) -> Option<I> {
        self.dataset.get(*self.order.get(index)?)
    }

    fn len(&self) -> usize {
        self.order.len()
    }
}
