//! The recording queue of one thread.

use crate::layer::Shared;
use crate::lazy::{Cell, Lazy};
use crate::lock::{Mutex, ReentrantLock};
use crate::plan::is_constant_of;
use crate::record::{Recording, Source};
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{Error, Op, Operand, Operands, TensorType, Value, Values};
use smallvec::SmallVec;

/// The maximum number of pending ops; reaching it runs them. It bounds the memory of a program that never reads.
const MAX_ENTRIES: usize = 4096;

pub(crate) struct Queue {
    shared: Arc<Shared>,
    waiting: Mutex<Waiting>,
    /// Held while recorded ops run. Locked before `waiting` is locked.
    running: ReentrantLock,
}

#[derive(Default)]
struct Waiting {
    recording: Recording,
    /// The unit of work that ended last. It stays pending until the next one ends.
    ended: Recording,
    /// The external bytes at which kept bytes are counted next.
    counted_from: usize,
}

impl Queue {
    pub(crate) fn new(shared: Arc<Shared>) -> Queue {
        Queue { shared, waiting: Mutex::default(), running: ReentrantLock::default() }
    }

    /// Records an op.
    pub(crate) fn record(self: &Arc<Queue>, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.settle(&inputs);
        let mut waiting = self.waiting.lock();
        while self.is_in_flight(&inputs, waiting.first()) {
            drop(waiting);
            drop(self.running.lock());
            waiting = self.waiting.lock();
        }
        let recording = &mut waiting.recording;
        let mut operands: SmallVec<[Source; 3]> = SmallVec::new();
        for operand in inputs {
            operands.push(match operand {
                Operand::Scalar(scalar) if is_constant_of(op) => Source::Constant(scalar),
                Operand::Scalar(_) | Operand::Value(_) => source(recording, operand),
            });
        }
        recording.add(op, operands, results);
        let mut values = Values::new();
        for ty in results {
            let number = recording.first + recording.cells.len() as u64;
            let cell = Arc::new(Cell::new(self.clone(), number));
            values.push(Lazy::value(*ty, cell.clone()));
            recording.cells.push(cell);
        }
        let has_work = self.shared.follow(recording);
        let full = waiting.is_full(self.shared.limits.kept_bytes);
        drop(waiting);
        if full {
            self.flush();
        } else if has_work {
            self.run_early();
        }
        values
    }

    /// Runs the recorded steps of a predicted plan while the rest is still being recorded.
    fn run_early(&self) {
        let _running = self.running.lock();
        let mut waiting = self.waiting.lock();
        // Another thread may have run the recording.
        let Some(mut run) = waiting.recording.early() else { return };
        drop(waiting);
        run.run(&self.shared);
        self.waiting.lock().recording.ran(run);
    }

    /// Runs the queues of other threads that own pending operands.
    fn settle(self: &Arc<Queue>, inputs: &Operands) {
        for value in inputs.iter().filter_map(Operand::value) {
            if let Some(cell) = Lazy::of(value)
                && !Arc::ptr_eq(&cell.queue, self)
            {
                cell.force();
            }
        }
    }

    /// Whether another thread is running the op of one of the operands.
    fn is_in_flight(&self, inputs: &Operands, first: u64) -> bool {
        let values = inputs.iter().filter_map(Operand::value);
        values.filter_map(Lazy::of).any(|cell| cell.number < first && !cell.ready.is_completed())
    }

    /// Marks the end of a unit of work, and runs the previous unit, whose intermediates the program has dropped by
    /// then.
    pub(crate) fn submit(&self) {
        let _running = self.running.lock();
        let mut waiting = self.waiting.lock();
        let next = waiting.recording.take();
        let ended = core::mem::replace(&mut waiting.ended, next);
        drop(waiting);
        self.run(ended);
    }

    /// Runs all pending ops, and waits for ops that run on another thread.
    pub(crate) fn flush(&self) {
        let _running = self.running.lock();
        let mut waiting = self.waiting.lock();
        let ended = core::mem::take(&mut waiting.ended);
        waiting.counted_from = 0;
        drop(waiting);
        self.run(ended);
        let next = self.waiting.lock().recording.take();
        self.run(next);
    }

    /// Drops recordings without live results. Recordings own values of the queue, and values own the queue: an unused
    /// queue would otherwise leak through this cycle.
    #[cfg(feature = "std")]
    pub(crate) fn drop_unread(&self) {
        let is_unread = |recording: &Recording| !recording.alive().contains(&true);
        let mut waiting = self.waiting.lock();
        // The newer one first: it may be the only reader of the older one's results.
        let newer = is_unread(&waiting.recording).then(|| waiting.recording.take());
        drop(waiting);
        drop(newer);
        let mut waiting = self.waiting.lock();
        let older = is_unread(&waiting.ended).then(|| core::mem::take(&mut waiting.ended));
        drop(waiting);
        drop(older);
    }

    /// Closes the queue of a dropped layer: runs pending ops with live results, and drops the others.
    #[cfg(feature = "std")]
    pub(crate) fn close(&self) {
        self.drop_unread();
        let is_empty = |waiting: &Waiting| waiting.recording.is_empty() && waiting.ended.is_empty();
        if is_empty(&self.waiting.lock()) {
            return;
        }
        if !std::thread::panicking() {
            return self.flush();
        }
        // A second panic would abort the process, so values get an error instead.
        let mut waiting = self.waiting.lock();
        let (older, newer) = (core::mem::take(&mut waiting.ended), waiting.recording.take());
        drop(waiting);
        for recording in [older, newer] {
            drop(Unfinished(recording.cells));
        }
    }

    fn run(&self, mut recording: Recording) {
        if recording.is_empty() {
            return;
        }
        let alive = recording.alive();
        let unfinished = Unfinished(core::mem::take(&mut recording.cells));
        let plan = match recording.plan(&alive) {
            Some(plan) => self.shared.found(plan.clone()),
            None => {
                let (hash, structure) = recording.structure(alive);
                self.shared.plan(hash, structure)
            }
        };
        let Recording { externals, numbers, beginning, expected, .. } = recording;
        let progress = self.shared.learn(beginning, expected, &plan, &externals);
        let inputs = externals.into_iter().map(|external| external.into_value()).collect();
        let outputs = plan.finish(&self.shared, progress, inputs, &numbers);
        for (result, value) in outputs {
            let cell = &unfinished.0[result];
            cell.origin.call_once(|| (plan.clone(), result));
            cell.ready.call_once(|| value);
        }
    }
}

impl Waiting {
    /// The index of the first pending result.
    fn first(&self) -> u64 {
        if self.ended.is_empty() { self.recording.first } else { self.ended.first }
    }

    /// Whether the pending ops should run: they alone keep at least `most_kept` bytes alive.
    fn is_full(&mut self, most_kept: usize) -> bool {
        let both = [&self.ended, &self.recording];
        if both.iter().map(|recording| recording.len()).sum::<usize>() >= MAX_ENTRIES {
            return true;
        }
        let bytes =
            both.iter().fold(0, |bytes: usize, recording| bytes.saturating_add(recording.external_bytes));
        if bytes < self.counted_from.max(most_kept) {
            return false;
        }
        // Counting visits every external. The next count is due when the external bytes have grown by at least a
        // sixteenth, so the time of all counts together is proportional to that of the last.
        let kept: usize = both.iter().map(|recording| recording.kept_bytes()).sum();
        let missing = most_kept.saturating_sub(kept);
        self.counted_from = bytes.saturating_add(missing.max(most_kept / 16).max(bytes / 16));
        missing == 0
    }
}

/// Cells of ops that are running. If the run does not finish, the remaining cells get an error, so that no reader
/// blocks forever.
struct Unfinished(Vec<Arc<Cell>>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        for cell in &self.0 {
            if Arc::strong_count(cell) > 1 {
                cell.ready.call_once(interrupted);
            }
        }
    }
}

fn interrupted() -> Value {
    let error = Error::device("fusion", "a panic ended the run that computes this value");
    Value::poisoned(TensorType::new([], kiln_ir::DType::F32), error)
}

fn source(recording: &mut Recording, operand: Operand) -> Source {
    let value = match operand {
        Operand::Scalar(scalar) => return recording.number(scalar),
        Operand::Value(value) => value,
    };
    let Some(cell) = Lazy::of(&value) else { return recording.value(value) };
    // The previous unit has computed its values by the time this unit runs.
    if cell.ready.is_completed() || cell.number < recording.first {
        let (cell, ty) = (cell.clone(), *value.ty());
        drop(value);
        return recording.ready(cell, ty);
    }
    Source::Result((cell.number - recording.first) as u32)
}
