//! Speculative execution: a predicted plan's first steps run while the program still records ops.
//!
//! The layer predicts the plan of a recording from its first ops, if all earlier recordings with that start had one
//! plan. Further ops are only compared with the predicted plan, and recorded from the first difference on.
//!
//! A device idles from the moment a program reads a step's loss until the next step is recorded. An asynchronous engine
//! therefore receives the plan's steps as soon as their ops are recorded. When the recording ends, the prediction is
//! verified against the ops and the live values. On a misprediction the results are dropped. Speculative steps never
//! overwrite an operand, and their results are invisible until the verification.

use crate::layer::Shared;
use crate::plan::{Plan, Progress, Structure};
use crate::record::{Entry, External, Recording, Source};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use kiln_ir::{Op, Scalar, TensorType};

/// The number of entries that identify the beginning of a recording.
pub(crate) const PREFIX: usize = 16;

/// The minimum number of ready steps for which switching from recording to running is worthwhile.
const MIN_STEPS: usize = 4;

/// Speculative execution stops before a step that could overwrite an operand of at least this many bytes.
const MIN_OVERWRITTEN: usize = 1 << 20;

/// The number of successive equal plans of recordings with one beginning before the plan is predicted: initial and
/// maximum. It doubles on each misprediction.
const AGREED: [u32; 2] = [2, 64];

/// The maximum number of predictions, about 100 bytes each. Beyond it, those of freed plans are dropped, or all.
const MAX_PREDICTIONS: usize = 1 << 14;

/// The predicted plan of a recording.
#[derive(Default)]
pub(crate) enum Expected {
    #[default]
    Anything,
    /// The predicted plan, which matches all entries so far.
    Plan(Box<SpeculativeRun>),
    /// The prediction was wrong; the number of steps that ran for nothing.
    Other(usize),
}

/// The progress of a predicted plan while the recording is compared with it.
pub(crate) struct SpeculativeRun {
    plan: Arc<Plan>,
    progress: Progress,
    /// The plain numbers of the steps.
    numbers: Vec<Scalar>,
    /// The number of recorded entries, all of which match the plan.
    entries: usize,
    /// The number of recorded externals, whose types match the plan.
    externals: usize,
    /// The step at which speculative execution ends.
    end: usize,
}

/// Speculative steps in execution, while no lock on the recording is held.
pub(crate) struct EarlyRun {
    plan: Arc<Plan>,
    progress: Progress,
    numbers: Vec<Scalar>,
    end: usize,
    /// The index of the recording's first result.
    first: u64,
}

impl EarlyRun {
    pub(crate) fn run(&mut self, shared: &Shared) {
        self.plan.run_early(shared, &mut self.progress, self.end, &self.numbers);
    }
}

impl Recording {
    /// Takes the ready steps of the predicted plan, with everything they use.
    pub(crate) fn early(&mut self) -> Option<EarlyRun> {
        let Recording { expected: Expected::Plan(run), first, .. } = self else { return None };
        run.numbers.extend(&self.numbers[run.numbers.len()..]);
        let end = run.provide(&self.externals);
        let (progress, numbers) = (core::mem::take(&mut run.progress), core::mem::take(&mut run.numbers));
        Some(EarlyRun { plan: run.plan.clone(), progress, numbers, end, first: *first })
    }

    /// Returns the progress to the recording. Meanwhile, another thread may have recorded an op that does not match the
    /// plan.
    pub(crate) fn ran(&mut self, run: EarlyRun) {
        if self.first != run.first {
            return;
        }
        match &mut self.expected {
            Expected::Anything => {}
            Expected::Plan(plan) => (plan.progress, plan.numbers) = (run.progress, run.numbers),
            Expected::Other(steps) => *steps = run.progress.next,
        }
    }
}

impl Shared {
    /// Predicts the plan of a recording once it has enough entries. Returns whether there are steps to run.
    pub(crate) fn follow(&self, recording: &mut Recording) -> bool {
        match &recording.expected {
            Expected::Anything if recording.entries.len() == PREFIX => {
                let plan = recording.beginning.and_then(|hash| self.predictor.lock().expected(hash));
                if let Some(run) = plan.and_then(|(plan, end)| SpeculativeRun::new(plan, end, recording)) {
                    let Structure { externals, alive, .. } = &run.plan.structure;
                    recording.externals.reserve(externals.len());
                    recording.cells.reserve(alive.len());
                    recording.expected = Expected::Plan(Box::new(run));
                }
                false
            }
            Expected::Plan(run) => run.has_work(),
            Expected::Anything | Expected::Other(_) => false,
        }
    }

    /// Compares the plan of a whole recording with the prediction and updates the predictor. Returns the steps that ran
    /// already.
    pub(crate) fn learn(
        &self,
        beginning: Option<u64>,
        expected: Expected,
        plan: &Arc<Plan>,
        externals: &[External],
    ) -> Progress {
        let Some(hash) = beginning else { return plan.begin() };
        let (progress, lost) = match expected {
            Expected::Plan(run) if Arc::ptr_eq(&run.plan, plan) => (Some(run.progress), 0),
            Expected::Plan(run) => (None, run.progress.next),
            Expected::Other(steps) => (None, steps),
            Expected::Anything => (None, 0),
        };
        let is_overwritten = |place: usize| {
            let external: &External = &externals[place];
            external.is_kept_here() && external.ty.num_bytes() >= MIN_OVERWRITTEN
        };
        let end = if self.limits.speculates { plan.first_last_use(is_overwritten) } else { 0 };
        self.predictor.lock().learn(hash, plan, end, lost > 0);
        let early = progress.as_ref().map_or(0, |progress| progress.next);
        self.counters.steps_early.fetch_add(early, Ordering::Relaxed);
        self.counters.steps_lost.fetch_add(lost, Ordering::Relaxed);
        progress.unwrap_or_else(|| plan.begin())
    }
}

impl SpeculativeRun {
    /// Starts a predicted plan for a recording, if its entries match the start of the plan.
    fn new(plan: Arc<Plan>, end: usize, recording: &Recording) -> Option<SpeculativeRun> {
        let begins = plan.structure.entries.starts_with(&recording.entries);
        let progress = plan.begin();
        let (numbers, entries) = (Vec::new(), recording.entries.len());
        let mut run = SpeculativeRun { plan, progress, numbers, entries, externals: 0, end };
        (begins && run.has_externals(&recording.externals)).then_some(run)
    }

    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The number of recorded entries.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// The number of executed steps.
    pub(crate) fn steps(&self) -> usize {
        self.progress.next
    }

    /// Whether this entry, in a recording with those externals, matches the next entry of the plan.
    pub(crate) fn matches_next(
        &mut self,
        (op, operands, results): (&Op, &[Source], &[TensorType]),
        externals: &[External],
    ) -> bool {
        let is_next = |entry: &Entry| {
            entry.op == *op && entry.operands[..] == *operands && entry.results[..] == *results
        };
        let matches_next = self.plan.structure.entries.get(self.entries).is_some_and(is_next)
            && self.has_externals(externals);
        self.entries += usize::from(matches_next);
        matches_next
    }

    fn has_externals(&mut self, externals: &[External]) -> bool {
        let new = externals[self.externals..].iter().map(|external| &external.ty);
        let planned = self.plan.structure.externals.get(self.externals..).unwrap_or_default();
        self.externals = externals.len();
        planned.len() >= new.len() && new.zip(planned).all(|(new, planned)| new == planned)
    }

    /// Whether there are steps to run.
    fn has_work(&self) -> bool {
        let last = self.progress.next + MIN_STEPS - 1;
        last < self.end && self.plan.is_recorded(last, self.entries)
    }

    /// Moves the recorded externals into the plan's progress. Returns the first step whose inputs are incomplete.
    fn provide(&mut self, externals: &[External]) -> usize {
        let recorded = (self.progress.next..self.end).take_while(|&s| self.plan.is_recorded(s, self.entries));
        let to = self.progress.next + recorded.count();
        let input = |place: usize| externals.get(place)?.ready();
        let provided = self.plan.provide(&mut self.progress, to, self.numbers.len(), input);
        if provided < to {
            // The preceding unit of work computes the missing input, and runs only when this unit has ended.
            self.end = provided;
        }
        provided
    }
}

/// The predictor: the last plan of the recordings with each beginning.
#[derive(Default)]
pub(crate) struct PlanPredictor {
    by_hash: BTreeMap<u64, Prediction>,
}

struct Prediction {
    /// The last plan.
    plan: Weak<Plan>,
    end: usize,
    /// The number of successive recordings with the same plan.
    agreed: u32,
    /// The number of such recordings before the plan is predicted.
    needed: u32,
}

impl PlanPredictor {
    /// The predicted plan of a recording with this beginning, and the step at which speculative execution ends: 0 for
    /// none.
    fn expected(&self, hash: u64) -> Option<(Arc<Plan>, usize)> {
        let prediction = self.by_hash.get(&hash)?;
        let is_sure = prediction.agreed >= prediction.needed;
        Some((prediction.plan.upgrade().filter(|_| is_sure)?, prediction.end))
    }

    /// Updates the predictor with the plan of a recording, and whether the prediction was wrong.
    fn learn(&mut self, hash: u64, plan: &Arc<Plan>, end: usize, was_wrong: bool) {
        if self.by_hash.len() >= MAX_PREDICTIONS && !self.by_hash.contains_key(&hash) {
            self.by_hash.retain(|_, prediction| prediction.plan.strong_count() > 0);
            if self.by_hash.len() > MAX_PREDICTIONS / 2 {
                self.by_hash.clear();
            }
        }
        let [at_first, at_most] = AGREED;
        let new = || Prediction { plan: Weak::new(), end, agreed: 0, needed: at_first };
        let prediction = self.by_hash.entry(hash).or_insert_with(new);
        if core::ptr::eq(prediction.plan.as_ptr(), Arc::as_ptr(plan)) {
            prediction.agreed = prediction.agreed.saturating_add(1);
        } else {
            prediction.agreed = 0;
            prediction.plan = Arc::downgrade(plan);
        }
        if was_wrong {
            prediction.needed = (2 * prediction.needed).min(at_most);
        }
        prediction.end = end;
    }
}
