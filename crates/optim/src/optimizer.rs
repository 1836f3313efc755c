//! The optimizer trait.

use crate::error::{Result, no_momentum};
use crate::objective::Bound;
use crate::{Evaluation, Objective, OptimizerState, StepReport};
use core::fmt::Debug;
use core::panic::Location;
use kiln_nn::{GradientsParams, Module};

/// An optimizer: updates the parameters of modules from their gradients.
///
/// Call [`step`](Optimizer::step) in training loops. The other methods are object-safe.
pub trait Optimizer: Debug + Send {
    /// Returns the module after one step. Does not wait for the device.
    ///
    /// Only trainable parameters with a gradient change; gradients of other parameters are ignored. A gradient on
    /// another device is moved to its parameter first, which waits for that device.
    /// [`last_report`](Optimizer::last_report) returns the report of the step.
    ///
    /// # Panics
    /// With the error of [`update`](Optimizer::update). The module is then lost; `update` keeps it.
    #[must_use]
    #[track_caller]
    fn step<M: Module>(&mut self, learning_rate: f64, mut module: M, gradients: GradientsParams) -> M
    where
        Self: Sized,
    {
        match self.update_from(learning_rate, &mut module, gradients, Location::caller()) {
            Ok(_) => module,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the module after one step of an optimizer that evaluates the loss at several points, such as
    /// [`Lbfgs`](crate::Lbfgs). The closure returns loss and gradients of the module. Other optimizers call it once.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{GradientsParams, Linear, LinearConfig};
    /// use kiln_optim::{LbfgsConfig, LineSearch, Optimizer};
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let mut model: Linear<Autodiff<Flex>> = LinearConfig::new(2, 1).init(&Default::default());
    /// let mut optimizer = LbfgsConfig::new().with_line_search(LineSearch::StrongWolfe).init();
    /// for _ in 0..5 {
    ///     model = optimizer.step_with(1.0, model, |model| {
    ///         let loss = (model.forward(Tensor::from([[1.0, 2.0], [3.0, -1.0]])) - 5).square().mean();
    ///         let gradients = GradientsParams::from_grads(loss.backward(), model);
    ///         (loss, gradients)
    ///     });
    /// }
    /// let output = model.forward(Tensor::from([[1.0, 2.0]]));
    /// assert!((output.into_scalar::<f32>() - 5.0).abs() < 1e-3);
    /// ```
    ///
    /// # Panics
    /// With the error of [`update_with`](Optimizer::update_with).
    #[must_use]
    #[track_caller]
    fn step_with<M: Module, E: Into<Evaluation>>(
        &mut self,
        learning_rate: f64,
        module: M,
        mut closure: impl FnMut(&M) -> E,
    ) -> M
    where
        Self: Sized,
    {
        let mut bound = Bound { module, evaluate: |module: &M| closure(module).into() };
        match self.update_with(learning_rate, &mut bound) {
            Ok(_) => bound.module,
            Err(error) => panic!("{error}"),
        }
    }

    /// Updates the module in place by one step, and returns errors where [`step`](Optimizer::step) panics.
    ///
    /// If a gradient or parameter is in error, for instance through a label out of range, the step changes neither
    /// parameters nor the optimizer's state. This holds for each device as a whole.
    ///
    /// **Order of errors.** An engine that knows the error returns it from this call. On asynchronous engines the call does
    /// not wait, and a later call returns the error: [`StepRefused`](crate::OptimError::StepRefused), with the index and the
    /// source line of the step that it belongs to. The later call does its own step first, so that an error never costs
    /// another batch; [`last_report`](Optimizer::last_report) is then the report of its own step. Each refused step is
    /// reported once, in the order of the steps, one by each call. [`finish`](Optimizer::finish) and
    /// [`state`](Optimizer::state) wait, and report a step that no call has reported.
    ///
    /// With gradient accumulation a step is the mean of all its passes: a pass in error refuses the step with all of them. The
    /// error names the pass.
    ///
    /// # Errors
    /// * The learning rate is negative or not finite.
    /// * A gradient has another type than its parameter.
    /// * A gradient or parameter is in error. An earlier step was in error: this step is then done.
    /// * An op fails. Some parameters may then have changed; in all other cases the module is unchanged.
    #[track_caller]
    fn update(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
    ) -> Result<StepReport>;

    /// Updates the module as [`update`](Optimizer::update) does, with an explicit call location for errors: for
    /// training loops in libraries.
    ///
    /// # Errors
    /// See [`update`](Optimizer::update).
    fn update_from(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
        caller: &'static Location<'static>,
    ) -> Result<StepReport> {
        let _ = caller;
        self.update(learning_rate, module, gradients)
    }

    /// Updates the module of an objective by one step; see [`step_with`](Optimizer::step_with). Default: evaluates the
    /// objective once and calls [`update`](Optimizer::update).
    ///
    /// # Errors
    /// See [`update`](Optimizer::update).
    #[track_caller]
    fn update_with(&mut self, learning_rate: f64, objective: &mut dyn Objective) -> Result<StepReport> {
        let gradients = objective.evaluate()?.gradients;
        self.update_from(learning_rate, objective.module_mut(), gradients, Location::caller())
    }

    /// Returns the report of the last step that was done. Default: none.
    fn last_report(&self) -> Option<&StepReport> {
        None
    }

    /// Returns the factor by which the loss must be multiplied before the backward pass. Default: 1.
    fn loss_scale(&self) -> f64 {
        1.0
    }

    /// Sets the momentum of the steps that follow, in place of that of the update rules: `momentum` of
    /// [`Sgd`](crate::Sgd) and [`RmsProp`](crate::RmsProp), `beta_1` of [`Adam`](crate::Adam), [`AdamW`](crate::AdamW),
    /// [`Adamax`](crate::Adamax), [`NAdam`](crate::NAdam) and [`RAdam`](crate::RAdam). `None` restores that of the rules.
    /// It is for schedules that have a [momentum](crate::LearningRate::momentum_at), and not a part of the state.
    ///
    /// # Errors
    /// When the momentum is not in `[0, 1)`, or an update rule has no momentum. Default: always, except for `None`.
    fn set_momentum(&mut self, momentum: Option<f64>) -> Result<()> {
        momentum.map_or(Ok(()), |momentum| Err(no_momentum("optimizer", momentum)))
    }

    /// Replaces the parameters by those for evaluation, where the optimizer has others than for training:
    /// [`ScheduleFreeAdamW`](crate::ScheduleFreeAdamW). Default: does nothing.
    ///
    /// # Errors
    /// When an op fails, or a previous step failed.
    fn enter_eval(&self, module: &mut dyn Module) -> Result<()> {
        let _ = module;
        Ok(())
    }

    /// Replaces the parameters for evaluation by those for training: the inverse of
    /// [`enter_eval`](Optimizer::enter_eval), up to rounding.
    ///
    /// # Errors
    /// See [`enter_eval`](Optimizer::enter_eval).
    fn enter_train(&self, module: &mut dyn Module) -> Result<()> {
        let _ = module;
        Ok(())
    }

    /// Returns the module with the parameters for evaluation; see [`enter_eval`](Optimizer::enter_eval). Pass a clone,
    /// and continue training with the original.
    ///
    /// # Panics
    /// With the error of `enter_eval`.
    #[must_use]
    #[track_caller]
    fn eval_model<M: Module>(&self, mut module: M) -> M
    where
        Self: Sized,
    {
        match self.enter_eval(&mut module) {
            Ok(()) => module,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the module with the parameters for training; see [`enter_train`](Optimizer::enter_train).
    ///
    /// # Panics
    /// With the error of `enter_train`.
    #[must_use]
    #[track_caller]
    fn train_model<M: Module>(&self, mut module: M) -> M
    where
        Self: Sized,
    {
        match self.enter_train(&mut module) {
            Ok(()) => module,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits until the outcome of all steps is known. Call it after the last step.
    ///
    /// # Errors
    /// The error of the first step that was refused and not reported. The next call reports the one after it.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns the optimizer state of a module's parameters. Waits until the outcome of all steps is known. The tensors of
    /// parameters stay on their devices, until the state is [read](OptimizerState::into_tensors).
    ///
    /// # Errors
    /// When the device failed, or a step was refused that no other call has reported.
    fn state(&self, module: &dyn Module) -> Result<OptimizerState>;

    /// Replaces the optimizer state. With the same options as when it was saved, training continues bit for bit.
    ///
    /// # Errors
    /// When the state belongs to another optimizer or does not match the module. The optimizer is then unchanged.
    fn load_state(&mut self, state: OptimizerState, module: &dyn Module) -> Result<()>;
}

impl<O: Optimizer + ?Sized> Optimizer for alloc::boxed::Box<O> {
    #[track_caller]
    fn update(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
    ) -> Result<StepReport> {
        (**self).update_from(learning_rate, module, gradients, Location::caller())
    }

    fn update_from(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
        caller: &'static Location<'static>,
    ) -> Result<StepReport> {
        (**self).update_from(learning_rate, module, gradients, caller)
    }

    #[track_caller]
    fn update_with(&mut self, learning_rate: f64, objective: &mut dyn Objective) -> Result<StepReport> {
        (**self).update_with(learning_rate, objective)
    }

    fn last_report(&self) -> Option<&StepReport> {
        (**self).last_report()
    }

    fn loss_scale(&self) -> f64 {
        (**self).loss_scale()
    }

    fn set_momentum(&mut self, momentum: Option<f64>) -> Result<()> {
        (**self).set_momentum(momentum)
    }

    fn enter_eval(&self, module: &mut dyn Module) -> Result<()> {
        (**self).enter_eval(module)
    }

    fn enter_train(&self, module: &mut dyn Module) -> Result<()> {
        (**self).enter_train(module)
    }

    fn finish(&mut self) -> Result<()> {
        (**self).finish()
    }

    fn state(&self, module: &dyn Module) -> Result<OptimizerState> {
        (**self).state(module)
    }

    fn load_state(&mut self, state: OptimizerState, module: &dyn Module) -> Result<()> {
        (**self).load_state(state, module)
    }
}
