//! The order of items in an epoch, and building batches from them.

use std::any::Any;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Options;
use crate::random::{Purpose, permutation};
use crate::{Batcher, DataError, Dataset};

/// A dataset and a batcher, without the item type.
pub(super) trait Source<Batch>: Send + Sync {
    /// Builds the batch of the items at `indices`. Returns `None` once `stopped` returns true.
    fn batch(
        &self,
        indices: &mut dyn Iterator<Item = usize>,
        stopped: &dyn Fn() -> bool,
    ) -> Option<Result<Batch, DataError>>;
}

pub(super) struct Pipeline<D, B, I> {
    dataset: D,
    batcher: B,
    len: usize,
    item: PhantomData<fn() -> I>,
}

impl<I, D: Dataset<I>, B> Pipeline<D, B, I> {
    pub(super) fn new(dataset: D, batcher: B) -> Self {
        let len = dataset.len();
        Self { dataset, batcher, len, item: PhantomData }
    }
}

impl<I, Batch, D: Dataset<I>, B: Batcher<I, Batch>> Source<Batch> for Pipeline<D, B, I> {
    fn batch(
        &self,
        indices: &mut dyn Iterator<Item = usize>,
        stopped: &dyn Fn() -> bool,
    ) -> Option<Result<Batch, DataError>> {
        let mut items = Vec::with_capacity(indices.size_hint().0);
        for index in indices {
            if stopped() {
                return None;
            }
            match self.dataset.get(index) {
                Some(item) => items.push(item),
                None => return Some(Err(DataError::MissingItem { index, len: self.len })),
            }
        }
        if stopped() { None } else { Some(self.batcher.batch(items)) }
    }
}

/// The order of one epoch.
pub(super) struct Plan {
    epoch: u64,
    order: Option<Vec<usize>>,
    batch_size: usize,
    num_items: usize,
}

impl Plan {
    pub(super) fn new(options: &Options, epoch: u64) -> Self {
        let Options { batch_size, num_items, .. } = *options;
        let order =
            options.shuffle.map(|seed| permutation(options.num_dataset_items, seed, Purpose::Epoch(epoch)));
        Self { epoch, order, batch_size, num_items }
    }

    pub(super) fn num_batches(&self) -> usize {
        self.num_items.div_ceil(self.batch_size)
    }

    /// The positions in the order that batch `batch` covers.
    fn places(&self, batch: usize) -> Range<usize> {
        let start = batch * self.batch_size;
        start..self.num_items.min(start.saturating_add(self.batch_size))
    }
}

/// Builds batch `batch` of the plan. A panic becomes an error.
pub(super) fn make<Batch>(
    source: &dyn Source<Batch>,
    plan: &Plan,
    batch: usize,
    stopped: &dyn Fn() -> bool,
) -> Option<Result<Batch, DataError>> {
    let places = plan.places(batch);
    // After a panic, the dataset and the batcher keep the state in which the panic left them, as with any panic behind
    // a shared reference. Guards of that state, such as poisoned locks, still apply.
    let attempt = catch_unwind(AssertUnwindSafe(|| match &plan.order {
        Some(order) => source.batch(&mut order[places].iter().copied(), stopped),
        None => source.batch(&mut { places }, stopped),
    }));
    attempt.unwrap_or_else(|payload| {
        Some(Err(DataError::Panicked { epoch: plan.epoch, batch, message: describe(payload) }))
    })
}

fn describe(payload: Box<dyn Any + Send>) -> String {
    let message = payload
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    if message.is_none() {
        // A payload of unknown type may panic again when dropped, which would end the worker.
        std::mem::forget(payload);
    }
    message.unwrap_or_else(|| "no message".to_owned())
}
