//! Optimizer state.

use crate::UpdateRule;
use crate::error::{OptimError, Result};
use crate::guard::select;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_nn::{Module, ParamId, Parameter, Path, Visitor};
use kiln_tensor::{AnyTensor, DType, Element, Stack, TensorData, TensorType};

/// The optimizer state of one parameter: step count and named tensors.
#[derive(Clone, Debug, Default)]
pub struct ParameterState {
    steps: u64,
    slots: Vec<(&'static str, AnyTensor)>,
}

impl ParameterState {
    /// Returns the number of updates of the parameter, including the current step.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Removes a tensor and returns it, so that it can be updated in place. `None` at the first step.
    pub fn take(&mut self, slot: &str) -> Option<AnyTensor> {
        let place = self.slots.iter().position(|(name, _)| *name == slot)?;
        Some(self.slots.swap_remove(place).1)
    }

    /// Stores a tensor under a name, replacing the previous one.
    pub fn put(&mut self, slot: &'static str, tensor: AnyTensor) {
        self.take(slot);
        self.slots.push((slot, tensor));
    }

    /// Counts a step of a parameter on a stack, and moves the state to that stack if the parameter was moved.
    pub(crate) fn begin_step(&mut self, stack: &Stack) -> Result<()> {
        self.steps += 1;
        for (_, tensor) in &mut self.slots {
            if !tensor.stack().same(stack) {
                *tensor = tensor.clone().to_stack(stack)?;
            }
        }
        Ok(())
    }

    /// Undoes the count of a refused step and returns the remaining count.
    pub(crate) fn take_back_step(&mut self) -> u64 {
        self.steps = self.steps.saturating_sub(1);
        self.steps
    }

    /// Restores the previous tensors where the flag is false.
    pub(crate) fn keep_unless(&mut self, ok: &AnyTensor, mut before: ParameterState) -> Result<()> {
        for (slot, tensor) in core::mem::take(&mut self.slots) {
            let old = before.take(slot);
            self.slots.push((slot, select(ok, tensor, old)?));
        }
        Ok(())
    }
}

/// The state of an optimizer in host memory by dotted parameter names, for checkpoints.
///
/// It does not contain parameters without a step.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimizerState {
    optimizer: String,
    parameters: BTreeMap<String, HostState>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct HostState {
    steps: u64,
    slots: BTreeMap<String, TensorData>,
}

/// The name of the step count among the slots.
const STEP: &str = "step";

impl OptimizerState {
    /// Returns the name of the optimizer: `adam`.
    pub fn optimizer(&self) -> &str {
        &self.optimizer
    }

    /// Returns the dotted names of the parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.parameters.keys().map(String::as_str)
    }

    /// Returns the state as named tensors, ordered by name: `conv1.weight.exp_avg` and so on. Each parameter also has
    /// its step count, `conv1.weight.step`, as a `u64` scalar of rank 0.
    pub fn into_tensors(self) -> Vec<(String, TensorData)> {
        let mut tensors = Vec::new();
        for (parameter, state) in self.parameters {
            for (slot, data) in state.slots {
                tensors.push((format!("{parameter}.{slot}"), data));
            }
            tensors.push((format!("{parameter}.{STEP}"), TensorData::scalar(state.steps)));
        }
        tensors
    }

    /// Builds the state of an optimizer from named tensors: the inverse of
    /// [`into_tensors`](OptimizerState::into_tensors).
    ///
    /// # Errors
    /// When a name does not end in a slot, or a step count is missing or invalid.
    pub fn from_tensors(
        optimizer: impl Into<String>,
        tensors: impl IntoIterator<Item = (String, TensorData)>,
    ) -> Result<OptimizerState> {
        let mut parameters = BTreeMap::<String, (Option<u64>, BTreeMap<String, TensorData>)>::new();
        for (name, data) in tensors {
            let Some((parameter, slot)) = name.rsplit_once('.') else {
                return Err(invalid("optimizer", &name, "the name of a tensor ends with a dot and a slot"));
            };
            let state = parameters.entry(parameter.to_string()).or_default();
            if slot == STEP {
                state.0 = Some(steps(parameter, &data)?);
            } else {
                state.1.insert(slot.to_string(), data);
            }
        }
        let with_steps = |(parameter, (steps, slots)): (String, (Option<u64>, _))| match steps {
            Some(steps) => Ok((parameter, HostState { steps, slots })),
            None => Err(invalid("optimizer", &parameter, "the step count is missing")),
        };
        let parameters = parameters.into_iter().map(with_steps).collect::<Result<_>>()?;
        Ok(OptimizerState { optimizer: optimizer.into(), parameters })
    }

    /// Collects the states of a module's parameters by dotted name.
    pub(crate) fn collect(
        optimizer: &'static str,
        states: &BTreeMap<ParamId, ParameterState>,
        module: &dyn Module,
    ) -> Result<OptimizerState> {
        let mut parameters = BTreeMap::new();
        for (path, place) in places(module) {
            let Some(state) = states.get(&place.id) else { continue };
            let slots = state.slots.iter().map(|(slot, tensor)| Ok((slot.to_string(), tensor.to_data()?)));
            let slots = slots.collect::<Result<_>>()?;
            parameters.insert(path, HostState { steps: state.steps, slots });
        }
        Ok(OptimizerState { optimizer: optimizer.to_string(), parameters })
    }

    /// Maps the states to the ids of a module's parameters, on their devices.
    pub(crate) fn distribute(
        self,
        rule: &dyn UpdateRule,
        module: &dyn Module,
    ) -> Result<BTreeMap<ParamId, ParameterState>> {
        let optimizer = rule.name();
        if self.optimizer != optimizer {
            return Err(OptimError::WrongOptimizer { optimizer, found: self.optimizer });
        }
        let places = places(module);
        let unknown = self.parameters.keys().filter(|name| !places.contains_key(*name)).cloned();
        let unknown: Vec<String> = unknown.collect();
        if !unknown.is_empty() {
            return Err(OptimError::UnknownParameters { optimizer, names: unknown });
        }
        let on_device = |(name, state): (String, HostState)| {
            let place = &places[&name];
            let state = state.on_device(place, rule);
            state.map(|state| (place.id, state)).map_err(|problem| invalid(optimizer, &name, problem))
        };
        self.parameters.into_iter().map(on_device).collect()
    }
}

impl HostState {
    fn on_device(self, place: &StateTarget, rule: &dyn UpdateRule) -> Result<ParameterState, String> {
        let slots = rule.slots();
        if let Some(missing) = slots.iter().find(|slot| !self.slots.contains_key(**slot)) {
            return Err(format!("`{missing}` is missing; it was saved with other options"));
        }
        let mut state = ParameterState { steps: self.steps, slots: Vec::new() };
        for (name, data) in self.slots {
            let Some(&slot) = slots.iter().find(|slot| **slot == name) else {
                return Err(format!("`{name}` is unknown; it was saved with other options"));
            };
            let expected = rule.slot_type(slot, place.ty);
            if data.ty() != expected {
                return Err(format!("`{name}` is {}, but should be {expected}", data.ty()));
            }
            state.put(slot, AnyTensor::from_data(data, &place.stack));
        }
        Ok(state)
    }
}

/// The parameter that a state belongs to.
struct StateTarget {
    id: ParamId,
    ty: TensorType,
    /// The stack below automatic differentiation.
    stack: Stack,
}

fn places(module: &dyn Module) -> BTreeMap<String, StateTarget> {
    struct Places(BTreeMap<String, StateTarget>);
    impl Visitor for Places {
        fn parameter(&mut self, path: &Path, parameter: Parameter) {
            let stack = parameter.value.stack();
            let stack = stack.inner().unwrap_or(stack).clone();
            let place = StateTarget { id: parameter.id, ty: *parameter.value.ty(), stack };
            self.0.insert(path.to_string(), place);
        }
    }
    let mut places = Places(BTreeMap::new());
    module.visit(&mut Path::new(), &mut places);
    places.0
}

fn steps(parameter: &str, data: &TensorData) -> Result<u64> {
    match (data.dtype(), u64::slice(data.elements())) {
        (DType::U64, Some([steps])) => Ok(*steps),
        _ => {
            let problem = format!("the step count is {}, expected one u64", data.ty());
            Err(invalid("optimizer", parameter, problem))
        }
    }
}

fn invalid(optimizer: &'static str, parameter: &str, problem: impl Into<String>) -> OptimError {
    OptimError::InvalidState { optimizer, parameter: parameter.to_string(), problem: problem.into() }
}
