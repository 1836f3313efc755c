//! Datasets, and datasets that transform other datasets.

mod concat;
mod map;
mod partial;
mod sampler;
mod shuffled;
mod subset;
mod windows;

use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

pub use concat::{ComposedDataset, ConcatDataset};
pub use map::{MapDataset, Mapper, MapperDataset};
pub use partial::PartialDataset;
pub use sampler::{SamplerDataset, Sampling};
pub use shuffled::ShuffledDataset;
pub use subset::{SubsetDataset, split, split_consecutive};
pub use windows::WindowsDataset;

/// Image datasets.
pub use crate::vision;

/// Datasets that transform other datasets: mapped, partial, concatenated, shuffled and sampled.
pub mod transform {
    pub use super::{
        ComposedDataset, ConcatDataset, MapDataset, Mapper, MapperDataset, PartialDataset, SamplerDataset,
        Sampling, ShuffledDataset, SubsetDataset, WindowsDataset, split, split_consecutive,
    };
}

/// A map-style dataset: items accessed by index.
///
/// Loaders read from several threads concurrently, so it is `Send + Sync`. The length must not change, and `get` must
/// return the same item for the same index. Otherwise shuffling and resuming are not reproducible.
pub trait Dataset<I>: Send + Sync {
    /// Returns the item at `index`: `Some` exactly when `index < self.len()`.
    fn get(&self, index: usize) -> Option<I>;

    /// Returns the number of items.
    fn len(&self) -> usize;

    /// Returns whether there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the items in order. On a `dyn Dataset` behind a reference, call it as `(&dataset).iter()`.
    fn iter(&self) -> DatasetIter<'_, I>
    where
        Self: Sized,
    {
        DatasetIter { dataset: self, next: 0, end: self.len() }
    }
}

/// An iterator over the items of a dataset in order. Created by [`Dataset::iter`].
pub struct DatasetIter<'a, I> {
    dataset: &'a dyn Dataset<I>,
    next: usize,
    end: usize,
}

impl<I> Iterator for DatasetIter<'_, I> {
    type Item = I;

    fn next(&mut self) -> Option<I> {
        if self.next == self.end {
            return None;
        }
        let item = self.dataset.get(self.next);
        self.next = if item.is_some() { self.next + 1 } else { self.end };
        item
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // A dataset that breaks its contract ends the iteration early, so the lower bound is 0.
        (0, Some(self.end - self.next))
    }
}

impl<I> FusedIterator for DatasetIter<'_, I> {}

impl<I> fmt::Debug for DatasetIter<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatasetIter")
            .field("next", &self.next)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

/// A dataset of items in memory. [`Dataset::get`] clones the item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InMemoryDataset<I> {
    items: Vec<I>,
}

/// [`InMemoryDataset`] under the name that Burn uses.
pub type InMemDataset<I> = InMemoryDataset<I>;

impl<I> InMemoryDataset<I> {
    /// Returns a dataset of `items`, in their order.
    pub fn new(items: Vec<I>) -> Self {
        Self { items }
    }

    /// Returns the items without cloning.
    pub fn as_slice(&self) -> &[I] {
        &self.items
    }
}

impl<I: Clone + Send + Sync> Dataset<I> for InMemoryDataset<I> {
    fn get(&self, index: usize) -> Option<I> {
        self.items.get(index).cloned()
    }

    fn len(&self) -> usize {
        self.items.len()
    }
}

impl<I> From<Vec<I>> for InMemoryDataset<I> {
    fn from(items: Vec<I>) -> Self {
        Self::new(items)
    }
}

impl<I> FromIterator<I> for InMemoryDataset<I> {
    fn from_iter<T: IntoIterator<Item = I>>(items: T) -> Self {
        Self::new(items.into_iter().collect())
    }
}

impl<I, D: Dataset<I> + ?Sized> Dataset<I> for &D {
    fn get(&self, index: usize) -> Option<I> {
        (**self).get(index)
    }

    fn len(&self) -> usize {
        (**self).len()
    }
}

impl<I, D: Dataset<I> + ?Sized> Dataset<I> for Box<D> {
    fn get(&self, index: usize) -> Option<I> {
        (**self).get(index)
    }

    fn len(&self) -> usize {
        (**self).len()
    }
}

impl<I, D: Dataset<I> + ?Sized> Dataset<I> for Arc<D> {
    fn get(&self, index: usize) -> Option<I> {
        (**self).get(index)
    }

    fn len(&self) -> usize {
        (**self).len()
    }
}
