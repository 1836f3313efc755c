//! Sliding windows over a dataset.

use super::Dataset;
use crate::DataError;

/// Sliding windows of `size` consecutive items, as `Vec`s: item `i` contains the inner items `i..i + size`.
///
/// ```
/// use kiln_data::{Dataset, InMemoryDataset, WindowsDataset};
///
/// let windows = WindowsDataset::new(InMemoryDataset::new(vec![1, 2, 3, 4]), 3)?;
/// assert_eq!(windows.iter().collect::<Vec<_>>(), [[1, 2, 3], [2, 3, 4]]);
/// # Ok::<(), kiln_data::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct WindowsDataset<D> {
    dataset: D,
    size: usize,
}

impl<D> WindowsDataset<D> {
    /// Returns the windows of `size` items. A dataset with fewer items has no windows.
    ///
    /// # Errors
    ///
    /// [`DataError::InvalidArgument`] if `size` is 0.
    pub fn new<I>(dataset: D, size: usize) -> Result<Self, DataError>
    where
        D: Dataset<I>,
    {
        if size == 0 {
            let hint = "use windows of at least 1 item";
            return Err(DataError::argument("windows", "window size is 0", hint));
        }
        Ok(Self { dataset, size })
    }
}

impl<I, D: Dataset<I>> Dataset<Vec<I>> for WindowsDataset<D> {
    fn get(&self, index: usize) -> Option<Vec<I>> {
        let in_range = index < Dataset::<Vec<I>>::len(self);
        in_range.then(|| (index..index + self.size).map(|inner| self.dataset.get(inner)).collect())?
    }

    fn len(&self) -> usize {
        self.dataset.len().saturating_sub(self.size - 1)
    }
}
