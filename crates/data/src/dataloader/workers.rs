//! Worker threads that prefetch batches.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::Options;
use super::source::{Plan, Source, make};
use crate::DataError;

/// Running worker threads. Dropping them stops and joins every thread.
pub(super) struct Workers<Batch> {
    window: Arc<Window<Batch>>,
    threads: Vec<JoinHandle<()>>,
}

impl<Batch: Send + 'static> Workers<Batch> {
    /// Starts building the batches of `plan`, beginning with batch `first`.
    pub(super) fn start(
        source: &Arc<dyn Source<Batch>>,
        plan: Plan,
        first: usize,
        options: &Options,
    ) -> Result<Self, DataError> {
        let window = Arc::new(Window::new(first, plan.num_batches(), options.prefetch));
        let plan = Arc::new(plan);
        // No more workers than batches.
        let count = options.num_workers.min(options.prefetch).min(plan.num_batches() - first);
        let mut workers = Self { window, threads: Vec::with_capacity(count) };
        for worker in 0..count {
            let (source, plan) = (Arc::clone(source), Arc::clone(&plan));
            let window = Arc::clone(&workers.window);
            let thread = thread::Builder::new()
                .name(format!("kiln-data-{worker}"))
                .spawn(move || window.work(&*source, &plan))
                .map_err(|error| DataError::SpawnWorker { worker, source: error })?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Waits for the next batch in order. Must not be called after the last batch.
    pub(super) fn take(&mut self) -> Result<Batch, DataError> {
        self.window.take()
    }
}

impl<Batch> Drop for Workers<Batch> {
    fn drop(&mut self) {
        self.window.stop();
        for thread in self.threads.drain(..) {
            // A worker can panic only while it drops a batch that is not needed.
            let _ = thread.join();
        }
    }
}

/// A bounded window of batches between workers and consumer.
///
/// Batch `n` may be claimed when fewer than `limit` claimed batches before it are not yet taken, which bounds memory.
/// Claims are made in order, so the batch that the consumer waits for is always claimed or next.
struct Window<Batch> {
    state: Mutex<State<Batch>>,
    /// Signals that the batch the consumer waits for may be ready.
    arrived: Condvar,
    /// Signals that a batch may have become free to claim.
    moved: Condvar,
    /// Read between items without the lock, so that a slow batch is abandoned early.
    stopped: AtomicBool,
    limit: usize,
    end: usize,
}

struct State<Batch> {
    next_claim: usize,
    next_take: usize,
    ready: BTreeMap<usize, Result<Batch, DataError>>,
}

impl<Batch> Window<Batch> {
    fn new(first: usize, end: usize, limit: usize) -> Self {
        Self {
            state: Mutex::new(State { next_claim: first, next_take: first, ready: BTreeMap::new() }),
            arrived: Condvar::new(),
            moved: Condvar::new(),
            stopped: AtomicBool::new(false),
            limit,
            end,
        }
    }

    /// The loop of a worker thread. It ends when all batches are claimed or the loader stops.
    fn work(&self, source: &dyn Source<Batch>, plan: &Plan) {
        while let Some(batch) = self.claim() {
            match make(source, plan, batch, &|| self.is_stopped()) {
                Some(result) => self.put(batch, result),
                None => return,
            }
        }
    }

    fn claim(&self) -> Option<usize> {
        let mut state = self.lock();
        loop {
            if self.is_stopped() || state.next_claim == self.end {
                return None;
            }
            if state.next_claim - state.next_take < self.limit {
                state.next_claim += 1;
                return Some(state.next_claim - 1);
            }
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put(&self, batch: usize, result: Result<Batch, DataError>) {
        let mut state = self.lock();
        let awaited = batch == state.next_take;
        state.ready.insert(batch, result);
        drop(state);
        if awaited {
            self.arrived.notify_one();
        }
    }

    fn take(&self) -> Result<Batch, DataError> {
        let mut state = self.lock();
        loop {
            let next = state.next_take;
            if let Some(result) = state.ready.remove(&next) {
                state.next_take += 1;
                drop(state);
                self.moved.notify_one();
                return result;
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn stop(&self) {
        // Set under the lock. Otherwise a worker between its check and its wait would miss the notification.
        let state = self.lock();
        self.stopped.store(true, Ordering::Relaxed);
        drop(state);
        self.moved.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State<Batch>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
