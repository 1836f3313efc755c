//! Loaders: the batches that a learner trains on.
//!
//! A [`DataLoader`] over a dataset is a [`Loader`]. [`Stream`] wraps an iterator, which may be unbounded, and
//! [`TensorLoader`] divides tensors in memory into batches. [`Prefetch`] computes their batches on a thread.
//! [`ShardedLoader`] and [`SplitLoader`] make a batch for each device.

mod prefetch;
mod replicas;
mod tensors;

use std::fmt;

use kiln_data::{DataError, DataLoader};
use serde::{Deserialize, Serialize};

pub use prefetch::Prefetch;
pub use replicas::{ShardedLoader, SplitLoader};
pub use tensors::{BatchTensors, TensorLoader};

/// Batches, epoch by epoch, in an order that depends on the epoch alone.
pub trait Loader<Batch> {
    /// Returns the batches of an epoch after the first `skip`. A resumed run skips the batches that it trained on.
    fn batches(&self, epoch: u64, skip: u64) -> Batches<'_, Batch>;

    /// Returns the number of batches of an epoch. `None` where it is unknown or unbounded. Default: `None`.
    fn num_batches(&self) -> Option<u64> {
        None
    }

    /// Returns the properties by which a resumed run recognises the loader. Default: none.
    fn identity(&self) -> LoaderIdentity {
        LoaderIdentity::default()
    }
}

/// The batches of an epoch.
pub type Batches<'a, Batch> = Box<dyn Iterator<Item = Result<Batch, DataError>> + 'a>;

/// The properties of a loader. A checkpoint contains them, and a run with others does not resume from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderIdentity {
    /// The number of items of an epoch.
    pub items: Option<u64>,
    /// The number of items of a batch.
    pub batch_size: Option<u64>,
}

impl<Batch: Send + 'static> Loader<Batch> for DataLoader<Batch> {
    fn batches(&self, epoch: u64, skip: u64) -> Batches<'_, Batch> {
        Box::new(self.iter_epoch(epoch).skip_batches(usize::try_from(skip).unwrap_or(usize::MAX)))
    }

    fn num_batches(&self) -> Option<u64> {
        Some(self.len() as u64)
    }

    fn identity(&self) -> LoaderIdentity {
        LoaderIdentity { items: Some(self.num_items() as u64), batch_size: Some(self.batch_size() as u64) }
    }
}

/// A loader over the iterators that a function returns for each epoch. The iterator may be unbounded: training then
/// needs a [number of steps](crate::Learner::max_steps).
///
/// A resumed run skips batches by dropping them, so their computation is repeated.
pub struct Stream<F> {
    start: F,
    num_batches: Option<u64>,
}

impl<F> Stream<F> {
    /// Returns a loader of a function from the epoch to its batches.
    pub fn new<Batch, I>(start: F) -> Stream<F>
    where
        F: Fn(u64) -> I,
        I: Iterator<Item = Result<Batch, DataError>>,
    {
        Stream { start, num_batches: None }
    }

    kiln_ir::setters! {
        /// Sets the number of batches of an epoch, for progress. Default: unknown.
        with_num_batches(num_batches: u64) => num_batches = Some(num_batches);
    }
}

impl<Batch, F, I> Loader<Batch> for Stream<F>
where
    F: Fn(u64) -> I,
    I: Iterator<Item = Result<Batch, DataError>> + 'static,
{
    fn batches(&self, epoch: u64, skip: u64) -> Batches<'_, Batch> {
        Box::new((self.start)(epoch).skip(usize::try_from(skip).unwrap_or(usize::MAX)))
    }

    fn num_batches(&self) -> Option<u64> {
        self.num_batches
    }
}

impl<F> fmt::Debug for Stream<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("num_batches", &self.num_batches).finish_non_exhaustive()
    }
}
