//! A consecutive part of a dataset, clamped to the dataset's length.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use super::Dataset;

/// The items of another dataset in an index range.
///
/// A range past the end of the dataset is clamped; [`SubsetDataset::range`](super::SubsetDataset::range) returns an
/// error instead.
///
/// ```
/// use kiln_data::dataset::transform::PartialDataset;
/// use kiln_data::{Dataset, InMemDataset};
///
/// let part = PartialDataset::new(InMemDataset::new(vec![10, 11, 12, 13]), 1, 9);
/// assert_eq!((part.len(), part.get(0), part.get(3)), (3, Some(11), None));
/// ```
#[derive(Clone)]
pub struct PartialDataset<D, I> {
    dataset: D,
    range: Range<usize>,
    item: PhantomData<fn(I)>,
}

impl<D: Dataset<I>, I> PartialDataset<D, I> {
    /// Returns the items `start..end`, clamped to the dataset's length.
    pub fn new(dataset: D, start: usize, end: usize) -> Self {
        let end = end.min(dataset.len());
        Self { dataset, range: start.min(end)..end, item: PhantomData }
    }

    /// Splits a dataset into `num` consecutive parts of equal size. The last part also contains the remainder.
    ///
    /// # Panics
    ///
    /// When `num` is 0.
    #[track_caller]
    pub fn split(dataset: D, num: usize) -> Vec<PartialDataset<std::sync::Arc<D>, I>> {
        assert!(num > 0, "[split] a dataset cannot be split into 0 parts");
        let dataset = std::sync::Arc::new(dataset);
        let (len, size) = (dataset.len(), dataset.len() / num);
        let part = |index: usize| {
            let end = if index + 1 == num { len } else { (index + 1) * size };
            PartialDataset::new(dataset.clone(), index * size, end)
        };
        (0..num).map(part).collect()
    }
}

impl<I, D: Dataset<I>> Dataset<I> for PartialDataset<D, I> {
    fn get(&self, index: usize) -> Option<I> {
        (index < self.range.len()).then(|| self.dataset.get(self.range.start + index))?
    }

    fn len(&self) -> usize {
        self.range.len()
    }
}

impl<D: fmt::Debug, I> fmt::Debug for PartialDataset<D, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartialDataset").field("dataset", &self.dataset).field("range", &self.range).finish()
    }
}
