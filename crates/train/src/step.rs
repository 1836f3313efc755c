//! One step of training or validation.

use std::panic::Location;

use kiln_ir::{anomaly, profile};
use kiln_nn::{GradientsParams, Module};
use kiln_optim::{Evaluation, Objective, OptimError, Optimizer, StepOutcome, StepReport};
use kiln_tensor::{AnyTensor, AutodiffBackend, Backend, Tensor};

use crate::error::{Result, TrainError, TrainPosition};
use crate::observation::{Observation, StepOutput, below};
use crate::task::Replica;
use crate::trainable::{MODEL, Trainable};

/// A training step: it updates models, and collects the values and inputs of metrics.
pub struct Step<'a> {
    place: TrainPosition,
    options: StepOptions,
    caller: &'static Location<'static>,
    outcome: &'a mut Outcome,
    watch: Watch<'a>,
    /// The group whose gradients are reduced, in data-parallel training.
    replica: Option<&'a Replica>,
}

/// The function that sees the gradients before an update.
pub(crate) type Watch<'a> = &'a mut (dyn FnMut(&mut GradientsEvent<'_>) -> Result<()> + Send);

/// The options of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepOptions {
    /// Whether to read each loss before its update.
    pub(crate) checks_loss: bool,
    /// Whether to look for NaN and infinity in gradients.
    pub(crate) detects_anomalies: bool,
    /// Whether to wait for each update, so that a step without memory fails before its update and can be repeated.
    pub(crate) waits_for_updates: bool,
}

/// The results of a step.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The loss of the model with the default name, for steps that observe no loss.
    pub(crate) loss: Option<Value>,
    pub(crate) observations: Vec<Observation>,
    pub(crate) values: Vec<(String, Value)>,
    pub(crate) learning_rates: Vec<(String, f64)>,
    pub(crate) reports: Vec<(String, StepReport)>,
    pub(crate) skipped: bool,
    /// The refusals of earlier steps that updates of this step reported, with the names of the models.
    pub(crate) refusals: Vec<(String, OptimError)>,
    /// The number of items of all replicas. `loss` is then the mean of theirs. `None` without replicas.
    pub(crate) items_of_replicas: Option<usize>,
}

impl Outcome {
    /// The number of items that were observed so far.
    pub(crate) fn items(&self) -> usize {
        self.observations.iter().map(|observation| observation.num_items).max().unwrap_or(0)
    }
}

/// A number on the host or on a device.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Host(f64),
    Device(AnyTensor),
    /// The mean of numbers with weights.
    Mean(Vec<(Value, f64)>),
}

/// A number that a step logs: an `f64`, or a tensor with one element.
#[derive(Clone, Debug)]
pub struct Loggable(Value);

impl From<f64> for Loggable {
    fn from(number: f64) -> Loggable {
        Loggable(Value::Host(number))
    }
}

impl From<AnyTensor> for Loggable {
    fn from(tensor: AnyTensor) -> Loggable {
        Loggable(Value::Device(below(tensor)))
    }
}

impl<B: Backend, const D: usize> From<Tensor<B, D>> for Loggable {
    fn from(tensor: Tensor<B, D>) -> Loggable {
        Loggable::from(tensor.into_any())
    }
}

impl<'a> Step<'a> {
    pub(crate) fn new(
        place: TrainPosition,
        options: StepOptions,
        caller: &'static Location<'static>,
        outcome: &'a mut Outcome,
        watch: Watch<'a>,
    ) -> Step<'a> {
        Step { place, options, caller, outcome, watch, replica: None }
    }

    /// The step of a replica, which reduces its gradients with the others.
    pub(crate) fn of_replica(self, replica: &'a Replica) -> Step<'a> {
        Step { replica: Some(replica), ..self }
    }

    /// Position, options, caller and watch, from which the steps of replicas are made.
    pub(crate) fn origin(&mut self) -> (TrainPosition, StepOptions, &'static Location<'static>, Watch<'_>) {
        (self.place, self.options, self.caller, &mut *self.watch)
    }

    pub(crate) fn set_outcome(&mut self, outcome: Outcome) {
        *self.outcome = outcome;
    }

    /// Returns the position in training.
    pub fn position(&self) -> TrainPosition {
        self.place
    }

    /// Computes the gradients of a loss and updates a model. Logs the loss: as `loss` for the model with the default name,
    /// and as `NAME loss` for others.
    ///
    /// An error that an update reports of an earlier step, on an engine that computes asynchronously, ends training after this
    /// step, with the position of the earlier one: see [`Learner::fit`](crate::Learner::fit).
    ///
    /// The optimizer accumulates, scales, clips and skips. Call it any number of times in a step, for any models. The
    /// loss has one element. In [data-parallel](crate::DataParallel) training, the gradients are those of the mean loss of
    /// the replicas.
    ///
    /// # Errors
    /// When the loss has several elements or is not finite (if losses are
    /// [checked before the update](crate::Learner::check_loss_before_update)), the optimizer refuses the step, or an op
    /// fails.
    pub fn backward<B, M, const D: usize>(
        &mut self,
        loss: Tensor<B, D>,
        target: &mut Trainable<M>,
    ) -> Result<StepReport>
    where
        B: AutodiffBackend,
        M: Module,
    {
        self.check(&loss)?;
        self.log_loss(target.name(), Loggable::from(loss.clone()));
        let share = self.share(target.model())?;
        let loss = scaled(loss, target.optimizer().loss_scale() * share);
        let gradients = loss.try_backward().map_err(|source| self.failed(source))?;
        // Without the tape the parameters have no other owner, and are updated in place.
        drop(loss);
        let gradients = GradientsParams::from_grads(gradients, target.model());
        self.apply(gradients, target)
    }

    /// Updates a model with gradients that the task computed. They must be multiplied by the optimizer's
    /// [loss scale](kiln_optim::Optimizer::loss_scale). In [data-parallel](crate::DataParallel) training, the model is
    /// updated with the mean of the replicas' gradients.
    ///
    /// # Errors
    /// When the optimizer refuses the step, or an op fails.
    pub fn update<M: Module>(
        &mut self,
        mut gradients: GradientsParams,
        target: &mut Trainable<M>,
    ) -> Result<StepReport> {
        if self.replica.is_some() {
            let share = self.share(target.model())?;
            for (_, gradient) in gradients.iter_mut() {
                let scaled = gradient.clone().mul_scalar(share);
                *gradient = scaled.map_err(|source| self.failed(source))?;
            }
        }
        self.apply(gradients, target)
    }

    /// Updates a model with gradients that are already multiplied by this replica's share.
    fn apply<M: Module>(
        &mut self,
        mut gradients: GradientsParams,
        target: &mut Trainable<M>,
    ) -> Result<StepReport> {
        self.check_gradients(&gradients, target.model())?;
        if let Some(replica) = self.replica {
            let total = replica.sum(gradients, target.model());
            gradients = total.map_err(|source| self.failed(source))?;
        }
        let mut event = GradientsEvent {
            name: target.name(),
            module: target.model(),
            scale: target.optimizer().loss_scale(),
            gradients: &mut gradients,
            is_changed: false,
            outcome: self.outcome,
        };
        (self.watch)(&mut event)?;
        let is_changed = event.is_changed;
        if let Some(replica) = self.replica {
            let shared = replica.share_changes(gradients, is_changed, target.model());
            gradients = shared.map_err(|source| self.failed(source))?;
        }
        let caller = self.caller;
        self.advance(target, |optimizer, model, learning_rate| {
            optimizer.update_from(learning_rate, model, gradients, caller)
        })
    }

    /// Updates a model by an optimizer that evaluates the loss at several points, such as
    /// [`Lbfgs`](kiln_optim::Lbfgs). The closure returns the loss of a model. Logs the first loss, as
    /// [`backward`](Step::backward) does.
    ///
    /// # Errors
    /// When the optimizer refuses the step, or an op fails.
    pub fn minimize<B, M, const D: usize>(
        &mut self,
        target: &mut Trainable<M>,
        loss: impl FnMut(&M) -> Tensor<B, D>,
    ) -> Result<StepReport>
    where
        B: AutodiffBackend,
        M: Module,
    {
        let mut first = None;
        let group = self.replica.map(|replica| (replica, self.outcome.items()));
        let report = self.advance(target, |optimizer, model, learning_rate| {
            let mut closure = Closure { model, loss, scale: optimizer.loss_scale(), first: None, group };
            let report = optimizer.update_with(learning_rate, &mut closure);
            first = closure.first;
            report
        })?;
        if let Some(loss) = first {
            self.log_loss(target.name(), Loggable::from(loss));
        }
        Ok(report)
    }

    /// Updates a model, and logs the learning rate and the report.
    fn advance<M: Module>(
        &mut self,
        target: &mut Trainable<M>,
        update: impl FnOnce(&mut dyn Optimizer, &mut M, f64) -> kiln_optim::Result<StepReport>,
    ) -> Result<StepReport> {
        self.outcome.learning_rates.push((target.name().to_owned(), target.learning_rate()));
        let mut result = target.advance(update);
        if self.options.waits_for_updates && result.is_ok() {
            result = target.finish().and(result);
        }
        let result = result.map_err(|source| TrainError::Optimizer { place: self.place, source });
        let (report, refusal) = result?;
        self.outcome.refusals.extend(refusal.map(|error| (target.name().to_owned(), error)));
        self.add_report(target.name(), &report);
        Ok(report)
    }

    /// Passes the output of the step to the metrics. The loss is logged as `loss`.
    pub fn observe(&mut self, observation: impl Into<Observation>) {
        self.outcome.observations.push(observation.into());
    }

    /// Logs a number: the learner shows it, logs it and averages it over the epoch. It is read from the device one step
    /// later.
    pub fn log(&mut self, name: &str, number: impl Into<Loggable>) {
        self.outcome.values.push((name.to_owned(), number.into().0));
    }

    /// The weight of this replica's loss in the mean of all replicas: 1 without replicas.
    fn share(&self, model: &dyn Module) -> Result<f64> {
        let share = |replica: &Replica| replica.share(self.outcome.items(), model);
        self.replica.map_or(Ok(1.0), share).map_err(|source| self.failed(source))
    }

    fn log_loss(&mut self, model: &str, loss: Loggable) {
        if model == MODEL {
            self.outcome.loss.get_or_insert(loss.0);
        } else {
            self.log(&format!("{model} {LOSS}"), loss);
        }
    }

    fn add_report(&mut self, name: &str, report: &StepReport) {
        self.outcome.skipped |= report.outcome == StepOutcome::SkippedNonFinite;
        self.outcome.reports.push((name.to_owned(), report.clone()));
    }

    /// Reads the loss before the update, if the option is set.
    fn check<B: Backend, const D: usize>(&self, loss: &Tensor<B, D>) -> Result<()> {
        let elements = loss.dims().iter().product::<usize>();
        if elements != 1 {
            return Err(TrainError::LossShape { place: self.place, elements });
        }
        if !self.options.checks_loss {
            return Ok(());
        }
        let loss = read(Value::Device(below(loss.clone().into_any())));
        let loss = loss.map_err(|source| self.failed(source))?;
        if loss.is_finite() {
            return Ok(());
        }
        Err(TrainError::NonFiniteLoss { place: self.place, loss, origin: anomaly::found() })
    }

    /// Looks for NaN and infinity in the gradients, if the option is set.
    fn check_gradients(&self, gradients: &GradientsParams, model: &impl Module) -> Result<()> {
        if !self.options.detects_anomalies {
            return Ok(());
        }
        for (name, parameter) in model.named_parameters() {
            let Some(gradient) = gradients.get(parameter.id) else { continue };
            let data = below(gradient.clone()).into_data().map_err(|source| self.failed(source))?;
            if data.to_vec::<f64>().iter().any(|number| !number.is_finite()) {
                let origin = anomaly::found();
                return Err(TrainError::NonFiniteGradient { place: self.place, parameter: name, origin });
            }
        }
        Ok(())
    }

    fn failed(&self, source: kiln_tensor::Error) -> TrainError {
        TrainError::Tensor { place: self.place, source }
    }
}

/// The gradients of a model before an update, for [callbacks](crate::Callback::gradients).
pub struct GradientsEvent<'a> {
    name: &'a str,
    module: &'a dyn Module,
    scale: f64,
    gradients: &'a mut GradientsParams,
    is_changed: bool,
    outcome: &'a mut Outcome,
}

impl GradientsEvent<'_> {
    /// Returns the name of the model.
    pub fn name(&self) -> &str {
        self.name
    }

    /// Returns the model.
    pub fn module(&self) -> &dyn Module {
        self.module
    }

    /// Returns the loss scale, by which the gradients are multiplied: 1 without mixed precision.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Returns the gradients.
    pub fn gradients(&self) -> &GradientsParams {
        self.gradients
    }

    /// Returns the gradients, to change them.
    pub fn gradients_mut(&mut self) -> &mut GradientsParams {
        self.is_changed = true;
        self.gradients
    }

    /// Logs a number of the step; see [`Step::log`].
    pub fn log(&mut self, name: &str, number: impl Into<Loggable>) {
        self.outcome.values.push((name.to_owned(), number.into().0));
    }
}

impl std::fmt::Debug for Step<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Step")
            .field("place", &self.place)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for GradientsEvent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GradientsEvent").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The name of the loss of a step.
pub(crate) const LOSS: &str = "loss";

/// A validation step: it collects the values and inputs of metrics.
#[derive(Debug)]
pub struct Validation<'a> {
    place: TrainPosition,
    outcome: &'a mut Outcome,
}

impl<'a> Validation<'a> {
    pub(crate) fn new(place: TrainPosition, outcome: &'a mut Outcome) -> Validation<'a> {
        Validation { place, outcome }
    }

    /// Returns the position in training.
    pub fn position(&self) -> TrainPosition {
        self.place
    }

    /// Passes the output of the step to the metrics. The loss is logged as `loss`.
    pub fn observe(&mut self, observation: impl Into<Observation>) {
        self.outcome.observations.push(observation.into());
    }

    /// Logs a number, which is averaged over the validation set, weighted by the number of items.
    pub fn log(&mut self, name: &str, number: impl Into<Loggable>) {
        self.outcome.values.push((name.to_owned(), number.into().0));
    }
}

impl<B: Backend> From<StepOutput<B>> for Observation {
    fn from(output: StepOutput<B>) -> Observation {
        output.into_parts().1
    }
}

/// The loss times the loss scale of an optimizer.
fn scaled<B: Backend, const D: usize>(loss: Tensor<B, D>, scale: f64) -> Tensor<B, D> {
    if scale == 1.0 { loss } else { loss * scale }
}

/// Reads a number. Waits for the device.
pub(crate) fn read(value: Value) -> Result<f64, kiln_tensor::Error> {
    match value {
        Value::Host(number) => Ok(number),
        Value::Device(tensor) => Ok(tensor.into_data()?.to_vec::<f64>().first().copied().unwrap_or(f64::NAN)),
        Value::Mean(numbers) => {
            let total: f64 = numbers.iter().map(|(_, weight)| weight).sum();
            numbers
                .into_iter()
                .try_fold(0.0, |mean, (number, weight)| Ok(mean + read(number)? * (weight / total)))
        }
    }
}

/// An objective of a borrowed model.
struct Closure<'m, M, F> {
    model: &'m mut M,
    loss: F,
    scale: f64,
    first: Option<AnyTensor>,
    /// The replica of the model and the number of its items.
    group: Option<(&'m Replica, usize)>,
}

impl<M: Module, B: AutodiffBackend, const D: usize, F: FnMut(&M) -> Tensor<B, D>> Objective
    for Closure<'_, M, F>
{
    fn module_mut(&mut self) -> &mut dyn Module {
        &mut *self.model
    }

    fn evaluate(&mut self) -> kiln_optim::Result<Evaluation> {
        // Not a part of the optimizer in a profile.
        profile::outside_scopes(|| {
            let loss = (self.loss)(self.model);
            let seen = below(loss.clone().into_any());
            self.first.get_or_insert_with(|| seen.clone());
            let Some((replica, items)) = self.group else {
                let gradients =
                    GradientsParams::from_grads(scaled(loss, self.scale).try_backward()?, self.model);
                return Ok(Evaluation { loss: seen, gradients });
            };
            let share = replica.share(items, self.model)?;
            let gradients = scaled(loss, self.scale * share).try_backward()?;
            let gradients = replica.sum(GradientsParams::from_grads(gradients, self.model), self.model)?;
            Ok(Evaluation { loss: replica.total(seen.mul_scalar(share)?)?, gradients })
        })
    }
}
