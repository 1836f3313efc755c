//! A dataset in a random order.

use super::Dataset;
use crate::random::{Purpose, permutation};

/// Another dataset's items in a random order, fixed by a seed.
///
/// Loaders shuffle by themselves, with a new order every epoch
/// ([`DataLoaderBuilder::shuffle`](crate::DataLoaderBuilder::shuffle)); this one is for splits and samples.
#[derive(Clone, Debug)]
pub struct ShuffledDataset<D> {
    dataset: D,
    order: Vec<usize>,
}

impl<D> ShuffledDataset<D> {
    /// The items of `dataset` in an order that depends on `seed` and the length alone.
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
