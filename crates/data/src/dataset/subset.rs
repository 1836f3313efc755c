//! Subsets and splits of a dataset.

use std::ops::Range;
use std::sync::Arc;

use super::{Dataset, ShuffledDataset};
use crate::DataError;

/// A subset of another dataset: a range or a list of indices.
#[derive(Clone, Debug)]
pub struct SubsetDataset<D> {
    dataset: D,
    selection: Selection,
}

#[derive(Clone, Debug)]
enum Selection {
    Range(Range<usize>),
    Indices(Vec<usize>),
}

impl<D> SubsetDataset<D> {
    /// Returns the items at `indices`, in that order. An index may occur more than once.
    ///
    /// # Errors
    ///
    /// [`DataError::InvalidArgument`] if an index is out of range.
    pub fn new<I>(dataset: D, indices: Vec<usize>) -> Result<Self, DataError>
    where
        D: Dataset<I>,
    {
        let len = dataset.len();
        match indices.iter().find(|index| **index >= len) {
            Some(index) => Err(out_of_range(format!("index {index}"), len)),
            None => Ok(Self { dataset, selection: Selection::Indices(indices) }),
        }
    }

    /// Returns the items in `range`.
    ///
    /// # Errors
    ///
    /// [`DataError::InvalidArgument`] if the range ends after the dataset or before its start.
    pub fn range<I>(dataset: D, range: Range<usize>) -> Result<Self, DataError>
    where
        D: Dataset<I>,
    {
        let len = dataset.len();
        if range.start > range.end || range.end > len {
            return Err(out_of_range(format!("range {}..{}", range.start, range.end), len));
        }
        Ok(Self { dataset, selection: Selection::Range(range) })
    }
}

impl<I, D: Dataset<I>> Dataset<I> for SubsetDataset<D> {
    fn get(&self, index: usize) -> Option<I> {
        let index = match &self.selection {
            Selection::Range(range) => (index < range.len()).then(|| range.start + index)?,
            Selection::Indices(indices) => *indices.get(index)?,
        };
        self.dataset.get(index)
    }

    fn len(&self) -> usize {
        match &self.selection {
            Selection::Range(range) => range.len(),
            Selection::Indices(indices) => indices.len(),
        }
    }
}

/// Splits a dataset at random into parts with sizes proportional to `ratios`. Every item is in exactly one part, and
/// the same seed returns the same parts. [`split_consecutive`] keeps the order of the items.
///
/// ```
/// use kiln_data::{Dataset, InMemoryDataset, split};
///
/// let [train, valid] = split(InMemoryDataset::new(vec![1, 2, 3, 4, 5]), [0.8, 0.2], 42)?;
/// assert_eq!((train.len(), valid.len()), (4, 1));
/// # Ok::<(), kiln_data::DataError>(())
/// ```
///
/// # Errors
///
/// [`DataError::InvalidArgument`] if a ratio is negative or not finite, or the ratios do not sum to 1 (within 1e-6).
pub fn split<I, D: Dataset<I>, const N: usize>(
    dataset: D,
    ratios: [f64; N],
    seed: u64,
) -> Result<[SubsetDataset<Arc<ShuffledDataset<D>>>; N], DataError> {
    split_consecutive(ShuffledDataset::new(dataset, seed), ratios)
}

/// Splits a dataset into consecutive parts with sizes proportional to `ratios`; the first part has the first items.
/// Every item is in exactly one part. Use it for time series or items in random order, and [`split`] for sorted items,
/// for instance by class.
///
/// ```
/// use kiln_data::{Dataset, InMemoryDataset, split_consecutive};
///
/// let [past, future] = split_consecutive(InMemoryDataset::new(vec![1, 2, 3, 4, 5]), [0.8, 0.2])?;
/// assert_eq!((past.get(3), future.get(0)), (Some(4), Some(5)));
/// # Ok::<(), kiln_data::DataError>(())
/// ```
///
/// # Errors
///
/// [`DataError::InvalidArgument`] if a ratio is negative or not finite, or the ratios do not sum to 1 (within 1e-6).
pub fn split_consecutive<I, D: Dataset<I>, const N: usize>(
    dataset: D,
    ratios: [f64; N],
) -> Result<[SubsetDataset<Arc<D>>; N], DataError> {
    let total: f64 = ratios.iter().sum();
    if ratios.iter().any(|ratio| !ratio.is_finite() || *ratio < 0.0) || (total - 1.0).abs() > 1e-6 {
        return Err(DataError::argument(
            "split",
            format!("ratios {ratios:?} are not fractions that sum to 1"),
            "pass ratios of at least 0 that sum to 1, such as [0.9, 0.1]",
        ));
    }
    let dataset = Arc::new(dataset);
    let len = dataset.len();
    let (mut part, mut sum, mut start) = (0, 0.0, 0);
    Ok(ratios.map(|ratio| {
        part += 1;
        sum += ratio;
        // Rounding errors in the sum must not drop the last item.
        let end = if part == N { len } else { ((sum * len as f64).round() as usize).clamp(start, len) };
        let range = start..end;
        start = end;
        SubsetDataset { dataset: Arc::clone(&dataset), selection: Selection::Range(range) }
    }))
}

fn out_of_range(what: String, len: usize) -> DataError {
    DataError::argument(
        "subset",
        format!("{what} is out of range for a dataset of {len} items"),
        "use indices from 0 to the dataset's length, which is not included",
    )
}
