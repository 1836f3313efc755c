//! Concatenation of datasets.

use super::Dataset;
use crate::DataError;

/// Concatenates datasets. To concatenate datasets of different types, use `Box<dyn Dataset<I>>`.
#[derive(Clone, Debug)]
pub struct ConcatDataset<D> {
    datasets: Vec<D>,
    /// The end index of each dataset in the concatenation.
    ends: Vec<usize>,
}

/// [`ConcatDataset`] under the name that Burn uses.
pub type ComposedDataset<D> = ConcatDataset<D>;

impl<D> ConcatDataset<D> {
    /// Concatenates the datasets in their order.
    ///
    /// # Errors
    ///
    /// [`DataError::InvalidArgument`] if the number of items overflows `usize`.
    pub fn new<I>(datasets: Vec<D>) -> Result<Self, DataError>
    where
        D: Dataset<I>,
    {
        let mut ends = Vec::with_capacity(datasets.len());
        let mut end = 0usize;
        for dataset in &datasets {
            end = end.checked_add(dataset.len()).ok_or_else(|| {
                let hint = "join fewer or smaller datasets";
                DataError::argument("concat", "the total number of items overflows usize", hint)
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
