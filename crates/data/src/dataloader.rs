//! Data loader: batches of a dataset in a reproducible order, prefetched by worker threads.
//!
//! The order of an epoch depends only on the seed, the epoch and the dataset's length. Workers claim batches in order
//! and pass them through a bounded window that restores the order. The result does not depend on the number of workers
//! or their timing.

pub mod batcher;
mod builder;
mod source;
mod workers;

use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use builder::DataLoaderBuilder;

pub use crate::dataset::Dataset;
use source::{Plan, Source};
use workers::Workers;

use crate::DataError;

/// Iterates over a dataset in batches. Created by [`DataLoaderBuilder`].
///
/// Each call of [`iter`](Self::iter) is an epoch. A shuffling loader has a different order in each epoch.
pub struct DataLoader<Batch> {
    source: Arc<dyn Source<Batch>>,
    options: Options,
    next_epoch: AtomicU64,
}

/// The validated options of the builder.
#[derive(Clone, Copy, Debug)]
struct Options {
    batch_size: usize,
    shuffle: Option<u64>,
    num_workers: usize,
    prefetch: usize,
    /// Number of items in the dataset; all are shuffled.
    num_dataset_items: usize,
    /// Number of items in one epoch: all, or those in full batches if the last incomplete batch is dropped.
    num_items: usize,
}

impl Options {
    fn num_batches(&self) -> usize {
        self.num_items.div_ceil(self.batch_size)
    }
}

impl<Batch: Send + 'static> DataLoader<Batch> {
    /// Returns the batches of the next epoch. The first call returns epoch 0, the second epoch 1, and so on.
    ///
    /// Workers start at the first call of `next`. If a batch fails, the iterator returns its error in its place and can
    /// continue with the next batch.
    pub fn iter(&self) -> DataLoaderIter<Batch> {
        self.iter_epoch(self.next_epoch.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the batches of a given epoch, without changing the epoch of [`iter`](Self::iter). To resume a training
    /// run, call [`set_epoch`](Self::set_epoch), then [`iter`](Self::iter) and
    /// [`skip_batches`](DataLoaderIter::skip_batches).
    pub fn iter_epoch(&self, epoch: u64) -> DataLoaderIter<Batch> {
        DataLoaderIter {
            source: Arc::clone(&self.source),
            options: self.options,
            epoch,
            position: 0,
            running: None,
        }
    }

    /// Sets the epoch of the next call of [`iter`](Self::iter).
    pub fn set_epoch(&self, epoch: u64) {
        self.next_epoch.store(epoch, Ordering::Relaxed);
    }
}

impl<Batch> DataLoader<Batch> {
    /// Returns the number of batches in one epoch. Never 0.
    #[expect(clippy::len_without_is_empty, reason = "a loader without batches cannot be built")]
    pub fn len(&self) -> usize {
        self.options.num_batches()
    }

    /// Returns the number of items in one epoch: the dataset's length, without an incomplete last batch if it is
    /// dropped.
    pub fn num_items(&self) -> usize {
        self.options.num_items
    }

    /// Returns the number of items in a batch. The last batch of an epoch may be smaller.
    pub fn batch_size(&self) -> usize {
        self.options.batch_size
    }
}

impl<Batch: Send + 'static> IntoIterator for &DataLoader<Batch> {
    type Item = Result<Batch, DataError>;
    type IntoIter = DataLoaderIter<Batch>;

    /// Calls [`DataLoader::iter`].
    fn into_iter(self) -> DataLoaderIter<Batch> {
        self.iter()
    }
}

impl<Batch> fmt::Debug for DataLoader<Batch> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoader")
            .field("options", &self.options)
            .field("next_epoch", &self.next_epoch)
            .finish_non_exhaustive()
    }
}

/// An iterator over the batches of one epoch. Created by [`DataLoader::iter`].
///
/// Dropping it stops the workers and waits for them: at most for reading one item and building one batch.
pub struct DataLoaderIter<Batch> {
    source: Arc<dyn Source<Batch>>,
    options: Options,
    epoch: u64,
    position: usize,
    running: Option<Running<Batch>>,
}

enum Running<Batch> {
    Here(Plan),
    Workers(Workers<Batch>),
}

impl<Batch: Send + 'static> DataLoaderIter<Batch> {
    /// Skips the next `count` batches without building them, for instance after loading a checkpoint. At most the rest
    /// of the epoch is skipped.
    pub fn skip_batches(mut self, count: usize) -> Self {
        // Workers may be building batches that are skipped: new workers start after them.
        self.running = None;
        self.position = self.position.saturating_add(count).min(self.options.num_batches());
        self
    }

    /// Returns the epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the index of the next batch: the number of batches returned and skipped so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the progress of this iterator within the epoch.
    pub fn progress(&self) -> Progress {
        let items_total = self.options.num_items;
        let items_processed = self.position.saturating_mul(self.options.batch_size).min(items_total);
        Progress { items_processed, items_total }
    }

    fn start(&self) -> Result<Running<Batch>, DataError> {
        let plan = Plan::new(&self.options, self.epoch);
        if self.options.num_workers == 0 {
            return Ok(Running::Here(plan));
        }
        Workers::start(&self.source, plan, self.position, &self.options).map(Running::Workers)
    }
}

impl<Batch: Send + 'static> Iterator for DataLoaderIter<Batch> {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position == self.options.num_batches() {
            return None;
        }
        if self.running.is_none() {
            match self.start() {
                Ok(running) => self.running = Some(running),
                Err(error) => {
                    // Without workers no batch can follow: the error is the last item.
                    self.position = self.options.num_batches();
                    return Some(Err(error));
                }
            }
        }
        let batch = match self.running.as_mut()? {
            Running::Here(plan) => source::make(&*self.source, plan, self.position, &|| false)?,
            Running::Workers(workers) => workers.take(),
        };
        self.position += 1;
        if self.position == self.options.num_batches() {
            self.running = None;
        }
        Some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // If starting the workers fails, there are fewer items than batches.
        (0, Some(self.options.num_batches() - self.position))
    }
}

impl<Batch: Send + 'static> FusedIterator for DataLoaderIter<Batch> {}

impl<Batch> fmt::Debug for DataLoaderIter<Batch> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoaderIter")
            .field("epoch", &self.epoch)
            .field("position", &self.position)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The progress within an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of items in the batches returned or skipped so far.
    pub items_processed: usize,
    /// Number of items in the epoch.
    pub items_total: usize,
}

impl Progress {
    /// Returns the finished fraction, from 0 to 1; 1 for an empty epoch.
    pub fn fraction(&self) -> f64 {
        if self.items_total == 0 { 1.0 } else { self.items_processed as f64 / self.items_total as f64 }
    }
}
