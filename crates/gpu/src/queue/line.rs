//! The submit thread: submits queued runs to the device in order. A thread that waits for a run submits it itself.

use super::run::{Counters, Run, Runner};
use crate::driver::{Driver, Step};
use crate::trace::Trace;
use kiln_ir::{Error, Result};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// The maximum number of waiting runs; beyond it the submitting thread helps.
const MOST_RUNS: usize = 16;

/// The runs of one queue, in order.
pub(super) struct Line<D: Driver> {
    shared: Arc<Shared<D>>,
    /// Started with the first run; `None` without threads, where the submitting thread executes runs.
    thread: OnceLock<Option<JoinHandle<()>>>,
}

struct Shared<D: Driver> {
    /// Held by the running thread from before it takes a run, so that runs reach the device in order. Locked before
    /// `runs`.
    runner: Mutex<Runner<D>>,
    runs: Mutex<Runs<D>>,
    /// Signals that runs arrived or that the queue closes.
    changed: Condvar,
    /// Runs that were submitted to the device. The submitting thread frees them: reference counts would otherwise
    /// bounce between the caches of two processors.
    done: Mutex<Vec<Run<D>>>,
    /// The first failure. Results of the run are lost, and possibly others.
    failure: OnceLock<Error>,
}

struct Runs<D: Driver> {
    waiting: VecDeque<Run<D>>,
    has_ended: bool,
}

impl<D: Driver> Line<D> {
    pub(super) fn new(driver: Arc<D>, counters: Arc<Counters>, trace: Arc<Trace>) -> Line<D> {
        let shared = Shared {
            runner: Mutex::new(Runner::new(driver, counters, trace)),
            runs: Mutex::new(Runs { waiting: VecDeque::new(), has_ended: false }),
            changed: Condvar::new(),
            done: Mutex::default(),
            failure: OnceLock::new(),
        };
        Line { shared: Arc::new(shared), thread: OnceLock::new() }
    }

    /// Adds a run. With `at_once`, the device has received it on return. Its failure is reported by the next call that
    /// checks.
    pub(super) fn submit(&self, run: Run<D>, at_once: bool) {
        let mut runs = lock(&self.shared.runs);
        runs.waiting.push_back(run);
        let is_long = runs.waiting.len() > MOST_RUNS;
        drop(runs);
        if at_once || is_long || self.thread.get_or_init(|| self.begin()).is_none() {
            self.shared.run_all();
        } else {
            self.shared.changed.notify_one();
        }
    }

    /// Waits until the device has received all runs; they then hold no memory.
    ///
    /// # Errors
    /// The first failure of any run so far.
    pub(super) fn drain(&self) -> Result<()> {
        self.shared.run_all();
        self.reclaim();
        self.failure()
    }

    /// Frees the runs that the device has received. Returns an empty step list with capacity for reuse, if there is
    /// one.
    pub(super) fn reclaim(&self) -> Option<Vec<Step<D>>> {
        let done = core::mem::take(&mut *lock(&self.shared.done));
        done.into_iter().fold(None, |_, run| {
            let mut steps = run.steps;
            steps.clear();
            Some(steps)
        })
    }

    /// # Errors
    /// The first failure of any run so far.
    pub(super) fn failure(&self) -> Result<()> {
        self.shared.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn begin(&self) -> Option<JoinHandle<()>> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("kiln-gpu-queue".into());
        thread.spawn(move || shared.serve()).ok()
    }
}

impl<D: Driver> Drop for Line<D> {
    fn drop(&mut self) {
        lock(&self.shared.runs).has_ended = true;
        self.shared.changed.notify_one();
        if let Some(Some(thread)) = self.thread.take() {
            // A thread that panicked has ended as well.
            let _ = thread.join();
        }
    }
}

impl<D: Driver> Shared<D> {
    /// The thread's main loop: executes runs as they arrive, until the queue closes.
    fn serve(&self) {
        loop {
            let mut runs = lock(&self.runs);
            while runs.waiting.is_empty() && !runs.has_ended {
                runs = self.changed.wait(runs).unwrap_or_else(PoisonError::into_inner);
            }
            if runs.waiting.is_empty() {
                return;
            }
            drop(runs);
            self.run_all();
        }
    }

    fn run_all(&self) {
        let mut runner = lock(&self.runner);
        while let Some(run) = self.next() {
            if self.failure.get().is_some() {
                continue;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| runner.run(&run)));
            if let Err(error) = outcome.unwrap_or_else(|_| Err(interrupted())) {
                // Runs execute one at a time, and none executes after a failure.
                let _ = self.failure.set(error);
            }
            lock(&self.done).push(run);
        }
    }

    fn next(&self) -> Option<Run<D>> {
        lock(&self.runs).waiting.pop_front()
    }
}

/// The error of a run that panicked, since the panic may occur on the queue's own thread.
fn interrupted() -> Error {
    Error::device("gpu", "a panic ended the run that submits work to the device")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
