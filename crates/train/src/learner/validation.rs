//! Validation.

use kiln_nn::Module;
use kiln_optim::{LearningRate, OptimError, Optimizer};

use super::Learner;
use super::fit::ValidationSets;
use crate::callback::Event;
use crate::error::{Result, TrainError, TrainPosition};
use crate::history::{EpochReport, Scores};
use crate::loader::Loader;
use crate::pass::Pass;
use crate::record::{PassProgress, Record, Split};
use crate::task::{StateVisitor, Task};
use crate::usage::Activity;

impl<T: Task> Learner<T> {
    /// Evaluates the task on named sets, with the metrics for validation.
    ///
    /// # Errors
    /// When a batch cannot be loaded, the task fails or panics, a metric lacks an input, or the device fails. A NaN loss
    /// is not an error.
    pub fn evaluate(&mut self, sets: &[(&str, &dyn Loader<T::ValidBatch>)]) -> Result<Vec<(String, Scores)>> {
        self.validate(sets)
    }

    pub(super) fn validate(
        &mut self,
        sets: &ValidationSets<'_, T::ValidBatch>,
    ) -> Result<Vec<(String, Scores)>> {
        let before = self.stopwatch.enter(Activity::Validation);
        let scores = self.validate_sets(sets);
        self.stopwatch.go_on(before);
        scores
    }

    fn validate_sets(&mut self, sets: &ValidationSets<'_, T::ValidBatch>) -> Result<Vec<(String, Scores)>> {
        self.emit(Event::ValidationStarted)?;
        let place = TrainPosition { validation: true, ..self.place() };
        self.task.start_validation().map_err(|error| error.at(place))?;
        let scores =
            sets.iter().map(|(name, loader)| Ok(((*name).to_owned(), self.validate_set(name, *loader)?)));
        let scores: Result<Vec<(String, Scores)>> = scores.collect();
        self.task.end_validation();
        let ended = self.emit(Event::ValidationEnded);
        let scores = scores?;
        ended?;
        for (name, scores) in &scores {
            self.send_values(Split::Valid(name.clone()), scores, true)?;
        }
        Ok(scores)
    }

    fn validate_set(&mut self, set: &str, loader: &dyn Loader<T::ValidBatch>) -> Result<Scores> {
        let epoch = self.position.epoch;
        let batches = loader.num_batches();
        let Learner { task, renderer, valid_metrics, options, .. } = self;
        let limit = options.max_valid_batches.unwrap_or(u64::MAX);
        let pass = Pass { loader, metrics: valid_metrics, epoch, limit };
        pass.run(
            |batch, validation| task.validate(batch, validation),
            |batch| {
                if let Some(renderer) = renderer {
                    let progress = PassProgress { set: set.to_owned(), epoch, batch, batches };
                    renderer.record(&Record::Progress(progress));
                }
            },
        )
    }

    /// Passes the monitored value of an evaluation to the learning-rate schedules.
    pub(super) fn observe_evaluation(&mut self, report: &EpochReport) -> Result<()> {
        let monitor = &self.options.monitor;
        let Some(value) = monitor.value(report) else {
            let known = self.control.higher_is_better.iter().map(|(name, _)| name.clone()).collect();
            return Err(TrainError::UnknownMetric { name: monitor.name().to_owned(), known });
        };
        let higher_is_better = monitor.higher_is_better(&self.control);
        self.position.best.update(report.epoch, value, higher_is_better, 0.0);
        self.task.state(&mut Observe(value))
    }

    /// Waits until the outcome of all optimizer steps is known.
    ///
    /// # Errors
    /// The first refusal that no call has reported, with the position of its batch.
    pub(super) fn finish_updates(&mut self) -> Result<()> {
        // The last step that was started.
        let place = self.place();
        let (step, batch) = (place.step.saturating_sub(1), place.batch.saturating_sub(1));
        let place = TrainPosition { step, batch, ..place };
        let mut finish = Finish(Vec::new());
        let visited = self.task.state(&mut finish).map_err(|error| error.at(place));
        self.refusals.add(finish.0, place);
        self.refusals.report().and(visited)
    }
}

/// Passes a metric to the schedules.
struct Observe(f64);

impl StateVisitor for Observe {
    fn replica(&mut self, _rank: usize) -> bool {
        true
    }

    fn schedule(&mut self, _name: &str, schedule: &mut dyn LearningRate, step: u64) -> Result<()> {
        schedule.observe(step, self.0);
        Ok(())
    }
}

/// Finishes the steps of the optimizers, and collects their refusals with the names of the models.
struct Finish(Vec<(String, OptimError)>);

impl StateVisitor for Finish {
    fn replica(&mut self, _rank: usize) -> bool {
        true
    }

    fn optimizer(&mut self, name: &str, optimizer: &mut dyn Optimizer, _module: &dyn Module) -> Result<()> {
        while let Err(error) = optimizer.finish() {
            let Some(step) = error.refused_step() else { return Err(error.into()) };
            // All replicas refuse the same step.
            if !self.0.iter().any(|(known, error)| known == name && error.refused_step() == Some(step)) {
                self.0.push((name.to_owned(), error));
            }
        }
        Ok(())
    }
}
