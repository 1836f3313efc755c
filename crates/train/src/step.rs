//! One step of training or validation.

use std::panic::Location;

use kiln_nn::{GradientsParams, Module};
use kiln_optim::{Evaluation, Objective, StepOutcome, StepReport};
use kiln_tensor::{AnyTensor, AutodiffBackend, Backend, Tensor};

use crate::error::{Result, TrainError, TrainPosition};
use crate::observation::{Observation, StepOutput, below};
use crate::trainable::{MODEL, Trainable};

/// A training step: it updates models, and collects the values and inputs of metrics.
#[derive(Debug)]
pub struct Step<'a> {
    place: TrainPosition,
    options: StepOptions,
    caller: &'static Location<'static>,
    outcome: &'a mut Outcome,
}

/// The options of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepOptions {
    /// Whether to read each loss before its update.
    pub(crate) checks_loss: bool,
    /// Whether to look for NaN and infinity in gradients.
    pub(crate) detects_anomalies: bool,
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
}

/// A number on the host or on a device.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Host(f64),
    Device(AnyTensor),
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
    ) -> Step<'a> {
        Step { place, options, caller, outcome }
    }

    /// Returns the position in training.
    pub fn position(&self) -> TrainPosition {
        self.place
    }

    /// Computes the gradients of a loss and updates a model. Logs the loss: as `loss` for the model with the default name,
    /// and as `NAME loss` for others.
    ///
    /// The optimizer accumulates, scales, clips and skips. Call it any number of times in a step, for any models. The
    /// loss has one element.
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
        let loss = scaled(loss, target.optimizer().loss_scale());
        let gradients = loss.try_backward().map_err(|source| self.failed(source))?;
        // Without the tape the parameters have no other owner, and are updated in place.
        drop(loss);
        let gradients = GradientsParams::from_grads(gradients, target.model());
        self.update(gradients, target)
    }

    /// Updates a model with gradients that the task computed. They must be multiplied by the optimizer's
    /// [loss scale](kiln_optim::Optimizer::loss_scale).
    ///
    /// # Errors
    /// When the optimizer refuses the step, or an op fails.
    pub fn update<M: Module>(
        &mut self,
        gradients: GradientsParams,
        target: &mut Trainable<M>,
    ) -> Result<StepReport> {
        self.check_gradients(&gradients, target.model())?;
        self.outcome.learning_rates.push((target.name().to_owned(), target.learning_rate()));
        let report = target.update(gradients, self.caller);
        let report = report.map_err(|source| TrainError::Optimizer { place: self.place, source })?;
        self.add_report(target.name(), &report);
        Ok(report)
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
        let learning_rate = target.learning_rate();
        self.outcome.learning_rates.push((target.name().to_owned(), learning_rate));
        let (model, optimizer) = target.parts_mut();
        let scale = optimizer.loss_scale();
        let mut closure = Closure { model, loss, scale, first: None };
        let report = optimizer.update_with(learning_rate, &mut closure);
        let first = closure.first.take();
        let report = report.map_err(|source| TrainError::Optimizer { place: self.place, source })?;
        target.count(&report);
        if let Some(loss) = first {
            self.log_loss(target.name(), Loggable::from(loss));
        }
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
        if loss.is_finite() { Ok(()) } else { Err(TrainError::NonFiniteLoss { place: self.place, loss }) }
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
                return Err(TrainError::NonFiniteGradient { place: self.place, parameter: name });
            }
        }
        Ok(())
    }

    fn failed(&self, source: kiln_tensor::Error) -> TrainError {
        TrainError::Tensor { place: self.place, source }
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
    }
}

/// An objective of a borrowed model.
struct Closure<'m, M, F> {
    model: &'m mut M,
    loss: F,
    scale: f64,
    first: Option<AnyTensor>,
}

impl<M: Module, B: AutodiffBackend, const D: usize, F: FnMut(&M) -> Tensor<B, D>> Objective
    for Closure<'_, M, F>
{
    fn module_mut(&mut self) -> &mut dyn Module {
        &mut *self.model
    }

    fn evaluate(&mut self) -> kiln_optim::Result<Evaluation> {
        let loss = (self.loss)(self.model);
        let seen = below(loss.clone().into_any());
        self.first.get_or_insert_with(|| seen.clone());
        let gradients = GradientsParams::from_grads(scaled(loss, self.scale).try_backward()?, self.model);
        Ok(Evaluation { loss: seen, gradients })
    }
}
