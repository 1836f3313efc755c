//! Collating items into batches.

use crate::DataError;

/// Collates items into one batch, usually by copying them into tensors (`collate_fn` in PyTorch).
///
/// Workers call it from several threads concurrently. A closure `Fn(Vec<I>) -> Result<Batch, DataError>` is a batcher.
/// A struct is preferable if the batcher stores a device or a normalisation.
///
/// ```
/// use kiln_data::{Batcher, DataError};
///
/// struct Mean;
///
/// impl Batcher<f64, f64> for Mean {
///     fn batch(&self, items: Vec<f64>) -> Result<f64, DataError> {
///         Ok(items.iter().sum::<f64>() / items.len() as f64)
///     }
/// }
///
/// assert_eq!(Mean.batch(vec![1.0, 3.0])?, 2.0);
/// # Ok::<(), DataError>(())
/// ```
pub trait Batcher<I, Batch>: Send + Sync {
    /// Builds a batch from `items`, which the loader never passes empty.
    ///
    /// # Errors
    ///
    /// An error of the batcher about the items. [`DataError::batcher`] wraps errors of other types. The loader returns
    /// the error in place of the batch.
    fn batch(&self, items: Vec<I>) -> Result<Batch, DataError>;
}

impl<I, Batch, F> Batcher<I, Batch> for F
where
    F: Fn(Vec<I>) -> Result<Batch, DataError> + Send + Sync,
{
    fn batch(&self, items: Vec<I>) -> Result<Batch, DataError> {
        self(items)
    }
}
