//! The batches of optimizer steps, to attribute the refusal of a step that becomes known later.

use std::collections::{BTreeMap, VecDeque};

use kiln_optim::{OptimError, StepReport};

use crate::error::{Result, TrainError, TrainPosition};

/// The number of steps whose batches are kept: more than an optimizer leaves with an unknown outcome.
const STEPS: u64 = 128;

/// The number of reported batches that are kept.
const REPORTED: usize = 64;

/// The batches of the last steps of each model, and refusals that no call has reported.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    batches: BTreeMap<String, VecDeque<Batch>>,
    found: VecDeque<TrainError>,
    /// Batches whose errors were reported before the optimizer refused their step, of the last steps.
    reported: VecDeque<TrainPosition>,
}

/// The batch of an optimizer step, or of one of its accumulated passes.
#[derive(Debug)]
struct Batch {
    step: u64,
    pass: Option<u64>,
    place: TrainPosition,
}

impl Refusals {
    /// Adds the optimizer steps of a batch, by the names of their models.
    pub(super) fn add_steps(&mut self, reports: &[(String, StepReport)], place: TrainPosition) {
        for (name, StepReport { step, pass, .. }) in reports {
            if !self.batches.contains_key(name) {
                self.batches.insert(name.clone(), VecDeque::new());
            }
            let Some(batches) = self.batches.get_mut(name) else { continue };
            batches.push_back(Batch { step: *step, pass: *pass, place });
            while batches.front().is_some_and(|first| first.step + STEPS < *step) {
                batches.pop_front();
            }
        }
    }

    /// Adds the errors of models' optimizers, each with the position of its own batch: `place` where it is unknown.
    pub(super) fn add(
        &mut self,
        errors: impl IntoIterator<Item = (String, OptimError)>,
        place: TrainPosition,
    ) {
        for (name, source) in errors {
            let place = self.place_of(&name, &source).unwrap_or(place);
            if !self.reported.contains(&place) {
                self.found.push_back(TrainError::Optimizer { place, source });
            }
        }
    }

    /// Notes that the error of a batch is reported. A step of accumulated gradients may be refused because of it later.
    pub(super) fn note_reported(&mut self, place: TrainPosition) {
        self.reported.push_back(place);
        if self.reported.len() > REPORTED {
            self.reported.pop_front();
        }
    }

    /// Reports the first refusal.
    ///
    /// # Errors
    /// Its error, which is then forgotten.
    pub(super) fn report(&mut self) -> Result<()> {
        self.found.pop_front().map_or(Ok(()), Err)
    }

    /// The error to report after a batch failed: that of an earlier one comes first. With accumulated gradients, the pass in
    /// error may be of an earlier batch than the call that refused the step. `None` if that one was reported.
    pub(super) fn in_order(&mut self, mut error: TrainError) -> Option<TrainError> {
        if let TrainError::Optimizer { place, source } = &mut error
            && matches!(source, OptimError::StepRefused { pass: Some(_), .. })
            && let Some(found) = self.batches.keys().find_map(|name| self.place_of(name, source))
        {
            if self.reported.contains(&found) {
                return self.found.pop_front();
            }
            *place = found;
        }
        match self.found.pop_front() {
            Some(earlier) if error.is_of_batch() => {
                self.found.push_back(error);
                Some(earlier)
            }
            // The batch is not done, so that its error comes again.
            Some(earlier) => Some(earlier),
            None => Some(error),
        }
    }

    /// The batch of a refused step, or of its pass in error, among the batches whose updates returned.
    fn place_of(&self, name: &str, error: &OptimError) -> Option<TrainPosition> {
        let OptimError::StepRefused { step, pass, .. } = error else { return None };
        let mut batches = self.batches.get(name)?.iter().rev().filter(|batch| batch.step == *step);
        let batch = match pass {
            Some(_) => batches.find(|batch| batch.pass == *pass),
            None => batches.next(),
        };
        batch.map(|batch| batch.place)
    }
}
