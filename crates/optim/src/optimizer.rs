//! The optimizer trait, and the optimizer that updates each parameter separately.

use crate::error::{OptimError, Result, not_negative};
use crate::guard::{Guard, Prepared, Ready, select};
use crate::{GradientClipping, OptimizerState, ParameterGroup, ParameterState, StepOptions};
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::panic::Location;
use kiln_ir::Binary;
use kiln_nn::{GradientsParams, Module, ParamId, Parameter, Path, Visitor, VisitorMut};
use kiln_tensor::{AnyTensor, TensorType};

/// An optimizer: updates the parameters of modules from their gradients.
///
/// Call [`step`](Optimizer::step) in training loops. The other methods are object-safe.
pub trait Optimizer: Debug + Send {
    /// Returns the module after one step. Does not wait for the device.
    ///
    /// Only trainable parameters with a gradient change; gradients of other parameters are ignored. A gradient on
    /// another device is moved to its parameter first, which waits for that device.
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
            Ok(()) => module,
            Err(error) => panic!("{error}"),
        }
    }

    /// Updates the module in place by one step, and returns errors where [`step`](Optimizer::step) panics.
    ///
    /// If a gradient or parameter is in error, for instance through a label out of range, the step changes neither
    /// parameters nor the optimizer's state. This holds for each device as a whole. Synchronous engines return the
    /// error from this call. On asynchronous engines the call does not wait: a call one or two steps later returns the
    /// error and does no step itself. [`finish`](Optimizer::finish) and [`state`](Optimizer::state) return it too.
    ///
    /// # Errors
    /// * The learning rate is negative or not finite.
    /// * A gradient has another type than its parameter.
    /// * A gradient or parameter is in error, or a previous step failed.
    /// * An op fails. Some parameters may then have changed; in all other cases the module is unchanged.
    #[track_caller]
    fn update(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
    ) -> Result<()>;

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
    ) -> Result<()> {
        let _ = caller;
        self.update(learning_rate, module, gradients)
    }

    /// Waits until the outcome of all steps is known. Call it after the last step.
    ///
    /// # Errors
    /// The error of a step that was refused. The next call does not report it again.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns the optimizer state of a module's parameters. Waits for the device.
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
    ) -> Result<()> {
        (**self).update_from(learning_rate, module, gradients, Location::caller())
    }

    fn update_from(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
        caller: &'static Location<'static>,
    ) -> Result<()> {
        (**self).update_from(learning_rate, module, gradients, caller)
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

/// The update rule of one parameter: the core of an optimizer.
///
/// ```
/// use kiln_ir::{Binary, Unary};
/// use kiln_optim::{ParameterState, PerParameter, Result, StepOptions, Update, UpdateRule};
/// use kiln_tensor::AnyTensor;
///
/// /// Steps of the same size for every element: `p -= lr sign(g)`.
/// #[derive(Debug)]
/// struct SignSgd;
///
/// impl UpdateRule for SignSgd {
///     fn name(&self) -> &'static str {
///         "sign_sgd"
///     }
///
///     fn slots(&self) -> &'static [&'static str] {
///         &[]
///     }
///
///     fn update(
///         &self,
///         _value: &AnyTensor,
///         gradient: AnyTensor,
///         _state: &mut ParameterState,
///         options: StepOptions,
///     ) -> Result<Update> {
///         let step = gradient.unary(Unary::Sign)?.binary_scalar(Binary::Mul, options.learning_rate)?;
///         Ok(Update { keep: 1.0, step })
///     }
/// }
///
/// let optimizer = PerParameter::new(SignSgd);
/// ```
pub trait UpdateRule: Debug + Send {
    /// Returns the name of the optimizer, for messages and states.
    fn name(&self) -> &'static str;

    /// Returns the names of the tensors that the rule stores per parameter: identifiers without dots, and not `step`.
    fn slots(&self) -> &'static [&'static str];

    /// Returns the type of a stored tensor, to check loaded states. Default: the parameter's type.
    fn slot_type(&self, _slot: &str, parameter: TensorType) -> TensorType {
        parameter
    }

    /// Returns the weight decay of parameters whose group sets none. Default: 0.
    fn weight_decay(&self) -> f64 {
        0.0
    }

    /// Computes the update of a parameter.
    ///
    /// Value, gradient and state are on one device, below automatic differentiation; value and gradient have the same
    /// type. `state` already counts this step. Clones of `value` must not outlive the call, or the new value cannot
    /// reuse its memory.
    ///
    /// # Errors
    /// When an op fails.
    fn update(
        &self,
        value: &AnyTensor,
        gradient: AnyTensor,
        state: &mut ParameterState,
        options: StepOptions,
    ) -> Result<Update>;
}

/// The update of a parameter: the new value is `keep · value - step`.
#[derive(Clone, Debug)]
pub struct Update {
    /// The factor of the old value: 1 without decoupled weight decay.
    pub keep: f64,
    /// The subtracted tensor. It has the parameter's type.
    pub step: AnyTensor,
}

/// An optimizer that applies an [`UpdateRule`] to each parameter separately and keeps a state for each.
#[derive(Clone, Debug)]
pub struct PerParameter<R> {
    rule: R,
    groups: Vec<ParameterGroup>,
    clipping: Option<GradientClipping>,
    states: BTreeMap<ParamId, ParameterState>,
    guard: Guard,
}

impl<R: UpdateRule> PerParameter<R> {
    /// Returns an optimizer without parameter groups and clipping.
    pub fn new(rule: R) -> PerParameter<R> {
        PerParameter {
            rule,
            groups: Vec::new(),
            clipping: None,
            states: BTreeMap::new(),
            guard: Guard::default(),
        }
    }

    /// Adds a parameter group. If several groups contain a parameter, the first one added applies.
    ///
    /// # Errors
    /// When an option of the group is negative or not finite.
    pub fn with_group(mut self, group: ParameterGroup) -> Result<PerParameter<R>> {
        group.check(self.rule.name())?;
        self.groups.push(group);
        Ok(self)
    }

    /// Sets gradient clipping before the update; `None` disables it.
    ///
    /// # Errors
    /// When the limit is not finite or not greater than 0.
    pub fn with_grad_clipping(
        mut self,
        clipping: impl Into<Option<GradientClipping>>,
    ) -> Result<PerParameter<R>> {
        let clipping = clipping.into();
        if let Some(clipping) = clipping {
            clipping.check(self.rule.name())?;
        }
        self.clipping = clipping;
        Ok(self)
    }

    /// Returns the update rule.
    pub fn rule(&self) -> &R {
        &self.rule
    }
}

impl<R: UpdateRule> Optimizer for PerParameter<R> {
    #[track_caller]
    fn update(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
    ) -> Result<()> {
        self.update_from(learning_rate, module, gradients, Location::caller())
    }

    fn update_from(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        mut gradients: GradientsParams,
        caller: &'static Location<'static>,
    ) -> Result<()> {
        let name = self.rule.name();
        not_negative(name, "the learning rate", learning_rate)?;
        check_gradients(name, module, &gradients)?;
        self.guard.report(false, &mut self.states)?;
        if let Some(clipping) = self.clipping {
            clipping.apply(&mut gradients)?;
        }
        let id = self.guard.begin(name, caller);
        let Prepared { gradients, stacks } = self.guard.prepare(id, module, gradients)?;
        let options = StepOptions { learning_rate, weight_decay: self.rule.weight_decay() };
        let mut step = Step { optimizer: self, options, gradients, result: Ok(()) };
        module.visit_mut(&mut Path::new(), &mut step);
        let result = step.result;
        for stack in stacks {
            stack.engine().submit();
        }
        result
    }

    fn finish(&mut self) -> Result<()> {
        self.guard.report(true, &mut self.states)
    }

    fn state(&self, module: &dyn Module) -> Result<OptimizerState> {
        self.guard.check()?;
        OptimizerState::collect(self.rule.name(), &self.states, module)
    }

    fn load_state(&mut self, state: OptimizerState, module: &dyn Module) -> Result<()> {
        self.states = state.distribute(&self.rule, module)?;
        self.guard.clear();
        Ok(())
    }
}

/// One step over the parameters of a module.
struct Step<'a, R> {
    optimizer: &'a mut PerParameter<R>,
    options: StepOptions,
    gradients: BTreeMap<ParamId, Ready>,
    result: Result<()>,
}

impl<R: UpdateRule> VisitorMut for Step<'_, R> {
    fn parameter(&mut self, path: &Path, mut parameter: Parameter) -> Parameter {
        if self.result.is_err() || !parameter.is_trainable() {
            return parameter;
        }
        let Some(Ready { gradient, ok }) = self.gradients.remove(&parameter.id) else { return parameter };
        match self.change(path, &parameter, gradient, ok.as_ref()) {
            Ok(update) => parameter.value = applied(parameter.value, update, ok.as_ref()),
            Err(error) => self.result = Err(error),
        }
        parameter
    }
}

impl<R: UpdateRule> Step<'_, R> {
    fn change(
        &mut self,
        path: &Path,
        parameter: &Parameter,
        gradient: AnyTensor,
        ok: Option<&AnyTensor>,
    ) -> Result<Update> {
        let PerParameter { rule, groups, states, .. } = &mut *self.optimizer;
        let value = &parameter.value;
        let state = states.entry(parameter.id).or_default();
        state.begin_step(value.stack())?;
        let before = ok.map(|_| state.clone());
        let update = rule.update(value, gradient, state, self.options.of(path.as_str(), groups))?;
        if let (Some(ok), Some(before)) = (ok, before) {
            state.keep_unless(ok, before)?;
        }
        if update.step.ty() != value.ty() {
            return Err(OptimError::StepType {
                optimizer: rule.name(),
                parameter: path.to_string(),
                expected: (*value.ty()).into(),
                found: (*update.step.ty()).into(),
            });
        }
        Ok(Update { step: update.step.to_stack(value.stack())?, ..update })
    }
}

/// Computes `keep · value - step`. Both have one float type and are on one stack, so no op can fail. Where the flag is
/// false, returns the old value.
fn applied(value: AnyTensor, update: Update, ok: Option<&AnyTensor>) -> AnyTensor {
    let before = ok.map(|_| value.clone());
    let keep = if update.keep == 1.0 { Ok(value) } else { value.binary_scalar(Binary::Mul, update.keep) };
    let new = keep.and_then(|value| value.sub(update.step)).map_err(OptimError::from);
    let new = match ok {
        Some(ok) => new.and_then(|new| select(ok, new, before)),
        None => new,
    };
    match new {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// Rejects gradients of the wrong type before anything changes.
fn check_gradients(optimizer: &'static str, module: &dyn Module, gradients: &GradientsParams) -> Result<()> {
    let mut check = GradientCheck { optimizer, gradients, result: Ok(()) };
    module.visit(&mut Path::new(), &mut check);
    check.result
}

struct GradientCheck<'a> {
    optimizer: &'static str,
    gradients: &'a GradientsParams,
    result: Result<()>,
}

impl Visitor for GradientCheck<'_> {
    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        let Some(gradient) = self.gradients.get(parameter.id) else { return };
        let (expected, found) = (*parameter.value.ty(), *gradient.ty());
        if self.result.is_ok() && parameter.is_trainable() && expected != found {
            self.result = Err(OptimError::GradientType {
                optimizer: self.optimizer,
                parameter: path.to_string(),
                expected: expected.into(),
                found: found.into(),
            });
        }
    }
}
