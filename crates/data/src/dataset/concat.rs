//! Several datasets as one.

use super::Dataset;
use crate::DataError;

/// Datasets one after another. Datasets of different types fit together as `Box<dyn Dataset<I>>`.
#[derive(Clone, Debug)]
pub struct ConcatDataset<D> {
    datasets: Vec<D>,
    /// The end of each dataset, as an index of the concatenation.
    ends: Vec<usize>,
}

/// [`ConcatDataset`] under Burn's name.
pub type ComposedDataset<D> = ConcatDataset<D>;

impl<D> ConcatDataset<D> {
    /// All items of the first dataset, then all of the second, and so on.
    ///
    /// # Errors
    ///
    /// [`DataError::InvalidArgument`] if there are more items than `usize` can count.
    pub fn new<I>(datasets: Vec<D>) -> Result<Self, DataError>
    where
        D: Dataset<I>,
    {
        let mut ends = Vec::with_capacity(datasets.len());
        let mut end = 0usize;
        for dataset in &datasets {
            end = end.checked_add(dataset.len()).ok_or_else(|| {
                let hint = "join fewer or smaller datasets";
                DataError::argument("concat", "the datasets hold more items than can be counted", hint)
            })?;
            ends.push(end);
        }
        Ok(Self { datasets, ends })
    }
}

impl<I, D: Dataset<I>> Dataset<I> for ConcatDataset<D> {
    fn get(&self, index: usize) -> Option<I> {
        let which = self.ends.partition_point(|end| *end <= index);
        let start = if which == 0 { 0 } else { self.ends[which - 1] };
        self.datasets.get(which)?.get(index - start)
    }

    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }
}
