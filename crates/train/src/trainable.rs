//! A model with its optimizer and learning-rate schedule.

use std::fmt;
use std::ops::Deref;

use kiln_ir::profile;
use kiln_nn::Module;
use kiln_optim::{LearningRate, OptimError, Optimizer, StepOutcome, StepReport};

use crate::error::Result;
use crate::task::StateVisitor;

/// The name of the only model of a task.
pub(crate) const MODEL: &str = "model";

/// A model with the optimizer and the learning-rate schedule that train it.
///
/// A [`Task`](crate::Task) owns one for each model that it trains. It dereferences to the model. The optimizer owns
/// accumulation, loss scaling and clipping of gradients; see
/// [`GradientPipeline`](kiln_optim::GradientPipeline).
pub struct Trainable<M> {
    name: String,
    model: M,
    optimizer: Box<dyn Optimizer>,
    learning_rate: Box<dyn LearningRate>,
    /// The number of updates, including skipped ones. Accumulated passes do not count.
    updates: u64,
    /// The learning rate that replaces that of the schedule, while one is searched.
    fixed_learning_rate: Option<f64>,
}

impl<M: Module> Trainable<M> {
    /// Returns a model with an optimizer and a learning rate: a constant `f64` or a
    /// [schedule](kiln_optim::lr_scheduler) over the updates of the model.
    pub fn new(
        model: M,
        optimizer: impl Optimizer + 'static,
        learning_rate: impl LearningRate + 'static,
    ) -> Trainable<M> {
        Trainable {
            name: MODEL.to_owned(),
            model,
            optimizer: Box::new(optimizer),
            learning_rate: Box::new(learning_rate),
            updates: 0,
            fixed_learning_rate: None,
        }
    }

    kiln_ir::setters! {
        /// Sets the name, for logs and checkpoints: lower-case letters, digits and `_`. Default: `model`. A task with several
        /// models names each.
        named(name: impl Into<String>) => name = name.into();
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// Returns the model, to change it, such as to freeze parameters.
    pub fn model_mut(&mut self) -> &mut M {
        &mut self.model
    }

    /// Returns the model and drops the optimizer.
    pub fn into_model(self) -> M {
        self.model
    }

    /// Returns the optimizer.
    pub fn optimizer(&self) -> &dyn Optimizer {
        &*self.optimizer
    }

    /// Replaces the optimizer and starts from its initial state.
    pub fn set_optimizer(&mut self, optimizer: impl Optimizer + 'static) {
        self.optimizer = Box::new(optimizer);
    }

    /// Returns the learning rate of the next update.
    pub fn learning_rate(&self) -> f64 {
        self.fixed_learning_rate.unwrap_or_else(|| self.learning_rate.at(self.updates))
    }

    /// Replaces the learning-rate schedule. The number of updates does not change.
    pub fn set_learning_rate(&mut self, learning_rate: impl LearningRate + 'static) {
        self.learning_rate = Box::new(learning_rate);
    }

    /// Returns the number of updates since training began, including those that were skipped because gradients were
    /// not finite, and those whose refusal was found after the call.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Passes model, optimizer and schedule to a visitor, for [`Task::state`](crate::Task::state).
    ///
    /// # Errors
    /// The error of the visitor.
    pub fn state(&mut self, visitor: &mut dyn StateVisitor) -> Result<()> {
        let Trainable { name, model, optimizer, learning_rate, updates, fixed_learning_rate } = self;
        visitor.fixed_learning_rate(name, fixed_learning_rate);
        visitor.module(name, model)?;
        visitor.optimizer(name, &mut **optimizer, model)?;
        visitor.value(&format!("{name}.updates"), updates)?;
        visitor.schedule(name, &mut **learning_rate, *updates)
    }

    /// Updates the model by one step with the learning rate and the momentum of the schedule. The closure calls the
    /// optimizer. Every update passes here. Also returns the refusal of an earlier step, if the update reported one.
    ///
    /// # Errors
    /// See [`Optimizer::update`]. The step is then not done.
    pub(crate) fn advance(
        &mut self,
        update: impl FnOnce(&mut dyn Optimizer, &mut M, f64) -> kiln_optim::Result<StepReport>,
    ) -> kiln_optim::Result<(StepReport, Option<OptimError>)> {
        let learning_rate = self.learning_rate();
        if let Some(momentum) = self.learning_rate.momentum_at(self.updates) {
            self.optimizer.set_momentum(Some(momentum))?;
        }
        let Trainable { name, model, optimizer, .. } = self;
        let before = optimizer.last_report().map(place_of);
        let updated = profile::optimizer(name, || update(&mut **optimizer, model, learning_rate));
        let (report, refusal) = match (updated, optimizer.last_report()) {
            (Ok(report), _) => (report, None),
            (Err(error), Some(report)) if is_earlier(&error, report) && before != Some(place_of(report)) => {
                (report.clone(), Some(error))
            }
            (Err(error), _) => return Err(error),
        };
        match report.outcome {
            StepOutcome::Applied | StepOutcome::SkippedNonFinite => self.updates += 1,
            StepOutcome::Accumulated => {}
        }
        Ok((report, refusal))
    }

    /// Waits until the outcome of the last update is known.
    ///
    /// # Errors
    /// See [`Optimizer::finish`].
    pub(crate) fn finish(&mut self) -> kiln_optim::Result<()> {
        self.optimizer.finish()
    }
}

/// The step and the pass of a report.
fn place_of(report: &StepReport) -> (u64, Option<u64>) {
    (report.step, report.pass)
}

/// Whether an error is of a step before that of the report.
fn is_earlier(error: &OptimError, report: &StepReport) -> bool {
    error.refused_step().is_some_and(|step| step < report.step)
}

impl<M> Deref for Trainable<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.model
    }
}

impl<M: fmt::Debug> fmt::Debug for Trainable<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trainable { name, model, optimizer, learning_rate, updates, fixed_learning_rate: _ } = self;
        f.debug_struct("Trainable")
            .field("name", name)
            .field("model", model)
            .field("optimizer", optimizer)
            .field("learning_rate", learning_rate)
            .field("updates", updates)
            .finish()
    }
}
