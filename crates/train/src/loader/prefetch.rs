//! Batches that a thread computes in advance.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::Builder;

use kiln_data::DataError;

use super::{Batches, Loader, LoaderIdentity};
use crate::learner::panic_message;

/// A loader whose batches a thread computes while training runs: for [`Stream`](super::Stream) and
/// [`TensorLoader`](super::TensorLoader), which have no threads of their own. The batches and their order are those of the
/// inner loader.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_train::Loader;
/// use kiln_train::loader::{Prefetch, TensorLoader};
///
/// let x = Tensor::<Flex, 1>::from([1.0, 2.0, 3.0]);
/// let loader = Prefetch::new(TensorLoader::new(x).batch_size(2), 4);
/// let lengths: Vec<usize> = loader.batches(0, 0).map(|batch| batch.unwrap().dims()[0]).collect();
/// assert_eq!(lengths, [2, 1]);
/// ```
pub struct Prefetch<L> {
    loader: Arc<L>,
    ahead: usize,
}

impl<L> Prefetch<L> {
    /// Returns a loader that computes up to `ahead` batches in advance: at least 1.
    pub fn new(loader: L, ahead: usize) -> Prefetch<L> {
        Prefetch { loader: Arc::new(loader), ahead: ahead.max(1) }
    }
}

impl<Batch, L> Loader<Batch> for Prefetch<L>
where
    Batch: Send + 'static,
    L: Loader<Batch> + Send + Sync + 'static,
{
    fn batches(&self, epoch: u64, skip: u64) -> Batches<'_, Batch> {
        let (sender, receiver) = sync_channel(self.ahead);
        let loader = self.loader.clone();
        let run = move || {
            let mut number = skip;
            let batches = catch_unwind(AssertUnwindSafe(|| {
                for batch in loader.batches(epoch, skip) {
                    let is_last = batch.is_err();
                    // The receiver is gone once training stops.
                    if sender.send(batch).is_err() || is_last {
                        return;
                    }
                    number += 1;
                }
            }));
            if let Err(payload) = batches {
                let message = panic_message(&*payload);
                let batch = usize::try_from(number).unwrap_or(usize::MAX);
                // Without a receiver nobody needs the error.
                let _ = sender.send(Err(DataError::Panicked { epoch, batch, message }));
            }
        };
        match Builder::new().name("kiln-prefetch".to_owned()).spawn(run) {
            Ok(_) => Box::new(receiver.into_iter()),
            // Without a thread, the batches are computed when they are needed.
            Err(_) => self.loader.batches(epoch, skip),
        }
    }

    fn num_batches(&self) -> Option<u64> {
        self.loader.num_batches()
    }

    fn identity(&self) -> LoaderIdentity {
        self.loader.identity()
    }
}

impl<L: fmt::Debug> fmt::Debug for Prefetch<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefetch").field("loader", &self.loader).field("ahead", &self.ahead).finish()
    }
}
