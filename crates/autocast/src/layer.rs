//! The mixed-precision layer.

use crate::policy::{Precision, lowered, narrows, precision};
use crate::stored::StoredFloat;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{
    Binary, BoxFuture, Caps, DType, Engine, Error, LayerId, LoopOp, Op, Operand, OperandType, Operands,
    Recorder, Result, Scalar, TensorData, TensorType, Value, Values, expand_values, infer, pass_async,
    poisoned,
};

/// A layer that runs ops in 16 bits where they are not numerically sensitive, around the engine that runs them.
///
/// Cheap to clone and thread-safe; two layers around the same inner engine share their values.
#[derive(Clone)]
pub struct Autocast {
    inner: Arc<dyn Engine>,
    precision: LowPrecision,
}

/// The 16-bit dtype.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LowPrecision {
    /// bfloat16: the range of `f32` with 8 significant bits. Training needs no loss scaling.
    #[default]
    BF16,
    /// IEEE 754 half precision: 11 significant bits, from 6e-5 to 65504. Training needs a scaled loss.
    F16,
}

impl LowPrecision {
    /// Returns the dtype.
    pub const fn dtype(self) -> DType {
        match self {
            LowPrecision::BF16 => DType::BF16,
            LowPrecision::F16 => DType::F16,
        }
    }

    /// The smallest normal and the greatest finite number.
    const fn range(self) -> (f64, f64) {
        match self {
            LowPrecision::BF16 => (f32::MIN_POSITIVE as f64, half::bf16::MAX.to_f64_const()),
            LowPrecision::F16 => (half::f16::MIN_POSITIVE.to_f64_const(), half::f16::MAX.to_f64_const()),
        }
    }
}

/// The effect of a plain number on an op with 16-bit tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ScalarPrecision {
    /// None: 16 bits represent it exactly.
    Exact,
    /// The op is computed in `f32`, and the result rounded.
    Rounded,
    /// The op runs in `f32`, and the result stays `f32`.
    Full,
}

impl Autocast {
    /// Creates a layer around an engine.
    ///
    /// If the engine does not support the dtype, the results of ops that should run in it are poisoned.
    pub fn new(inner: Arc<dyn Engine>, precision: LowPrecision) -> Autocast {
        Autocast { inner, precision }
    }

    /// Returns the engine below.
    pub fn inner(&self) -> &Arc<dyn Engine> {
        &self.inner
    }

    /// Returns the 16-bit dtype.
    pub fn precision(&self) -> LowPrecision {
        self.precision
    }

    /// Returns the dtype in which the elements are currently stored.
    pub fn stored_dtype(&self, value: &Value) -> DType {
        self.inner_value(value).dtype()
    }

    /// Returns the inner engine's value, in its storage dtype.
    pub fn inner_value(&self, value: &Value) -> Value {
        StoredFloat::of(value, self.id()).map_or(value, StoredFloat::value).clone()
    }

    /// Wraps a value of the inner engine.
    pub fn from_inner(&self, value: Value) -> Value {
        value
    }

    /// The identity of the layer, by the engine below: two layers around one engine are the same.
    fn id(&self) -> LayerId {
        LayerId::around(&*self.inner)
    }

    /// Runs an op in 16 bits.
    fn run_low(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let dtype = self.precision.dtype();
        let caps = self.inner.caps();
        if !caps.dtypes.contains(dtype) {
            let error =
                Error::unsupported("autocast", format!("`{}` does not compute with {dtype}", caps.name));
            return poisoned(
                results,
                &error.hint("use the engine without `Autocast`, or the other precision"),
            );
        }
        let op = &*lowered(op, dtype);
        let mut operands = Operands::new();
        for (place, operand) in inputs.into_iter().enumerate() {
            operands.push(match operand {
                Operand::Value(value) if is_seen(&value) && narrows(op, place) => self.low(value).into(),
                Operand::Value(value) => self.full(value).into(),
                Operand::Scalar(scalar) => scalar.into(),
            });
        }
        let types = infer(op, &OperandType::list(&operands));
        match types {
            Ok(types) => self.wrap(self.inner.execute(op, operands, &types), results),
            Err(error) => poisoned(results, &error),
        }
    }

    /// Runs an op in `f32`.
    fn run_full(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.wrap(self.execute_full(op, inputs, results), results)
    }

    fn execute_full(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let mut widened = Operands::new();
        for operand in inputs {
            widened.push(match operand {
                Operand::Value(value) => self.full(value).into(),
                Operand::Scalar(scalar) => scalar.into(),
            });
        }
        self.inner.execute(op, widened, results)
    }

    /// The loop whose body contains the casts of its ops. Its carried values and outputs stay `f32`. `None` if an op of
    /// the body does not run in 16 bits.
    fn with_mixed_body(&self, looped: &LoopOp) -> Option<LoopOp> {
        let recorder = Arc::new(Recorder::new(&looped.body().inputs));
        let layer = Autocast::new(recorder.clone(), self.precision);
        let inputs = recorder.inputs().into_iter().map(|value| layer.lift(value)).collect();
        let results = looped.body().run(&layer, inputs);
        let outputs: Vec<Operand> = results.into_iter().map(|value| layer.full(value).into()).collect();
        let has_error =
            outputs.iter().any(|output| output.value().is_some_and(|value| value.error().is_some()));
        if has_error { None } else { looped.with_body(recorder.finish(&outputs)).ok() }
    }

    /// Runs an op in the widest precision in which an operand is stored.
    fn run_widest(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        if !self.all_low_precision(&inputs) {
            return self.run_full(op, inputs, results);
        }
        match self.numbers(op, &inputs) {
            ScalarPrecision::Exact => self.run_low(op, inputs, results),
            ScalarPrecision::Rounded => {
                let values = self.execute_full(op, inputs, results);
                let round = |value: Value| if is_seen(&value) { self.rounded(value) } else { value };
                self.wrap(values.into_iter().map(round).collect(), results)
            }
            ScalarPrecision::Full => self.run_full(op, inputs, results),
        }
    }

    /// A cast returns exactly the requested dtype.
    fn cast(&self, dtype: DType, value: Value, results: &[TensorType]) -> Values {
        let inner = self.open(value).into_value();
        let values = if inner.dtype() == dtype {
            core::iter::once(inner).collect()
        } else {
            self.inner.execute(&Op::Cast(dtype), one(inner), results)
        };
        self.wrap(values, results)
    }

    /// Whether there are operands that the program sees as `f32`, and all of them are stored in 16 bits.
    fn all_low_precision(&self, inputs: &Operands) -> bool {
        let mut seen = inputs.iter().filter_map(Operand::value).filter(|value| is_seen(value)).peekable();
        seen.peek().is_some() && seen.all(|value| self.is_low(value))
    }

    /// Whether a value that the program sees as `f32` is stored only in 16 bits.
    fn is_low(&self, value: &Value) -> bool {
        matches!(StoredFloat::of(value, self.id()), Some(StoredFloat::Low(_)))
    }

    /// Narrows a value that the program sees as `f32` to 16 bits.
    fn narrow(&self, value: Value) -> Value {
        StoredFloat::wrap(self.id(), self.low(value), DType::F32)
    }

    /// The effect of the plain numbers among the operands. `min` or `max` of a tensor and a number may return the
    /// number, and gradients search for it in the result. Ops that copy numbers without arithmetic can round them
    /// first.
    fn numbers(&self, op: &Op, inputs: &Operands) -> ScalarPrecision {
        let is_extreme = matches!(op, Op::Binary(Binary::Min | Binary::Max));
        let is_computed = matches!(op, Op::Binary(_) | Op::Compare(_));
        let of = |scalar: Scalar| match self.number(scalar) {
            ScalarPrecision::Rounded if is_extreme => ScalarPrecision::Full,
            ScalarPrecision::Rounded if is_computed => ScalarPrecision::Rounded,
            ScalarPrecision::Rounded | ScalarPrecision::Exact => ScalarPrecision::Exact,
            ScalarPrecision::Full => ScalarPrecision::Full,
        };
        inputs.iter().filter_map(Operand::scalar).map(of).max().unwrap_or(ScalarPrecision::Exact)
    }

    fn number(&self, scalar: Scalar) -> ScalarPrecision {
        let x = scalar.to_f64();
        let (least, greatest) = self.precision.range();
        if x == 0.0 || !x.is_finite() {
            return ScalarPrecision::Exact;
        }
        if x.abs() < least || x.abs() > greatest {
            return ScalarPrecision::Full;
        }
        let rounded = match self.precision {
            LowPrecision::BF16 => half::bf16::from_f64(x).to_f64(),
            LowPrecision::F16 => half::f16::from_f64(x).to_f64(),
        };
        if rounded == x { ScalarPrecision::Exact } else { ScalarPrecision::Rounded }
    }

    /// Wraps the results with the dtypes that the program sees.
    fn wrap(&self, values: Values, results: &[TensorType]) -> Values {
        let mut wrapped = Values::new();
        for (value, seen) in values.into_iter().zip(results) {
            let is_seen = seen.dtype == DType::F32;
            wrapped.push(if is_seen { StoredFloat::wrap(self.id(), value, DType::F32) } else { value });
        }
        wrapped
    }

    /// The form of a value; a value of the inner engine becomes a new form.
    fn open(&self, mut value: Value) -> StoredFloat {
        if let Some(form) = StoredFloat::take(&mut value, self.id()) {
            return form;
        }
        StoredFloat::new(self.inner_value(&value))
    }
}

/// Casts between 16 bits and `f32`.
impl Autocast {
    /// The inner engine's 16-bit value of a value that the program sees as `f32`. Each value is cast once.
    fn low(&self, mut value: Value) -> Value {
        match StoredFloat::take(&mut value, self.id()) {
            Some(StoredFloat::Low(low)) => return low,
            Some(StoredFloat::Full { full, low }) => {
                return low.try_into_inner().unwrap_or_else(|| self.rounded(full));
            }
            None => {}
        }
        match StoredFloat::of(&value, self.id()) {
            Some(StoredFloat::Low(low)) => low.clone(),
            Some(StoredFloat::Full { full, low }) => match low.get() {
                Some(low) => low.clone(),
                // Two threads that reach this point at the same time both cast; neither blocks the other within an
                // engine.
                None => low
                    .call_once({
                        let rounded = self.rounded(full.clone());
                        || rounded
                    })
                    .clone(),
            },
            None => self.rounded(value),
        }
    }

    /// The inner engine's value in the dtype that the program sees.
    fn full(&self, value: Value) -> Value {
        if !is_seen(&value) {
            return value;
        }
        match self.open(value) {
            StoredFloat::Low(low) => self.cast_inner(low, DType::F32),
            StoredFloat::Full { full, .. } => full,
        }
    }

    fn rounded(&self, full: Value) -> Value {
        self.cast_inner(full, self.precision.dtype())
    }

    fn cast_inner(&self, value: Value, dtype: DType) -> Value {
        let ty = TensorType { dtype, ..*value.ty() };
        match value.error() {
            Some(error) => Value::poisoned(ty, error.clone()),
            None => self.inner.execute(&Op::Cast(dtype), one(value), &[ty]).remove(0),
        }
    }
}

impl Engine for Autocast {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn execute(&self, op: &Op, mut inputs: Operands, results: &[TensorType]) -> Values {
        if let Op::Fused(region) = op {
            return region.program().run_region(self, inputs);
        }
        if let Op::Custom(custom) = op
            && custom.is_expression()
            && let Some(values) = expand_values(self, op, &inputs, results)
        {
            let like = custom.match_precision().and_then(|place| inputs.get(place)?.value());
            if like.is_some_and(|like| self.is_low(like)) {
                let narrow = |value| if is_seen(&value) { self.narrow(value) } else { value };
                return values.into_iter().map(narrow).collect();
            }
            return values;
        }
        if let Op::Cast(dtype) = op
            && let Some(Operand::Value(value)) = inputs.pop()
        {
            return self.cast(*dtype, value, results);
        }
        if let Op::Loop(looped) = op
            && let Some(looped) = self.with_mixed_body(looped)
        {
            return self.run_full(&Op::Loop(looped), inputs, results);
        }
        match precision(op) {
            Precision::Low if inputs.iter().any(sees) => self.run_low(op, inputs, results),
            Precision::Widest => self.run_widest(op, inputs, results),
            Precision::Low | Precision::Full | Precision::Inside => self.run_full(op, inputs, results),
        }
    }

    fn execute_async(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> BoxFuture<'_, Values> {
        pass_async(self, &*self.inner, op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        self.lift(self.inner.write(data))
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.inner.read(self.full(value))
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&*self.inner)
    }

    /// In the dtype that the program sees.
    fn lower(&self, value: Value) -> Value {
        self.full(value)
    }

    /// Parameters are lifted: the layer wraps them, so that they are cast once.
    fn lift(&self, value: Value) -> Value {
        if is_seen(&value) { StoredFloat::wrap(self.id(), value, DType::F32) } else { value }
    }

    /// With the visible dtype of `like`.
    fn rewrap(&self, like: &Value, value: Value) -> Value {
        match StoredFloat::of(like, self.id()) {
            Some(form) if form.value().same(&value) => like.clone(),
            Some(_) => StoredFloat::wrap(self.id(), value, like.dtype()),
            None => value,
        }
    }

    fn saved_for_backward(&self, op: &Op, place: usize, value: &Value) -> Value {
        let is_low = precision(op) == Precision::Low && narrows(op, place);
        let is_narrowed = is_low && is_seen(value) && value.error().is_none() && !value.is_absent();
        let value = if is_narrowed { self.narrow(value.clone()) } else { value.clone() };
        self.rewrap(&value, self.inner.saved_for_backward(op, place, &self.inner_value(&value)))
    }

    /// The outcome of the stored value: casting it to full precision would compute.
    fn outcome(&self, value: &Value) -> Option<Result<()>> {
        self.inner.outcome(&self.inner_value(value))
    }

    /// As for `outcome`.
    fn device_of(&self, value: &Value) -> Option<usize> {
        self.inner.device_of(&self.inner_value(value))
    }

    /// In the precision in which it is held.
    fn to_device(&self, value: Value, device: usize) -> Value {
        let moved = self.inner.to_device(self.inner_value(&value), device);
        self.rewrap(&value, moved)
    }

    fn mixes_precision(&self) -> bool {
        true
    }

    fn explain(&self, value: &Value) -> Option<String> {
        self.inner.explain(&self.inner_value(value))
    }
}

/// Whether the program sees the value as `f32`, so that the layer may store it in fewer bits.
fn is_seen(value: &Value) -> bool {
    value.dtype() == DType::F32
}

fn sees(operand: &Operand) -> bool {
    operand.value().is_some_and(is_seen)
}

fn one(value: Value) -> Operands {
    core::iter::once(Operand::Value(value)).collect()
}
