//! Optimizer state by parameter names.

use crate::blockwise::{self, Blockwise};
use crate::error::{OptimError, Result};
use crate::group::Names;
use crate::parameter_state::{ParameterState, Slot};
use crate::{SlotCode, UpdateRule};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_nn::{Module, ParamId, Parameter, Path, Visitor};
use kiln_tensor::{AnyTensor, DType, Element, Stack, TensorData, TensorType};

/// The state of an optimizer by dotted parameter names, for checkpoints.
///
/// It does not contain parameters without a step. Tensors of parameters are handles of those on the device, until they
/// are [read](OptimizerState::into_tensors): taking the state copies nothing. While it lives, the next update of the
/// optimizer needs memory of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimizerState {
    optimizer: String,
    parameters: BTreeMap<String, SlotTensors>,
    /// The entries that belong to no parameter. Their names start with `@`.
    global: BTreeMap<String, TensorData>,
}

/// A tensor of an optimizer's state, on a device or in host memory. Equality reads the device.
#[derive(Clone, Debug)]
pub enum StateTensor {
    /// On a device.
    Device(AnyTensor),
    /// In host memory.
    Host(TensorData),
}

#[derive(Clone, Debug, Default, PartialEq)]
struct SlotTensors {
    /// The rule's name, if it is not the optimizer's.
    rule: Option<String>,
    steps: u64,
    slots: BTreeMap<String, StateTensor>,
}

/// The name of the step count among the slots.
const STEP: &str = "step";

/// The name of the rule among the slots.
const RULE: &str = "rule";

/// The suffixes of a slot in 8 bits.
const CODES: &str = "#codes";
const SCALES: &str = "#scales";

impl OptimizerState {
    /// Returns the name of the optimizer: `adam`.
    pub fn optimizer(&self) -> &str {
        &self.optimizer
    }

    /// Returns the dotted names of the parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.parameters.keys().map(String::as_str)
    }

    /// Returns the name of the update rule of a parameter: the optimizer's, or that of its group.
    pub fn rule(&self, parameter: &str) -> Option<&str> {
        let state = self.parameters.get(parameter)?;
        Some(state.rule.as_deref().unwrap_or(&self.optimizer))
    }

    /// Returns the state as named tensors in host memory: `conv1.weight.exp_avg` and so on, ordered by parameter. Waits for
    /// the device.
    ///
    /// * Each parameter also has its step count, `conv1.weight.step`, as a `u64` scalar of rank 0.
    /// * A parameter with another rule than the optimizer has its name, `conv1.weight.rule`, as `u8` of UTF-8.
    /// * A tensor in 8 bits is `conv1.weight.exp_avg#codes` and `conv1.weight.exp_avg#scales`.
    /// * Names that start with `@` belong to the whole optimizer, such as `@loss_scaler.scale`.
    ///
    /// # Errors
    /// When the device failed.
    pub fn into_tensors(self) -> Result<Vec<(String, TensorData)>> {
        self.into_state_tensors().into_iter().map(|(name, tensor)| Ok((name, tensor.into_data()?))).collect()
    }

    /// Returns the state as named tensors, those of parameters on their devices, with the names of
    /// [`into_tensors`](OptimizerState::into_tensors). Does not wait for the device.
    pub fn into_state_tensors(self) -> Vec<(String, StateTensor)> {
        let mut tensors = Vec::new();
        for (parameter, state) in self.parameters {
            for (slot, tensor) in state.slots {
                tensors.push((format!("{parameter}.{slot}"), tensor));
            }
            let steps = TensorData::scalar(state.steps);
            tensors.push((format!("{parameter}.{STEP}"), StateTensor::Host(steps)));
            if let Some(rule) = state.rule {
                tensors.push((format!("{parameter}.{RULE}"), StateTensor::Host(bytes(&rule))));
            }
        }
        tensors.extend(self.global.into_iter().map(|(name, data)| (name, StateTensor::Host(data))));
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
        let mut parameters = BTreeMap::<String, (Option<u64>, SlotTensors)>::new();
        let mut global = BTreeMap::new();
        for (name, data) in tensors {
            if name.starts_with('@') {
                global.insert(name, data);
                continue;
            }
            let Some((parameter, slot)) = name.rsplit_once('.') else {
                return Err(invalid("optimizer", &name, "the name of a tensor ends with a dot and a slot"));
            };
            let (count, state) = parameters.entry(parameter.to_string()).or_default();
            match slot {
                STEP => *count = Some(steps(parameter, &data)?),
                RULE => state.rule = Some(text(parameter, &data)?),
                slot => drop(state.slots.insert(slot.to_string(), StateTensor::Host(data))),
            }
        }
        let with_steps = |(parameter, (steps, state)): (String, (Option<u64>, _))| match steps {
            Some(steps) => Ok((parameter, SlotTensors { steps, ..state })),
            None => Err(invalid("optimizer", &parameter, "the step count is missing")),
        };
        let parameters = parameters.into_iter().map(with_steps).collect::<Result<_>>()?;
        Ok(OptimizerState { optimizer: optimizer.into(), parameters, global })
    }

    /// Returns a state without parameters.
    pub(crate) fn new(optimizer: &'static str) -> OptimizerState {
        OptimizerState {
            optimizer: optimizer.to_string(),
            parameters: BTreeMap::new(),
            global: BTreeMap::new(),
        }
    }

    /// Adds a parameter without tensors.
    pub(crate) fn insert(&mut self, parameter: String, steps: u64) {
        self.parameters.insert(parameter, SlotTensors { steps, ..SlotTensors::default() });
    }

    /// Adds entries that belong to no parameter. Their names start with `@`.
    pub(crate) fn with_global(mut self, entries: Vec<(String, TensorData)>) -> OptimizerState {
        self.global.extend(entries);
        self
    }

    /// Returns the entries that belong to no parameter.
    pub(crate) fn global(&self) -> Vec<(String, TensorData)> {
        self.global.iter().map(|(name, data)| (name.clone(), data.clone())).collect()
    }

    /// Returns one of the entries that belong to no parameter.
    pub(crate) fn global_entry(&self, name: &str) -> Option<&TensorData> {
        self.global.get(name)
    }

    /// Collects the states of a module's parameters by dotted name.
    pub(crate) fn collect<'a>(
        optimizer: &'static str,
        states: &BTreeMap<ParamId, ParameterState>,
        module: &dyn Module,
        rule: impl Fn(Names<'_>) -> &'a dyn UpdateRule,
    ) -> OptimizerState {
        let mut collected = OptimizerState::new(optimizer);
        for (path, place) in Places::of(module).targets {
            let Some(state) = states.get(&place.id) else { continue };
            let rule = rule(place.names(&path)).name();
            let mut own = SlotTensors { steps: state.steps(), ..SlotTensors::default() };
            own.rule = (rule != optimizer).then(|| rule.to_string());
            for (slot, stored) in state.slots() {
                match stored {
                    Slot::Full(tensor) => own.insert(slot.to_string(), tensor),
                    Slot::Blockwise(Blockwise { codes, scales, .. }) => {
                        own.insert(format!("{slot}{CODES}"), codes);
                        own.insert(format!("{slot}{SCALES}"), scales);
                    }
                }
            }
            collected.parameters.insert(path, own);
        }
        collected
    }

    /// Maps the states to the ids of a module's parameters, on their devices. That of a tied parameter may have any of its
    /// names.
    pub(crate) fn distribute<'a>(
        self,
        optimizer: &'static str,
        module: &dyn Module,
        rule: impl Fn(Names<'_>) -> &'a dyn UpdateRule,
    ) -> Result<BTreeMap<ParamId, ParameterState>> {
        let places = self.checked_places(optimizer, module)?;
        let mut parameters: BTreeMap<&str, SlotTensors> = BTreeMap::new();
        for (name, state) in self.parameters {
            let Some((first, _)) = places.get(&name) else { continue };
            match parameters.get(first) {
                Some(other) if *other != state => {
                    let problem = format!("the module ties it to `{first}`, whose state differs");
                    return Err(invalid(optimizer, &name, problem));
                }
                Some(_) => {}
                None => drop(parameters.insert(first, state)),
            }
        }
        let on_device = |(name, state): (&str, SlotTensors)| {
            let place = &places.targets[name];
            let rule = rule(place.names(name));
            let saved_by = state.rule.as_deref().unwrap_or(optimizer);
            if saved_by != rule.name() {
                let problem = format!("it was saved by rule `{saved_by}`, not `{}`", rule.name());
                return Err(invalid(optimizer, name, problem));
            }
            let state = state.on_device(place, rule);
            state.map(|state| (place.id, state)).map_err(|problem| invalid(optimizer, name, problem))
        };
        parameters.into_iter().map(on_device).collect()
    }

    /// Returns the parameters of a module, if the state belongs to this optimizer and module.
    pub(crate) fn checked_places(&self, optimizer: &'static str, module: &dyn Module) -> Result<Places> {
        if self.optimizer != optimizer {
            return Err(OptimError::WrongOptimizer { optimizer, found: self.optimizer.clone() });
        }
        let places = Places::of(module);
        let unknown = self.parameters.keys().filter(|name| places.get(name).is_none()).cloned();
        let unknown: Vec<String> = unknown.collect();
        if unknown.is_empty() {
            return Ok(places);
        }
        Err(OptimError::UnknownParameters { optimizer, names: unknown })
    }
}

impl StateTensor {
    /// Returns the type.
    pub fn ty(&self) -> TensorType {
        match self {
            StateTensor::Device(tensor) => *tensor.ty(),
            StateTensor::Host(data) => data.ty(),
        }
    }

    /// Returns the elements. Waits for the device.
    ///
    /// # Errors
    /// When the device failed.
    pub fn into_data(self) -> Result<TensorData> {
        match self {
            StateTensor::Device(tensor) => Ok(tensor.into_data()?),
            StateTensor::Host(data) => Ok(data),
        }
    }

    fn on_stack(self, stack: &Stack) -> Result<AnyTensor, String> {
        match self {
            StateTensor::Device(tensor) if tensor.stack() == stack => Ok(tensor),
            StateTensor::Device(tensor) => tensor.to_stack(stack).map_err(|error| error.to_string()),
            StateTensor::Host(data) => Ok(AnyTensor::from_data(data, stack)),
        }
    }
}

impl PartialEq for StateTensor {
    fn eq(&self, other: &StateTensor) -> bool {
        match (self.clone().into_data(), other.clone().into_data()) {
            (Ok(data), Ok(other)) => data == other,
            (Ok(_) | Err(_), Err(_)) | (Err(_), Ok(_)) => false,
        }
    }
}

impl SlotTensors {
    fn insert(&mut self, slot: String, tensor: &AnyTensor) {
        self.slots.insert(slot, StateTensor::Device(tensor.clone()));
    }

    fn on_device(mut self, place: &StateTarget, rule: &dyn UpdateRule) -> Result<ParameterState, String> {
        let mut state = ParameterState::with_steps(self.steps);
        for &slot in rule.slots() {
            if rule.has_slot(slot, place.ty) {
                state.put_slot(slot, self.take_slot(slot, place, rule)?);
            }
        }
        match self.slots.keys().next() {
            None => Ok(state),
            Some(name) => Err(format!("`{name}` is unknown; it was saved with other options")),
        }
    }

    fn take_slot(&mut self, slot: &str, place: &StateTarget, rule: &dyn UpdateRule) -> Result<Slot, String> {
        let ty = rule.slot_type(slot, place.ty);
        let mut take = |name: String, expected: TensorType| match self.slots.remove(&name) {
            None => Ok(None),
            Some(tensor) if tensor.ty() == expected => tensor.on_stack(&place.stack).map(Some),
            Some(tensor) => Err(format!("`{name}` is {}, but should be {expected}", tensor.ty())),
        };
        if let Some(tensor) = take(slot.to_string(), ty)? {
            return Ok(Slot::Full(tensor));
        }
        let (codes, scales) = blockwise::types(ty);
        let codes = take(format!("{slot}{CODES}"), codes)?;
        let scales = take(format!("{slot}{SCALES}"), scales)?;
        let (Some(codes), Some(scales)) = (codes, scales) else {
            return Err(format!("`{slot}` is missing; it was saved with other options"));
        };
        let is_nonnegative = rule.slot_code(slot) == SlotCode::NonNegative;
        Ok(Slot::Blockwise(Blockwise { codes, scales, ty, is_nonnegative }))
    }
}

/// The parameter that a state belongs to.
pub(crate) struct StateTarget {
    pub(crate) id: ParamId,
    pub(crate) ty: TensorType,
    /// The stack below automatic differentiation.
    pub(crate) stack: Stack,
    /// The names at the further places of a tied parameter.
    others: Vec<String>,
}

impl StateTarget {
    pub(crate) fn names<'a>(&'a self, first: &'a str) -> Names<'a> {
        Names { first, others: &self.others }
    }
}

/// The parameters of a module by dotted name.
#[derive(Default)]
pub(crate) struct Places {
    /// By the name of the first place.
    pub(crate) targets: BTreeMap<String, StateTarget>,
    /// The first names of parameters, and of tied ones by their other names.
    first: BTreeMap<ParamId, String>,
    aliases: BTreeMap<String, String>,
}

impl Places {
    pub(crate) fn of(module: &dyn Module) -> Places {
        let mut places = Places::default();
        module.visit(&mut Path::new(), &mut places);
        places
    }

    /// The parameter of a name, which may be any one of a tied parameter, with its first name.
    pub(crate) fn get(&self, name: &str) -> Option<(&str, &StateTarget)> {
        let name = self.aliases.get(name).map_or(name, String::as_str);
        self.targets.get_key_value(name).map(|(first, target)| (first.as_str(), target))
    }

    /// Id and stack of the parameter of a name.
    pub(crate) fn place(&self, name: &str) -> Option<(ParamId, Stack)> {
        self.get(name).map(|(_, target)| (target.id, target.stack.clone()))
    }

    /// The first names and ids.
    pub(crate) fn ids(&self) -> Vec<(String, ParamId)> {
        self.targets.iter().map(|(name, target)| (name.clone(), target.id)).collect()
    }
}

impl Visitor for Places {
    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        let stack = parameter.value.stack();
        let stack = stack.inner().unwrap_or(stack).clone();
        let target = StateTarget { id: parameter.id, ty: *parameter.value.ty(), stack, others: Vec::new() };
        self.first.insert(parameter.id, path.to_string());
        self.targets.insert(path.to_string(), target);
    }

    fn tied(&mut self, path: &Path, parameter: Parameter) {
        let Some(first) = self.first.get(&parameter.id) else { return };
        if let Some(target) = self.targets.get_mut(first) {
            target.others.push(path.to_string());
        }
        self.aliases.insert(path.to_string(), first.clone());
    }
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

fn bytes(text: &str) -> TensorData {
    let bytes = text.as_bytes().to_vec();
    let mut data = TensorData::zeros(TensorType::new([bytes.len()], DType::U8));
    if let Some(elements) = u8::slice_mut(data.elements_mut()) {
        elements.copy_from_slice(&bytes);
    }
    data
}

fn text(parameter: &str, data: &TensorData) -> Result<String> {
    let bytes = u8::slice(data.elements()).map(<[u8]>::to_vec);
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| {
        let problem = format!("the name of the rule is {}, expected u8 of UTF-8", data.ty());
        invalid("optimizer", parameter, problem)
    })
}

pub(crate) fn invalid(optimizer: &'static str, parameter: &str, problem: impl Into<String>) -> OptimError {
    OptimError::InvalidState { optimizer, parameter: parameter.to_string(), problem: problem.into() }
}
