//! The optimizer trait, and the optimizer that treats each parameter on its own.

use crate::error::{OptimError, Result, not_negative};
use crate::{GradientClipping, OptimizerState, ParameterGroup, ParameterState, StepOptions};
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt::Debug;
use kiln_ir::Binary;
use kiln_nn::{GradientsParams, Module, ParamId, Parameter, Path, Visitor, VisitorMut};
use kiln_tensor::{AnyTensor, Stack, TensorType};

/// Changes the parameters of modules by their gradients.
///
/// [`step`](Optimizer::step) is the form for training loops. The other methods are object-safe.
pub trait Optimizer: Debug + Send {
    /// The module after one step. Does not wait for the device.
    ///
    /// Only trainable parameters with a gradient change; gradients of other modules' parameters are not used. A
    /// gradient on another device is moved to its parameter first, which waits for that device.
    ///
    /// # Panics
    /// With the error of [`update`](Optimizer::update).
    #[must_use]
    #[track_caller]
    fn step<M: Module>(&mut self, learning_rate: f64, mut module: M, gradients: GradientsParams) -> M
    where
        Self: Sized,
    {
        match self.update(learning_rate, &mut module, gradients) {
            Ok(()) => module,
            Err(error) => panic!("{error}"),
        }
    }

    /// Like [`step`](Optimizer::step), in place and with errors instead of panics.
    ///
    /// # Errors
    /// When the learning rate is negative or not finite, or a gradient is not of its parameter's type; the module
    /// is then as it was. When an op fails, some parameters may have changed.
    fn update(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
    ) -> Result<()>;

    /// What the optimizer remembers of a module's parameters. Waits for the device.
    ///
    /// # Errors
    /// When the device failed.
    fn state(&self, module: &dyn Module) -> Result<OptimizerState>;

    /// Replaces what the optimizer remembers. Training then goes on bit for bit as it would have, where the state
    /// was taken with the same options.
    ///
    /// # Errors
    /// When the state is of another optimizer, or does not fit the module; the optimizer is then as it was.
    fn load_state(&mut self, state: OptimizerState, module: &dyn Module) -> Result<()>;
}

impl<O: Optimizer + ?Sized> Optimizer for alloc::boxed::Box<O> {
    fn update(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
    ) -> Result<()> {
        (**self).update(learning_rate, module, gradients)
    }

    fn state(&self, module: &dyn Module) -> Result<OptimizerState> {
        (**self).state(module)
    }

    fn load_state(&mut self, state: OptimizerState, module: &dyn Module) -> Result<()> {
        (**self).load_state(state, module)
    }
}

/// How one parameter changes by its gradient: the heart of an optimizer.
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
    /// The name, for messages and states.
    fn name(&self) -> &'static str;

    /// The names of the tensors that the rule keeps for a parameter: identifiers without dots, and not `step`.
    fn slots(&self) -> &'static [&'static str];

    /// The type of a tensor that the rule keeps, for checking states that are loaded. Default: the parameter's.
    fn slot_type(&self, _slot: &str, parameter: TensorType) -> TensorType {
        parameter
    }

    /// The weight decay of parameters whose group has none of its own. Default: 0.
    fn weight_decay(&self) -> f64 {
        0.0
    }

    /// The change of a parameter.
    ///
    /// Value, gradient and state are of one type and on one device, below automatic differentiation. `state` counts
    /// this step already. Clones of `value` must not outlive the call, or the new value cannot take its memory.
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

/// What a rule does to a parameter: the new value is `keep · value - step`.
#[derive(Clone, Debug)]
pub struct Update {
    /// What the value is multiplied by; 1 without decoupled weight decay.
    pub keep: f64,
    /// What is subtracted, of the parameter's type.
    pub step: AnyTensor,
}

/// An optimizer that applies a rule to each parameter on its own, and remembers a state for each.
#[derive(Clone, Debug)]
pub struct PerParameter<R> {
    rule: R,
    groups: Vec<ParameterGroup>,
    clipping: Option<GradientClipping>,
    states: BTreeMap<ParamId, ParameterState>,
}

impl<R: UpdateRule> PerParameter<R> {
    /// An optimizer without groups and clipping.
    pub fn new(rule: R) -> PerParameter<R> {
        PerParameter { rule, groups: Vec::new(), clipping: None, states: BTreeMap::new() }
    }

    /// Adds a group. Of the groups that contain a parameter, the one that was added first counts.
    ///
    /// # Errors
    /// When a number of the group is negative or not finite.
    pub fn with_group(mut self, group: ParameterGroup) -> Result<PerParameter<R>> {
        group.check(self.rule.name())?;
        self.groups.push(group);
        Ok(self)
    }

    /// Limits gradients before they are used.
    ///
    /// # Errors
    /// When the limit is not a finite number greater than 0.
    pub fn with_grad_clipping(mut self, clipping: Option<GradientClipping>) -> Result<PerParameter<R>> {
        if let Some(clipping) = clipping {
            clipping.check(self.rule.name())?;
        }
        self.clipping = clipping;
        Ok(self)
    }

    /// The rule.
    pub fn rule(&self) -> &R {
        &self.rule
    }
}

impl<R: UpdateRule> Optimizer for PerParameter<R> {
    fn update(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        mut gradients: GradientsParams,
    ) -> Result<()> {
        not_negative(self.rule.name(), "the learning rate", learning_rate)?;
        check_gradients(self.rule.name(), module, &gradients)?;
        if let Some(clipping) = self.clipping {
            clipping.apply(&mut gradients)?;
        }
        let options = StepOptions { learning_rate, weight_decay: self.rule.weight_decay() };
        let mut step = Step { optimizer: self, options, gradients, stack: None, result: Ok(()) };
        module.visit_mut(&mut Path::new(), &mut step);
        if let Some(stack) = step.stack {
            stack.engine().submit();
        }
        step.result
    }

    fn state(&self, module: &dyn Module) -> Result<OptimizerState> {
        OptimizerState::collect(self.rule.name(), &self.states, module)
    }

    fn load_state(&mut self, state: OptimizerState, module: &dyn Module) -> Result<()> {
        self.states = state.distribute(&self.rule, module)?;
        Ok(())
    }
}

/// One step over the parameters of a module.
struct Step<'a, R> {
    optimizer: &'a mut PerParameter<R>,
    options: StepOptions,
    gradients: GradientsParams,
    /// Of the last parameter that changed.
    stack: Option<Stack>,
    result: Result<()>,
}

impl<R: UpdateRule> VisitorMut for Step<'_, R> {
    fn parameter(&mut self, path: &Path, mut parameter: Parameter) -> Parameter {
        if self.result.is_err() || !parameter.is_trainable() {
            return parameter;
        }
        let Some(gradient) = self.gradients.remove(parameter.id) else { return parameter };
        match self.change(path, &parameter, gradient) {
            Ok(update) => {
                parameter.value = applied(parameter.value, update);
                self.stack = Some(parameter.value.stack().clone());
            }
            Err(error) => self.result = Err(error),
        }
        parameter
    }
}

impl<R: UpdateRule> Step<'_, R> {
    fn change(&mut self, path: &Path, parameter: &Parameter, gradient: AnyTensor) -> Result<Update> {
        let PerParameter { rule, groups, states, .. } = &mut *self.optimizer;
        let value = &parameter.value;
        let state = states.entry(parameter.id).or_default();
        state.begin_step(value.stack())?;
        // A gradient of a stack of two layers of automatic differentiation may be tracked by the lower one.
        let gradient = gradient.detach().to_stack(value.stack())?.detach();
        let update = rule.update(value, gradient, state, self.options.of(path.as_str(), groups))?;
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

/// `keep · value - step`, where both are of one float type and on one stack, so that no op can refuse them.
fn applied(value: AnyTensor, update: Update) -> AnyTensor {
    let keep = if update.keep == 1.0 { Ok(value) } else { value.binary_scalar(Binary::Mul, update.keep) };
    match keep.and_then(|value| value.sub(update.step)) {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// Finds gradients of the wrong type before anything changes.
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
