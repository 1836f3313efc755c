//! Ops defined outside Kiln.

use crate::within::Within;
use crate::{
    Engine, Error, Op, Operand, OperandType, Operands, Result, ResultTypes, Saved, TensorData, TensorType,
    Value, Values, Var, infer,
};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An operation defined outside Kiln.
///
/// It needs [`infer`](CustomOp::infer) and at least one way to run: an [`expand`](CustomOp::expand)sion in
/// Kiln's ops, which every engine can run; [`evaluate`](CustomOp::evaluate) on the host; or a kernel that is
/// [registered](crate::Expand::register_kernel) under its name. To be differentiated it needs [`vjp`](CustomOp::vjp) or an expansion.
pub trait CustomOp: Any + fmt::Debug + Send + Sync {
    /// The op's name, the key in messages, kernel registries and the text form.
    fn name(&self) -> &str;

    /// The attributes of the op as text: everything besides the name that distinguishes it from others. Two custom ops
    /// are equal if name and attributes are.
    fn attributes(&self) -> String {
        String::new()
    }

    /// Checks the operands and returns the types of the results.
    ///
    /// # Errors
    /// When the op does not accept the operands; [`Error::type_error`] creates the usual form.
    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes>;

    /// Decomposes the op into simpler ops; `None` if there is no such form.
    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        let _ = inputs;
        None
    }

    /// A built-in op that returns the same results for the same operands; `None` by default. Engines run it instead of
    /// the expansion. It can write into an operand that has no other owner, which the expansion cannot because it
    /// borrows its operands. Autodiff and vmap layers still use the expansion, so the op needs one too.
    fn equivalent(&self) -> Option<Op> {
        None
    }

    /// Whether the op is only a name for its expansion and for its gradient rule. A fusion layer then fuses the ops of
    /// the expansion. No engine below receives the op or searches for a kernel of that name.
    fn is_expression(&self) -> bool {
        false
    }

    /// For an [expression](CustomOp::is_expression), the operand whose precision a layer of
    /// [mixed precision](crate::Engine::mixes_precision) uses for the results. If the layer holds that operand in 16
    /// bits, it rounds the results of the expansion to 16 bits. With `None` the results are as the ops of the expansion
    /// leave them.
    fn match_precision(&self) -> Option<usize> {
        None
    }

    /// Computes the results on the host; `None` if that is not provided. It is used if there is neither a kernel nor an
    /// expansion.
    fn evaluate(&self, inputs: &[TensorData]) -> Option<Result<Vec<TensorData>>> {
        let _ = inputs;
        None
    }

    /// The gradients of the operands, given those of the results (`None`: zero). `None` if the op has no gradient rule;
    /// its expansion is then differentiated. One entry per operand, `None` for an operand without a gradient, or whose
    /// gradient is not needed.
    fn vjp<'e>(
        &self,
        inputs: &[Var<'e>],
        outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Result<Vec<Option<Var<'e>>>>> {
        let _ = (inputs, outputs, gradients);
        None
    }

    /// The operands and results whose data [`vjp`](CustomOp::vjp) reads. The rule gets only the types of the others,
    /// and a tape need not save them. All by default.
    fn saved(&self) -> Saved {
        Saved::ALL
    }

    /// Whether the op is memory-bound, so that recomputing it costs little more than reading its results would. A tape
    /// with checkpointing then saves only the operands.
    fn is_cheap(&self) -> bool {
        false
    }

    /// The batched form of this op (vmap). All its tensor operands and results have an additional leading axis. Slice
    /// `i` of the results is this op applied to slice `i` of the operands. Elementwise ops and ops that allow leading
    /// axes return themselves.
    ///
    /// With `None` a vmap layer runs the expansion instead, or one example after the other. Under vmap, an op keeps its
    /// own [`vjp`](CustomOp::vjp) rule only with this method.
    fn batched(&self) -> Option<Custom> {
        None
    }
}

/// A shared [`CustomOp`], the payload of [`Op::Custom`].
#[derive(Clone)]
pub struct Custom(Arc<dyn CustomOp>);

impl Custom {
    /// Wraps an op.
    pub fn new(op: impl CustomOp) -> Custom {
        Custom(Arc::new(op))
    }

    /// Returns the op as this type, if it is of this type.
    pub fn downcast<T: CustomOp>(&self) -> Option<&T> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// Returns the op's [expansion](CustomOp::expand). A panic of a [`Var`] in its code names the op and its operands.
    pub fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        let within = Within::new(self, "expand", inputs);
        let outputs = self.0.expand(&inside(&within, inputs))?;
        Some(outputs.into_iter().map(|var| var.in_code_of(None)).collect())
    }

    /// Computes the op's [gradients](CustomOp::vjp). A panic of a [`Var`] in its code names the op and its operands.
    ///
    /// # Errors
    /// `Some(Err(_))` when the op's code returns one.
    pub fn vjp<'e>(
        &self,
        inputs: &[Var<'e>],
        outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Result<Vec<Option<Var<'e>>>>> {
        let within = Within::new(self, "vjp", inputs);
        let known = |gradient: &Option<Var<'e>>| {
            gradient.as_ref().map(|var| var.clone().in_code_of(Some(within.clone())))
        };
        let gradients: Vec<_> = gradients.iter().map(known).collect();
        let found = self.0.vjp(&inside(&within, inputs), &inside(&within, outputs), &gradients)?;
        let outside = |gradient: Option<Var<'e>>| gradient.map(|var| var.in_code_of(None));
        Some(found.map(|found| found.into_iter().map(outside).collect()))
    }

    /// Returns the values of the op's [expansion](CustomOp::expand) on an engine; `None` if it has none. A plain number
    /// among them becomes a rank-0 tensor.
    ///
    /// # Errors
    /// When the expansion does not return the `results` of [`infer`](CustomOp::infer): too few or too many, or one of
    /// another shape or dtype.
    pub fn expand_values(
        &self,
        engine: &dyn Engine,
        inputs: &[Operand],
        results: &[TensorType],
    ) -> Option<Result<Values>> {
        let variables: Vec<Var<'_>> = inputs.iter().map(|input| Var::new(engine, input.clone())).collect();
        let outputs = self.expand(&variables)?;
        drop(variables);
        let value = |(place, output): (usize, Var<'_>)| match output.into_operand() {
            Operand::Value(value) => value,
            Operand::Scalar(scalar) => {
                let dtype = results.get(place).map(|ty| ty.dtype).filter(|&dtype| scalar.fits(dtype));
                let ty = TensorType::new([], dtype.unwrap_or(scalar.default_dtype()));
                Var::full(engine, ty, scalar).into_value()
            }
        };
        let values: Values = outputs.into_iter().enumerate().map(value).collect();
        let agreed = self.agree("expand", values.iter().map(|value: &Value| *value.ty()), results);
        Some(agreed.map(|()| values))
    }

    /// Returns the op's [equivalent](CustomOp::equivalent) for these operands; `None` if it has none, or another custom
    /// op.
    ///
    /// # Errors
    /// When the equivalent does not accept the operands, or does not return the `results` of
    /// [`infer`](CustomOp::infer).
    pub fn equivalent_for(&self, inputs: &[Operand], results: &[TensorType]) -> Option<Result<Op>> {
        let op = self.0.equivalent().filter(|op| !matches!(op, Op::Custom(_)))?;
        let types = infer(&op, &OperandType::list(inputs));
        let agreed = types.and_then(|types| self.agree("equivalent", types.into_iter(), results));
        Some(agreed.map(|()| op))
    }

    /// Returns the results of [`evaluate`](CustomOp::evaluate); `None` if it is not provided.
    ///
    /// # Errors
    /// The errors of the evaluation, or when it does not return the `results` of [`infer`](CustomOp::infer).
    pub fn evaluate_as(
        &self,
        inputs: &[TensorData],
        results: &[TensorType],
    ) -> Option<Result<Vec<TensorData>>> {
        let outputs = self.0.evaluate(inputs)?;
        Some(outputs.and_then(|outputs| self.agreed("evaluate", outputs, results)))
    }

    /// Checks that the outputs of code for this op have the types that [`infer`](CustomOp::infer) returned. `code` is
    /// the name of that code in messages.
    ///
    /// # Errors
    /// When a type or the number of outputs differs; the message names both.
    pub fn agreed(
        &self,
        code: &str,
        outputs: Vec<TensorData>,
        results: &[TensorType],
    ) -> Result<Vec<TensorData>> {
        self.agree(code, outputs.iter().map(TensorData::ty), results).map(|()| outputs)
    }

    pub(crate) fn agree(
        &self,
        code: &str,
        found: impl Iterator<Item = TensorType>,
        results: &[TensorType],
    ) -> Result<()> {
        let found: Vec<TensorType> = found.collect();
        if found == results {
            return Ok(());
        }
        let problem = format!("`{code}` returns {} instead of {}", list(&found), list(results));
        Err(Error::value(self.name(), problem).hint(format!("`{code}` and `infer` of the op must agree")))
    }

    /// Converts the operands to host data. `read` reads tensors. Plain numbers take the dtype of the first tensor if it
    /// can represent them ([`TensorData::operand`]).
    ///
    /// # Errors
    /// The errors of `read`.
    pub fn on_host(
        inputs: Operands,
        mut read: impl FnMut(Value) -> Result<TensorData>,
    ) -> Result<Vec<TensorData>> {
        let beside = inputs.iter().find_map(Operand::value).map(Value::dtype);
        let data = |operand| match operand {
            Operand::Value(value) => read(value),
            Operand::Scalar(scalar) => Ok(TensorData::operand(scalar, beside)),
        };
        inputs.into_iter().map(data).collect()
    }

    /// Creates an op from its name and attributes, with the constructor passed to [`register`](Custom::register).
    ///
    /// # Errors
    /// When nothing is registered under that name, or it does not accept the attributes.
    pub fn from_parts(name: &str, attributes: &str) -> Result<Custom> {
        registry::make(name, attributes)
    }

    /// Registers the constructor for the custom ops of a name, so that they can be parsed from text and deserialized.
    /// It takes the attributes, and replaces an earlier registration.
    #[cfg(feature = "std")]
    pub fn register(name: &str, make: fn(attributes: &str) -> Result<Custom>) {
        registry::add(name, make);
    }
}

/// Marks operands as used in the code of a custom op.
fn inside<'e>(within: &Arc<Within>, vars: &[Var<'e>]) -> Vec<Var<'e>> {
    vars.iter().map(|var| var.clone().in_code_of(Some(within.clone()))).collect()
}

fn list(types: &[TensorType]) -> String {
    if types.is_empty() {
        return "nothing".into();
    }
    types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Deref for Custom {
    type Target = dyn CustomOp;
    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Custom) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.name() == other.name() && self.attributes() == other.attributes())
    }
}

impl Eq for Custom {}

impl Hash for Custom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
        self.attributes().hash(state);
    }
}

/// The serde form of a custom op.
#[derive(Serialize, Deserialize)]
struct Parts {
    name: String,
    attributes: String,
}

impl Serialize for Custom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Parts { name: self.name().into(), attributes: self.attributes() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Custom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Custom, D::Error> {
        let Parts { name, attributes } = Parts::deserialize(deserializer)?;
        Custom::from_parts(&name, &attributes).map_err(serde::de::Error::custom)
    }
}

fn unknown(name: &str) -> Error {
    Error::value(name, "no custom op is registered under this name")
        .hint("call `Custom::register` with the name before reading programs or messages that contain it")
}

#[cfg(feature = "std")]
mod registry {
    use super::{Custom, unknown};
    use crate::Result;
    use alloc::collections::BTreeMap;
    use alloc::string::String;
    use std::sync::{PoisonError, RwLock};

    type Make = fn(&str) -> Result<Custom>;
    static MAKERS: RwLock<BTreeMap<String, Make>> = RwLock::new(BTreeMap::new());

    pub(super) fn add(name: &str, make: Make) {
        MAKERS.write().unwrap_or_else(PoisonError::into_inner).insert(name.into(), make);
    }

    pub(super) fn make(name: &str, attributes: &str) -> Result<Custom> {
        let make = MAKERS.read().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        make.ok_or_else(|| unknown(name)).and_then(|make| make(attributes))
    }
}

#[cfg(not(feature = "std"))]
mod registry {
    use super::{Custom, unknown};
    use crate::Result;

    pub(super) fn make(name: &str, _attributes: &str) -> Result<Custom> {
        Err(unknown(name))
    }
}
