//! The builder of a data loader.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::source::Pipeline;
use super::{DataLoader, Options};
use crate::{Batcher, DataError, Dataset};

/// Maximum number of worker threads.
const MAX_WORKERS: usize = 1024;

/// Default prefetch factor, in batches per worker: one in progress while one is ready.
const PREFETCH_PER_WORKER: usize = 2;

/// Builder of a [`DataLoader`].
///
/// Defaults: batch size 1, the dataset's order, an incomplete last batch is kept, no worker threads.
#[derive(Clone, Debug)]
pub struct DataLoaderBuilder<B> {
    batcher: B,
    batch_size: usize,
    shuffle: Option<u64>,
    drop_last: bool,
    num_workers: usize,
    prefetch: Option<usize>,
}

impl<B> DataLoaderBuilder<B> {
    /// Returns a builder with a batcher and default options.
    pub fn new(batcher: B) -> Self {
        Self { batcher, batch_size: 1, shuffle: None, drop_last: false, num_workers: 0, prefetch: None }
    }

    /// Sets the number of items in a batch: at least 1. Default: 1.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// Shuffles each epoch. The order depends on `seed` and the epoch. Default: no shuffling.
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.shuffle = Some(seed);
        self
    }

    /// Sets whether to drop an incomplete last batch. Default: no.
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// Sets the number of worker threads that prefetch batches: at most 1024. With 0, `next` builds each batch on the
    /// caller's thread. The batches do not depend on this number. Default: 0.
    pub fn num_workers(mut self, num_workers: usize) -> Self {
        self.num_workers = num_workers;
        self
    }

    /// Sets the maximum number of prefetched batches, including batches in progress, which bounds memory. If it is less
    /// than `num_workers`, some workers are idle. Without workers it has no effect. Default: two per worker.
    pub fn prefetch(mut self, prefetch: usize) -> Self {
        self.prefetch = Some(prefetch);
        self
    }

    /// Builds the loader of `dataset`. `I` is the dataset's item type.
    ///
    /// # Errors
    ///
    /// - [`DataError::ZeroBatchSize`] if the batch size is 0;
    /// - [`DataError::EmptyDataset`] if the dataset has no items;
    /// - [`DataError::InvalidArgument`] if `drop_last` is set and the dataset does not fill one batch;
    /// - [`DataError::InvalidArgument`] if there are workers and `prefetch` is 0;
    /// - [`DataError::InvalidArgument`] if there are more than 1024 workers.
    pub fn build<I, Batch, D>(self, dataset: D) -> Result<DataLoader<Batch>, DataError>
    where
        I: 'static,
        Batch: Send + 'static,
        D: Dataset<I> + 'static,
        B: Batcher<I, Batch> + 'static,
    {
        let options = self.check(dataset.len())?;
        let source = Arc::new(Pipeline::new(dataset, self.batcher));
        Ok(DataLoader { source, options, next_epoch: AtomicU64::new(0) })
    }

    fn check(&self, len: usize) -> Result<Options, DataError> {
        let Self { batch_size, shuffle, drop_last, num_workers, .. } = *self;
        if batch_size == 0 {
            return Err(DataError::ZeroBatchSize);
        }
        if len == 0 {
            return Err(DataError::EmptyDataset);
        }
        if drop_last && len < batch_size {
            return Err(DataError::argument(
                "data_loader",
                format!("no batch of {batch_size} items can be filled from {len}, and drop_last is on"),
                "lower batch_size or disable drop_last",
            ));
        }
        if num_workers > MAX_WORKERS {
            return Err(DataError::argument(
                "data_loader",
                format!("{num_workers} workers are more than {MAX_WORKERS}"),
                "each worker is a thread: a few for each core are enough",
            ));
        }
        let prefetch = self.prefetch.unwrap_or(num_workers.saturating_mul(PREFETCH_PER_WORKER));
        if num_workers > 0 && prefetch == 0 {
            return Err(DataError::argument(
                "data_loader",
                format!("prefetch is 0, so {num_workers} workers could never start a batch"),
                "call prefetch(n) with n of at least 1, or num_workers(0)",
            ));
        }
        let num_items = if drop_last { len - len % batch_size } else { len };
        Ok(Options { batch_size, shuffle, num_workers, prefetch, num_dataset_items: len, num_items })
    }
}
