//! Structured loops: a program that runs once for each step, as one op.

use crate::{Error, IMMEDIATE, MAX_RANK, OpKind, OpSet, Program, Result, TensorType};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A loop over steps, as one op: a body, and the roles of its inputs and outputs. A clone copies one pointer.
///
/// The operands are the initial carried values, then the scanned tensors, then the constants. Axis 0 of a scanned
/// tensor has the length [`steps`](LoopAttributes::steps). All operands are tensors.
///
/// The inputs of the body are the carried values, one slice of each scanned tensor (without axis 0), and the constants.
/// Its outputs are the new carried values, of the same types, then the outputs of the step. The results of the op are
/// the final carried values, then each output of a step, stacked along a new axis 0.
///
/// This is [`lax.scan`](https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html) of JAX and
/// [`Scan`](https://onnx.ai/onnx/operators/onnx__Scan.html) of ONNX.
///
/// ```
/// use kiln_ir::{DType, LoopAttributes, LoopOp, Recorder, TensorType};
///
/// // A running sum of 5 rows: the sum is carried, and also the output of each step.
/// let row = TensorType::new([3], DType::F32);
/// let body = Recorder::trace(&[row, row], |inputs| {
///     let sum = &inputs[0] + &inputs[1];
///     vec![sum.clone(), sum]
/// });
/// let attributes = LoopAttributes { carried: 1, scanned: 1, steps: 5, reverse: false };
/// assert!(LoopOp::new(body, attributes).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LoopOp(Arc<Loop>);

#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Loop {
    body: Arc<Program>,
    attributes: LoopAttributes,
    /// The kinds of the body's ops.
    #[serde(skip)]
    kinds: OpSet,
}

/// The roles of the operands of a [`LoopOp`], and its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LoopAttributes {
    /// The number of carried values.
    pub carried: usize,
    /// The number of scanned tensors, which follow them. All other operands are constants.
    pub scanned: usize,
    /// The number of steps. With 0 steps, the final carried values are the initial ones.
    pub steps: usize,
    /// Whether the last step runs first. The outputs of a step are stored at its index in either direction.
    pub reverse: bool,
}

impl LoopAttributes {
    /// Returns the indices of the steps, in the order in which they run.
    pub fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let LoopAttributes { steps, reverse, .. } = *self;
        (0..steps).map(move |step| if reverse { steps - 1 - step } else { step })
    }
}

impl LoopOp {
    /// Creates the loop of a body, owned or shared.
    ///
    /// # Errors
    /// When the body has fewer inputs or outputs than the attributes name. When a new carried value has another type
    /// than the old one, or [`MAX_RANK`] axes. When the body contains [`Op::NonZero`](crate::Op::NonZero), whose result
    /// has another shape in each step.
    pub fn new(body: impl Into<Arc<Program>>, attributes: LoopAttributes) -> Result<LoopOp> {
        let body = body.into();
        check(&body, &attributes)
            .map_err(|problem| Error::program(format!("the body of `loop`: {problem}")))?;
        Ok(LoopOp::of(body, attributes))
    }

    fn of(body: Arc<Program>, attributes: LoopAttributes) -> LoopOp {
        let kinds = body.kinds();
        LoopOp(Arc::new(Loop { body, attributes, kinds }))
    }

    /// Returns the program of one step.
    pub fn body(&self) -> &Program {
        &self.0.body
    }

    /// Returns the program of one step, shared.
    pub fn shared(&self) -> &Arc<Program> {
        &self.0.body
    }

    /// Returns the roles of the operands, and the steps.
    #[inline]
    pub fn attributes(&self) -> LoopAttributes {
        self.0.attributes
    }

    /// Returns the kinds of the [body's](Program::kinds) ops.
    #[inline]
    pub fn kinds(&self) -> OpSet {
        self.0.kinds
    }

    /// Whether the value of each slot of the body is the same in each step: that of constants, and of ops of them.
    pub(crate) fn fixed_slots(&self) -> Vec<bool> {
        let LoopAttributes { carried, scanned, .. } = self.attributes();
        let mut fixed: Vec<bool> =
            (0..self.body().inputs.len()).map(|slot| slot >= carried + scanned).collect();
        for instruction in &self.body().instructions {
            let is_fixed = !instruction.op.is(IMMEDIATE) && instruction.slots().all(|slot| fixed[slot]);
            fixed.extend(instruction.results.iter().map(|_| is_fixed));
        }
        fixed
    }

    /// Returns the same loop with an equivalent body, for example one whose ops are fused.
    ///
    /// # Errors
    /// As [`new`](LoopOp::new).
    pub fn with_body(&self, body: impl Into<Arc<Program>>) -> Result<LoopOp> {
        LoopOp::new(body, self.attributes())
    }
}

/// Checks the interface of a body. The body itself need not be [valid](mod@crate::verify).
fn check(body: &Program, attributes: &LoopAttributes) -> Result<(), alloc::string::String> {
    let &LoopAttributes { carried, scanned, .. } = attributes;
    let inputs = body.inputs.len();
    if carried.checked_add(scanned).is_none_or(|least| least > inputs) {
        return Err(format!(
            "{carried} carried and {scanned} scanned values are more than its {inputs} inputs"
        ));
    }
    let types: Vec<TensorType> =
        body.output_types().map_err(|slot| format!("its output %{slot} does not exist"))?;
    if types.len() < carried {
        return Err(format!("{carried} carried values are more than its {} outputs", types.len()));
    }
    for (place, (before, after)) in body.inputs[..carried].iter().zip(&types).enumerate() {
        if before != after {
            return Err(format!("the carried value {place} is {before} before a step and {after} after it"));
        }
        if before.rank() >= MAX_RANK {
            return Err(format!("the carried value {place}, {before}, leaves no axis for the steps"));
        }
    }
    if body.kinds().contains(OpKind::NonZero) {
        return Err("`nonzero` has a result of another shape in each step".into());
    }
    Ok(())
}

impl Serialize for LoopOp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LoopOp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LoopOp, D::Error> {
        let Loop { body, attributes, .. } = Loop::deserialize(deserializer)?;
        LoopOp::new(body, attributes).map_err(serde::de::Error::custom)
    }
}
