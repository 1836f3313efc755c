//! The optimizer that updates each parameter separately.

use crate::error::{OptimError, Result, below_one, no_momentum, not_negative};
use crate::group::{Names, OtherNames};
use crate::guard::{Guard, Prepared, Ready, StepId, select};
use crate::report::{self, Census};
use crate::state::Places;
use crate::{
    GradientClipping, GradientPipeline, LossScaler, Mode, Optimizer, OptimizerState, ParameterGroup,
    ParameterState, StepOptions, StepOutcome, StepReport, Update, UpdateRule,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::panic::Location;
use kiln_ir::Binary;
use kiln_nn::{GradientsParams, Module, ParamId, Parameter, Path, Visitor, VisitorMut};
use kiln_tensor::{AnyTensor, Backend, Tensor};

/// An optimizer that applies an [`UpdateRule`] to each parameter separately and keeps a state for each.
///
/// A [`ParameterGroup`] can have a rule of its own. A [`GradientPipeline`] accumulates, unscales and clips the
/// gradients before the update.
#[derive(Clone, Debug)]
pub struct PerParameter<R> {
    rule: R,
    groups: Vec<ParameterGroup>,
    momentum: Option<f64>,
    pipeline: GradientPipeline,
    is_8bit: bool,
    states: BTreeMap<ParamId, ParameterState>,
    guard: Guard,
    report: Option<StepReport>,
    /// Whether the warning of a step that updated no parameter was given.
    has_warned: bool,
    /// Whether the warning of a group without parameters was given.
    has_warned_of_groups: bool,
}

impl<R: UpdateRule> PerParameter<R> {
    /// Returns an optimizer without parameter groups and clipping.
    pub fn new(rule: R) -> PerParameter<R> {
        PerParameter {
            rule,
            groups: Vec::new(),
            momentum: None,
            pipeline: GradientPipeline::new(),
            is_8bit: false,
            states: BTreeMap::new(),
            guard: Guard::default(),
            report: None,
            has_warned: false,
            has_warned_of_groups: false,
        }
    }

    /// Adds a parameter group. If several groups contain a parameter, the first one added applies.
    ///
    /// # Errors
    /// When the pattern of the group is invalid, an option of the group is negative or not finite, or its schedule has a
    /// momentum and its rule has none.
    pub fn with_group(mut self, group: ParameterGroup) -> Result<PerParameter<R>> {
        group.check(&self.rule)?;
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
        self.pipeline = self.pipeline.with_grad_clipping(self.rule.name(), clipping.into())?;
        Ok(self)
    }

    /// Sets the loss scaler; `None` disables loss scaling. Multiply the loss by
    /// [`loss_scale`](Optimizer::loss_scale), or call [`scale_loss`](PerParameter::scale_loss). A step with NaN or
    /// infinite gradients is skipped. Each step waits for the device.
    ///
    /// Do not also call [`LossScaler::step`].
    #[must_use]
    pub fn with_loss_scaler(mut self, scaler: impl Into<Option<LossScaler>>) -> PerParameter<R> {
        self.pipeline = self.pipeline.with_loss_scaler(scaler.into());
        self
    }

    /// Sets gradient accumulation: each `passes`-th call does a step with the mean gradient of `passes` calls. A mean
    /// loss over batches of equal size then has the gradients of one batch of all items. Default: 1.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{GradientsParams, Linear, LinearConfig};
    /// use kiln_optim::{Optimizer, SgdConfig, StepOutcome};
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let mut model: Linear<Autodiff<Flex>> = LinearConfig::new(2, 1).init(&Default::default());
    /// let mut optimizer = SgdConfig::new().init().with_accumulation(2)?;
    /// for (rows, outcome) in [([[1.0, 2.0]], StepOutcome::Accumulated), ([[3.0, 4.0]], StepOutcome::Applied)] {
    ///     let loss = model.forward(Tensor::from(rows)).mean();
    ///     let gradients = GradientsParams::from_grads(loss.backward(), &model);
    ///     assert_eq!(optimizer.update(0.1, &mut model, gradients)?.outcome, outcome);
    /// }
    /// # Ok::<(), kiln_optim::OptimError>(())
    /// ```
    ///
    /// # Errors
    /// When `passes` is 0.
    pub fn with_accumulation(mut self, passes: u64) -> Result<PerParameter<R>> {
        self.pipeline = self.pipeline.with_accumulation(self.rule.name(), passes)?;
        Ok(self)
    }

    /// Sets whether reports contain the [gradient norm](StepReport::gradient_norm) also without clipping by the global
    /// norm. Default: no.
    #[must_use]
    pub fn with_gradient_norm(mut self, has_norm: bool) -> PerParameter<R> {
        self.pipeline = self.pipeline.with_gradient_norm(has_norm);
        self
    }

    /// Stores the state in 8 bits: blockwise dynamic quantization
    /// ([Dettmers et al. 2022](https://arxiv.org/abs/2110.02861)) with blocks of 256 elements. It takes a quarter of
    /// the memory of `f32`. Tensors of fewer than 4096 elements stay in full precision.
    ///
    /// The update itself runs in full precision. A state saved with or without this option loads into both.
    #[must_use]
    pub fn with_8bit_state(mut self) -> PerParameter<R> {
        self.is_8bit = true;
        self
    }

    /// Returns the update rule.
    pub fn rule(&self) -> &R {
        &self.rule
    }

    /// Returns the pipeline of the gradients.
    pub fn pipeline(&self) -> &GradientPipeline {
        &self.pipeline
    }

    /// Returns the loss times the [loss scale](Optimizer::loss_scale). Call `backward` on it.
    #[must_use]
    pub fn scale_loss<B: Backend, const D: usize>(&self, loss: Tensor<B, D>) -> Tensor<B, D> {
        match self.pipeline.scaler() {
            Some(scaler) => scaler.scale_loss(loss),
            None => loss,
        }
    }

    /// The rule of a parameter.
    fn rule_of<'a>(&'a self, names: Names<'_>) -> &'a dyn UpdateRule {
        match ParameterGroup::of(names, &self.groups).and_then(|(_, group)| group.own_rule()) {
            Some(rule) => rule,
            None => &self.rule,
        }
    }

    /// The parameters of groups with clipping of their own.
    fn clipped_groups(&self, module: &dyn Module) -> Vec<(GradientClipping, Vec<ParamId>)> {
        if self.groups.iter().all(|group| group.own_clipping().is_none()) {
            return Vec::new();
        }
        let mut ids: BTreeMap<usize, Vec<ParamId>> = BTreeMap::new();
        for (path, place) in Places::of(module).targets {
            if let Some((index, _)) = ParameterGroup::of(place.names(&path), &self.groups) {
                ids.entry(index).or_default().push(place.id);
            }
        }
        let clipping = |(index, ids): (usize, _)| Some((self.groups[index].own_clipping()?, ids));
        ids.into_iter().filter_map(clipping).collect()
    }

    /// Checks and moves the gradients, then updates the parameters. The indices are those of groups without parameters.
    fn apply(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
        names: OtherNames,
        id: StepId,
    ) -> Result<(StepReport, Census, Vec<usize>)> {
        let mut census = Census { gradients: gradients.len(), ..Census::default() };
        let Prepared { gradients, stacks } = self.guard.prepare(id, module, gradients)?;
        let weight_decay = self.rule.weight_decay();
        let options = StepOptions { learning_rate, weight_decay, momentum: self.momentum };
        let report = StepReport::new(StepOutcome::Applied, 0);
        let is_matched = alloc::vec![false; self.groups.len()];
        let mut step = Step {
            optimizer: self,
            names,
            options,
            gradients,
            report,
            census: &mut census,
            is_matched,
            result: Ok(()),
        };
        module.visit_mut(&mut Path::new(), &mut step);
        let Step { mut report, result, is_matched, .. } = step;
        let unmatched: Vec<usize> = (0..self.groups.len()).filter(|&index| !is_matched[index]).collect();
        report.unmatched_groups = unmatched.iter().map(|&index| self.groups[index].label(index)).collect();
        for stack in stacks {
            stack.engine().submit();
        }
        result.map(|()| (report, census, unmatched))
    }

    /// Accumulates the gradients or does a step.
    fn step_once(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
        names: OtherNames,
        caller: &'static Location<'static>,
    ) -> Result<StepReport> {
        let pass = self.pipeline.next_pass();
        if let Some(pass) = pass {
            self.guard.add_pass(pass, caller, &gradients)?;
        }
        let Some(mut gradients) = self.pipeline.accumulate(gradients)? else {
            return Ok(StepReport::new(StepOutcome::Accumulated, 0).of_step(self.guard.next_step(), pass));
        };
        let id = self.guard.begin(self.rule.name(), caller);
        let is_finite = self.pipeline.unscale(&mut gradients);
        if !is_finite.map_err(|error| self.guard.refused_by(id, error))? {
            return Ok(StepReport::new(StepOutcome::SkippedNonFinite, 0).of_step(id.step, pass));
        }
        let norm = self.pipeline.clip(&mut gradients, self.clipped_groups(module))?;
        let (report, census, unmatched) = self.apply(learning_rate, module, gradients, names, id)?;
        let mut report = report.with_norm(norm).of_step(id.step, pass);
        report.warning = self.warning(report.updated, census, &unmatched, module);
        Ok(report)
    }

    /// The warnings of the first step that updated no parameter, and of the first with groups without parameters.
    fn warning(
        &mut self,
        updated: usize,
        census: Census,
        unmatched: &[usize],
        module: &dyn Module,
    ) -> Option<String> {
        let name = self.rule.name();
        let mut warnings = Vec::new();
        if updated == 0 && !core::mem::replace(&mut self.has_warned, true) {
            warnings.push(format!("warning: [{name}] the step updated no parameter: {}", census.reason()));
        }
        if !unmatched.is_empty() && !core::mem::replace(&mut self.has_warned_of_groups, true) {
            let names = parameter_names(module);
            warnings.extend(unmatched.iter().map(|&index| {
                let (label, reason) =
                    (self.groups[index].label(index), self.groups[index].why_unmatched(&names));
                format!("warning: [{name}] the parameter group `{label}` {reason}")
            }));
        }
        if warnings.is_empty() {
            return None;
        }
        let warning = warnings.join("\n");
        report::print(&warning);
        Some(warning)
    }

    /// Changes the state of each parameter with a gradient outside of a step, such as a Hessian estimate.
    pub(crate) fn change_states(
        &mut self,
        module: &mut dyn Module,
        gradients: GradientsParams,
        caller: &'static Location<'static>,
        change: &mut dyn FnMut(AnyTensor, &mut ParameterState) -> Result<()>,
    ) -> Result<()> {
        check_gradients(self, module, &gradients)?;
        let id = self.guard.begin(self.rule.name(), caller);
        let Prepared { gradients, .. } = self.guard.prepare(id, module, gradients)?;
        // A refusal must not take back the count of a step.
        self.guard.keep_counts(id);
        for (id, Ready { gradient, ok }) in gradients {
            let state = self.states.entry(id).or_default();
            let before = ok.as_ref().map(|_| state.clone());
            state.decode()?;
            change(gradient, state)?;
            if self.is_8bit {
                state.encode(&self.rule)?;
            }
            if let (Some(ok), Some(before)) = (ok, before) {
                state.keep_unless(&ok, before)?;
            }
        }
        Ok(())
    }

    fn convert(&self, module: &mut dyn Module, to: Mode) -> Result<()> {
        let own = self.groups.iter().filter_map(ParameterGroup::own_rule);
        if !self.rule.has_eval_values() && !own.into_iter().any(|rule| rule.has_eval_values()) {
            return Ok(());
        }
        self.guard.check()?;
        let names = OtherNames::of(module, &self.groups);
        let mut conversion = Conversion { optimizer: self, names, to, result: Ok(()) };
        module.visit_mut(&mut Path::new(), &mut conversion);
        conversion.result
    }
}

impl<R: UpdateRule> Optimizer for PerParameter<R> {
    #[track_caller]
    fn update(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
    ) -> Result<StepReport> {
        self.update_from(learning_rate, module, gradients, Location::caller())
    }

    fn update_from(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
        caller: &'static Location<'static>,
    ) -> Result<StepReport> {
        not_negative(self.rule.name(), "the learning rate", learning_rate)?;
        let names = check_gradients(self, module, &gradients)?;
        // Before the step, which uses the step counts.
        self.guard.look(false, &mut self.states);
        let own = self.step_once(learning_rate, module, gradients, names, caller);
        self.guard.look(false, &mut self.states);
        let report = own.map_err(|error| self.guard.in_order(error))?;
        if !self.guard.has_refused(report.step) {
            self.report = Some(report.clone());
        }
        self.guard.take().map(|()| report)
    }

    fn last_report(&self) -> Option<&StepReport> {
        self.report.as_ref()
    }

    fn loss_scale(&self) -> f64 {
        self.pipeline.loss_scale()
    }

    fn set_momentum(&mut self, momentum: Option<f64>) -> Result<()> {
        if let Some(momentum) = momentum {
            below_one(self.rule.name(), "the momentum of the schedule", momentum)?;
            let own = self.groups.iter().filter_map(ParameterGroup::own_rule);
            let own = own.map(|rule| (rule.name(), rule.has_momentum()));
            let mut rules = core::iter::once((self.rule.name(), self.rule.has_momentum())).chain(own);
            if let Some((name, _)) = rules.find(|(_, has_momentum)| !has_momentum) {
                return Err(no_momentum(name, momentum));
            }
        }
        self.momentum = momentum;
        Ok(())
    }

    fn enter_eval(&self, module: &mut dyn Module) -> Result<()> {
        self.convert(module, Mode::Eval)
    }

    fn enter_train(&self, module: &mut dyn Module) -> Result<()> {
        self.convert(module, Mode::Train)
    }

    fn finish(&mut self) -> Result<()> {
        self.guard.look(true, &mut self.states);
        self.guard.take()
    }

    fn state(&self, module: &dyn Module) -> Result<OptimizerState> {
        self.guard.check()?;
        let state =
            OptimizerState::collect(self.rule.name(), &self.states, module, |names| self.rule_of(names));
        Ok(state.with_global(self.pipeline.state(&Places::of(module).ids())?))
    }

    fn load_state(&mut self, state: OptimizerState, module: &dyn Module) -> Result<()> {
        let global = state.global();
        let states = state.distribute(self.rule.name(), module, |names| self.rule_of(names))?;
        let places = Places::of(module);
        self.pipeline = self.pipeline.loaded(&global, |path| places.place(path))?;
        self.states = states;
        self.guard.clear();
        Ok(())
    }
}

/// One step over the parameters of a module.
struct Step<'a, R> {
    optimizer: &'a mut PerParameter<R>,
    names: OtherNames,
    options: StepOptions,
    gradients: BTreeMap<ParamId, Ready>,
    report: StepReport,
    census: &'a mut Census,
    /// Whether a parameter belongs to each group.
    is_matched: Vec<bool>,
    result: Result<()>,
}

impl<R: UpdateRule> VisitorMut for Step<'_, R> {
    fn parameter(&mut self, path: &Path, mut parameter: Parameter) -> Parameter {
        self.census.frozen += usize::from(!parameter.is_trainable() && !parameter.is_buffer());
        let names = self.names.with(path, parameter.id);
        let group = ParameterGroup::of(names, &self.optimizer.groups).map(|(index, _)| index);
        if let Some(index) = group.filter(|_| !parameter.is_buffer()) {
            self.is_matched[index] = true;
        }
        if self.result.is_err() || !parameter.is_trainable() {
            return parameter;
        }
        self.census.trainable += 1;
        let Some(Ready { gradient, ok }) = self.gradients.remove(&parameter.id) else {
            self.report.without_gradient.push(path.to_string());
            return parameter;
        };
        match self.change(path, &parameter, group, gradient, ok.as_ref()) {
            Ok(update) => {
                parameter.value = applied(parameter.value, update, ok.as_ref());
                self.report.updated += 1;
            }
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
        group: Option<usize>,
        gradient: AnyTensor,
        ok: Option<&AnyTensor>,
    ) -> Result<Update> {
        let PerParameter { rule, groups, states, is_8bit, .. } = &mut *self.optimizer;
        let group = group.map(|index| &groups[index]);
        let rule: &dyn UpdateRule = match group.and_then(ParameterGroup::own_rule) {
            Some(own) => own,
            None => rule,
        };
        let value = &parameter.value;
        let state = states.entry(parameter.id).or_default();
        let options = self.options.in_group(group, state.steps());
        state.count_step();
        state.move_to(value.stack())?;
        let before = ok.map(|_| state.clone());
        state.decode()?;
        let update = rule.update(value, gradient, state, options)?;
        if *is_8bit {
            state.encode(rule)?;
        }
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

/// The names of a module's parameters, without buffers.
fn parameter_names(module: &dyn Module) -> Vec<String> {
    struct Names(Vec<String>);
    impl Visitor for Names {
        fn parameter(&mut self, path: &Path, parameter: Parameter) {
            if !parameter.is_buffer() {
                self.0.push(path.to_string());
            }
        }

        fn tied(&mut self, path: &Path, parameter: Parameter) {
            self.parameter(path, parameter);
        }
    }
    let mut names = Names(Vec::new());
    module.visit(&mut Path::new(), &mut names);
    names.0
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

/// Converts the parameters of a module between training and evaluation.
struct Conversion<'a, R> {
    optimizer: &'a PerParameter<R>,
    names: OtherNames,
    to: Mode,
    result: Result<()>,
}

impl<R: UpdateRule> VisitorMut for Conversion<'_, R> {
    fn parameter(&mut self, path: &Path, mut parameter: Parameter) -> Parameter {
        let Some(state) = self.optimizer.states.get(&parameter.id) else { return parameter };
        let rule = self.optimizer.rule_of(self.names.with(path, parameter.id));
        if self.result.is_err() || !rule.has_eval_values() {
            return parameter;
        }
        let mut state = state.clone();
        let ready = state.move_to(parameter.value.stack()).and_then(|()| state.decode());
        match ready.and_then(|()| rule.converted(parameter.value.clone(), &state, self.to)) {
            Ok(value) => parameter.value = value,
            Err(error) => self.result = Err(error),
        }
        parameter
    }
}

/// Rejects gradients of the wrong type, and parameters that their rule does not support, before anything changes. Returns
/// the names of tied parameters, which the step needs too.
fn check_gradients<R: UpdateRule>(
    optimizer: &PerParameter<R>,
    module: &dyn Module,
    gradients: &GradientsParams,
) -> Result<OtherNames> {
    let names = OtherNames::of(module, &optimizer.groups);
    let mut check = GradientCheck { optimizer, names, gradients, seen: BTreeSet::new(), result: Ok(()) };
    module.visit(&mut Path::new(), &mut check);
    check.result.map(|()| check.names)
}

struct GradientCheck<'a, R> {
    optimizer: &'a PerParameter<R>,
    names: OtherNames,
    gradients: &'a GradientsParams,
    /// The parameters with a gradient.
    seen: BTreeSet<ParamId>,
    result: Result<()>,
}

impl<R: UpdateRule> Visitor for GradientCheck<'_, R> {
    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        let Some(gradient) = self.gradients.get(parameter.id) else { return };
        if self.result.is_err() || !parameter.is_trainable() {
            return;
        }
        let name = self.optimizer.rule.name();
        if !self.seen.insert(parameter.id) {
            self.result = Err(OptimError::SeparateTensors { optimizer: name, parameter: path.to_string() });
            return;
        }
        let (expected, found) = (*parameter.value.ty(), *gradient.ty());
        if expected != found {
            self.result = Err(OptimError::GradientType {
                optimizer: name,
                parameter: path.to_string(),
                expected: expected.into(),
                found: found.into(),
            });
            return;
        }
        let rule = self.optimizer.rule_of(self.names.with(path, parameter.id));
        if let Some(requirement) = rule.unmet_requirement(expected) {
            self.result = Err(OptimError::UnsupportedParameter {
                rule: rule.name(),
                parameter: path.to_string(),
                found: expected.into(),
                requirement,
            });
        }
    }
}
