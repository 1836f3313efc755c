//! Options of a loader.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::source::Pipeline;
use super::{DataLoader, Options};
use crate::{Batcher, DataError, Dataset};

/// The greatest number of workers, each of which is a thread.
const MAX_WORKERS: usize = 1024;

/// How far workers run ahead by default, in batches for each worker: one being made while one is ready.
const PREFETCH_PER_WORKER: usize = 2;

/// Collects the options of a [`DataLoader`].
///
/// Defaults: batches of one item, in the dataset's order, the last one even if incomplete, made on the
/// caller's thread.
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
    /// A loader whose batches are made by `batcher`.
    pub fn new(batcher: B) -> Self {
        Self { batcher, batch_size: 1, shuffle: None, drop_last: false, num_workers: 0, prefetch: None }
    }

    /// Items in a batch. Default: 1.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// Puts the items of each epoch in a random order, fixed by `seed` and the epoch's number. Default: the
    /// dataset's order.
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.shuffle = Some(seed);
        self
    }

    /// Whether to leave out the last batch if it is not full. Default: no.
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// Threads that make batches ahead of time. With 0, the default, `next` makes each batch on the caller's
    /// thread. The batches are the same either way.
    pub fn num_workers(mut self, num_workers: usize) -> Self {
        self.num_workers = num_workers;
        self
    }

    /// The greatest number of batches that workers prefetch, including unfinished ones: a bound on memory. Default: two
    /// for each worker. With fewer than `num_workers`, some workers always wait; without workers nothing runs ahead,
    /// whatever the bound.
    pub fn prefetch(mut self, prefetch: usize) -> Self {
        self.prefetch = Some(prefetch);
        self
    }

    /// A loader over `dataset`. `I` is the dataset's item type.
    ///
    /// # Errors
    ///
    /// - [`DataError::ZeroBatchSize`] if the batch size is 0;
    /// - [`DataError::EmptyDataset`] if the dataset has no items;
    /// - [`DataError::InvalidArgument`] if an incomplete last batch is dropped and the dataset fills no batch,
    ///   if there are workers and they may prefetch nothing, or if there are more than 1024.
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
                "lower batch_size or turn drop_last off",
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
