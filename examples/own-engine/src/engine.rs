//! The engine [`PlainEngine`] and its backend [`Plain`].

use crate::array::{Array, Stored};
use crate::views;
use kiln::ir::{
    BoxFuture, Caps, DTypeSet, Error, Machine, Op, OpKind, OpSet, Operand, OperandType, Operands, RandomKind,
    Result, TensorType, Value, Values, infer, philox, select_unpoisoned, poison_of, poisoned,
};
use kiln::{Backend, DType, DeviceKey, Stack, TensorData, ir};
use std::sync::Arc;

/// The ops that the engine runs for all attributes and all of its dtypes: the ops without an expansion except
/// collectives, and `Random` for speed.
const NATIVE: OpSet = OpSet::of(&[
    OpKind::Full,
    OpKind::Iota,
    OpKind::Unary,
    OpKind::Binary,
    OpKind::Compare,
    OpKind::Select,
    OpKind::Cast,
    OpKind::Bitcast,
    OpKind::Reshape,
    OpKind::Permute,
    OpKind::Broadcast,
    OpKind::Slice,
    OpKind::Concat,
    OpKind::Copy,
    OpKind::Reduce,
    OpKind::NonZero,
    OpKind::Random,
]);

const DTYPES: DTypeSet =
    DTypeSet::of(&[DType::F32, DType::I64, DType::I32, DType::U32, DType::U8, DType::Bool]);

/// A single-threaded engine of plain loops. The payload of its values is [`Array`].
pub struct PlainEngine {
    caps: Caps,
}

impl PlainEngine {
    /// Creates the engine.
    pub fn new() -> PlainEngine {
        let caps =
            Caps { name: "plain".into(), dtypes: DTYPES, native: NATIVE, machine: Machine::processor() };
        PlainEngine { caps }
    }
}

impl Default for PlainEngine {
    fn default() -> PlainEngine {
        PlainEngine::new()
    }
}

impl ir::Engine for PlainEngine {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Adds matmuls of `f32` to the native ops. Integer matmuls run by expansion.
    fn supports(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        let is_real = |operand: &OperandType<'_>| operand.tensor().is_some_and(|ty| ty.dtype == DType::F32);
        self.caps.supports(op, operands) || (op.kind() == OpKind::MatMul && operands.iter().all(is_real))
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        match run(op, &inputs) {
            Ok(value) => [value].into_iter().collect(),
            Err(error) => poisoned(results, &error),
        }
    }

    fn write(&self, data: TensorData) -> Value {
        let ty = data.ty();
        if !DTYPES.contains(ty.dtype) {
            return Value::poisoned(ty, Error::unsupported("plain", format!("{ty} is not stored here")));
        }
        Value::new(ty, Array::from_data(data))
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        Box::pin(async move { array(&value)?.to_data(*value.ty()) })
    }
}

/// Runs one op. Inference has checked operands and attributes. Result types are inferred again, because those of the
/// caller are upper bounds after an [`Op::NonZero`].
fn run(op: &Op, inputs: &Operands) -> Result<Value> {
    if let Op::Select = op
        && let Some(picked) = select_unpoisoned(inputs, |condition| constant(array(condition).ok()?))
        && let Operand::Value(value) = picked
    {
        return Ok(value.clone());
    }
    if let Some(error) = poison_of(inputs) {
        return Err(error);
    }
    let ty = infer(op, &OperandType::list(inputs))?[0];
    let tensors = inputs.iter().filter_map(Operand::value).map(array).collect::<Result<Vec<&Array>>>()?;
    let x = || tensors[0];
    let shape = || inputs.iter().find_map(Operand::value).map(|value| *value.shape()).unwrap_or_default();
    // An operand of an elementwise op; a scalar is broadcast to the length of the result.
    let filled = |place: usize, dtype: DType| match &inputs[place] {
        Operand::Value(value) => array(value).cloned(),
        Operand::Scalar(scalar) => Ok(Array::full(*scalar, dtype, ty.num_elements())),
    };
    let common = || inputs.iter().find_map(Operand::value).map_or(ty.dtype, Value::dtype);
    let result = match op {
        Op::Full(_) => filled(0, ty.dtype)?,
        Op::Iota { axis, .. } => Array::iota(&ty, *axis),
        Op::Random { distribution, .. } => random(&inputs[0], &ty, *distribution)?,
        Op::Unary(function) => x().unary(*function, ty.dtype),
        Op::Binary(function) => filled(0, ty.dtype)?.binary(*function, &filled(1, ty.dtype)?, ty.dtype),
        Op::Compare(comparison) => filled(0, common())?.compare(*comparison, &filled(1, common())?),
        Op::Select => x().select(&filled(1, ty.dtype)?, &filled(2, ty.dtype)?),
        Op::Cast(dtype) => {
            Array::from_data(x().to_data(TensorType::new(ty.shape, common()))?.convert(*dtype))
        }
        Op::Bitcast(dtype) => x().bitcast(*dtype),
        Op::Reshape(_) | Op::Copy => x().clone(),
        Op::Permute(axes) => x().picked(views::permuted(&shape(), axes), &ty.shape),
        Op::Broadcast(_) => x().picked(views::repeated(&shape(), &ty.shape), &ty.shape),
        Op::Slice(slices) => x().picked(views::sliced(&shape(), slices), &ty.shape),
        Op::Concat { axis } => {
            let lengths: Vec<usize> =
                inputs.iter().filter_map(Operand::value).map(|v| v.shape()[*axis]).collect();
            Array::concat(&tensors, &lengths, &ty.shape, *axis)
        }
        Op::Reduce { reduction, axes } => {
            let places = views::reduced(&shape(), axes);
            x().reduced(*reduction, places, &shape(), &ty)
        }
        Op::NonZero { .. } => {
            let (places, count) = x().nonzero(&shape());
            let shape = [count, shape().rank()];
            return Ok(Value::new(TensorType::new(shape, ty.dtype), places));
        }
        Op::MatMul => x().matmul(tensors[1], shape()[ty.rank() - 1], &ty.shape),
        _ => return Err(Error::unsupported("plain", format!("`{}` has no loop here", op.name()))),
    };
    Ok(Value::new(ty, result))
}

/// The payload of a value, or the error of a poisoned value.
fn array(value: &Value) -> Result<&Array> {
    if let Some(error) = value.error() {
        return Err(error.clone());
    }
    let missing = || Error::unsupported("plain", "a value of another engine");
    value.payload::<Array>().ok_or_else(missing)
}

/// The common value of all elements, or `None` if they differ.
fn constant(condition: &Array) -> Option<bool> {
    let Array::Whole(elements) = condition else { return None };
    let (first, rest) = elements.split_first()?;
    rest.iter().all(|element| element == first).then_some(*first != 0)
}

/// Random numbers, in the element order that all engines share: see [`philox`].
fn random(key: &Operand, ty: &TensorType, kind: RandomKind) -> Result<Array> {
    let key = match key {
        Operand::Scalar(scalar) => scalar.to_u64(),
        Operand::Value(_) => return Err(Error::unsupported("plain", "a key that is a tensor")),
    };
    let word = |place: u64| philox::block(key, place / 4)[(place % 4) as usize];
    let places = 0..ty.num_elements() as u64;
    Ok(match kind {
        RandomKind::Uniform => {
            Array::Real(places.map(|place| (word(place) >> 8) as f32 / (1 << 24) as f32).collect())
        }
        RandomKind::Normal => Array::Real(places.map(|place| normal(place, word)).collect()),
        RandomKind::Bits => {
            Array::Whole(places.map(|place| i64::from_number(i128::from(word(place)), ty.dtype)).collect())
        }
    })
}

/// Box-Muller transform.
fn normal(place: u64, word: impl Fn(u64) -> u32) -> f32 {
    let pair = place & !1;
    let unit = |word: u32| f64::from(word) / (1u64 << 32) as f64;
    let (u, v) = (unit(word(pair)) + unit(1), unit(word(pair + 1)) * std::f64::consts::TAU);
    let radius = (-2.0 * u.ln()).sqrt();
    (radius * if place == pair { v.cos() } else { v.sin() }) as f32
}

/// The backend of [`PlainEngine`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

/// The only device of [`Plain`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlainDevice;

impl Backend for Plain {
    type Device = PlainDevice;
    type FloatElem = f32;
    type IntElem = i32;
    type BoolElem = bool;

    fn stack(device: &PlainDevice) -> Stack {
        let engine = || Arc::new(PlainEngine::new());
        let open = || Stack::of_device(engine(), *device, "plain", DType::F32, DType::I32);
        Stack::opened::<Plain>(DeviceKey::Index(0), open)
    }
}
