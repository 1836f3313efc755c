//! Mapping a function over a dataset.

use std::fmt;
use std::marker::PhantomData;

use super::Dataset;

/// A function of one item. A closure `Fn(I) -> O` is a mapper.
pub trait Mapper<I, O>: Send + Sync {
    /// Returns the mapped item.
    fn map(&self, item: I) -> O;
}

impl<I, O, F: Fn(I) -> O + Send + Sync> Mapper<I, O> for F {
    fn map(&self, item: I) -> O {
        self(item)
    }
}

/// Maps the items of another dataset by a [`Mapper`] when they are read. `I` is the item type of the inner dataset.
///
/// ```
/// use kiln_data::{Dataset, InMemoryDataset, MapDataset};
///
/// let lengths = MapDataset::new(InMemoryDataset::new(vec!["a", "abc"]), |word: &str| word.len());
/// assert_eq!(lengths.get(1), Some(3));
/// ```
#[derive(Clone)]
pub struct MapDataset<D, M, I> {
    dataset: D,
    mapper: M,
    item: PhantomData<fn(I)>,
}

/// [`MapDataset`] under the name that Burn uses.
pub type MapperDataset<D, M, I> = MapDataset<D, M, I>;

impl<D: Dataset<I>, M, I> MapDataset<D, M, I> {
    /// Returns the dataset with `mapper` applied to each item.
    pub fn new(dataset: D, mapper: M) -> Self {
        Self { dataset, mapper, item: PhantomData }
    }
}

impl<I, O, D: Dataset<I>, M: Mapper<I, O>> Dataset<O> for MapDataset<D, M, I> {
    fn get(&self, index: usize) -> Option<O> {
        self.dataset.get(index).map(|item| self.mapper.map(item))
    }

    fn len(&self) -> usize {
        self.dataset.len()
    }
}

impl<D: fmt::Debug, M, I> fmt::Debug for MapDataset<D, M, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapDataset").field("dataset", &self.dataset).finish_non_exhaustive()
    }
}
