//! Batches of a dataset, in a reproducible order, made ahead of time by worker threads.
//!
//! The order of an epoch depends on the seed, the epoch and the dataset's length alone. Workers take batches
//! in turn and hand them over through a bounded window that restores the order, so neither their number nor
//! their timing shows in the result.

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

/// Walks a dataset in batches; made by [`DataLoaderBuilder`].
///
/// Each call of [`iter`](Self::iter) is an epoch, with an order of its own if the loader shuffles.
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
    /// Items of the dataset, all of which take part in the shuffle.
    num_dataset_items: usize,
    /// Items in one epoch: all, or those in full batches if the last batch is dropped.
    num_items: usize,
}

impl Options {
    fn num_batches(&self) -> usize {
        self.num_items.div_ceil(self.batch_size)
    }
}

impl<Batch: Send + 'static> DataLoader<Batch> {
    /// The batches of the next epoch: the first call returns epoch 0, the second epoch 1, and so on.
    ///
    /// Workers start at the first call of `next`. A batch that cannot be made comes as an error in its place,
    /// and the iteration can continue with the next batch.
    pub fn iter(&self) -> DataLoaderIter<Batch> {
        self.iter_epoch(self.next_epoch.fetch_add(1, Ordering::Relaxed))
    }

    /// The batches of a given epoch. Leaves the count of [`iter`](Self::iter) alone; to resume a training
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
    /// Batches in one epoch. Never 0.
    #[expect(clippy::len_without_is_empty, reason = "a loader without batches cannot be built")]
    pub fn len(&self) -> usize {
        self.options.num_batches()
    }

    /// Items in one epoch: the dataset's length, less the items of an incomplete last batch if the loader
    /// drops that.
    pub fn num_items(&self) -> usize {
        self.options.num_items
    }

    /// Items in a batch; the last one of an epoch may hold fewer.
    pub fn batch_size(&self) -> usize {
        self.options.batch_size
    }
}

impl<Batch: Send + 'static> IntoIterator for &DataLoader<Batch> {
    type Item = Result<Batch, DataError>;
    type IntoIter = DataLoaderIter<Batch>;

    /// The same as [`DataLoader::iter`].
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

/// The batches of one epoch; made by [`DataLoader::iter`].
///
/// Dropping it stops the workers and waits for them, which takes no longer than reading one item and making
/// one batch.
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
    /// Goes past the next `count` batches without making them, as after loading a checkpoint. Past the end,
    /// nothing is left.
    pub fn skip_batches(mut self, count: usize) -> Self {
        // Workers may be busy with the very batches to skip: new ones start behind them.
        self.running = None;
        self.position = self.position.saturating_add(count).min(self.options.num_batches());
        self
    }

    /// The epoch this iterator walks.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Index of the next batch: the number of batches returned and skipped so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// How far through the epoch this iterator is.
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
                    // Without workers no batch will ever come: the error is the last item.
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
        // After an error from starting the workers fewer items come than there are batches.
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

/// The number of finished items of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Items in the batches handed out or skipped so far.
    pub items_processed: usize,
    /// Items in the epoch.
    pub items_total: usize,
}

impl Progress {
    /// The part that is done, from 0 to 1; 1 if there is nothing to do.
    pub fn fraction(&self) -> f64 {
        if self.items_total == 0 { 1.0 } else { self.items_processed as f64 / self.items_total as f64 }
    }
}
