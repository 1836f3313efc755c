//! An engine with random noise within the numerical freedom of correct engines.
//!
//! Two correct runs of one program differ in the rounding of functions, in the order of sums, and, in a fused region,
//! in the rounding of 16-bit floats between ops. The effect through cancellation, comparisons and rounding to integers
//! depends on the program and its data. So the program runs many times with random differences of these kinds. Results
//! of any correct engine are within the range of these results.

use crate::random::Random;
use crate::tolerance::{Rule, attention, rule_of};
use kiln_ir::{
    Axes, Binary, BoxFuture, Caps, DType, Elements, Engine, Expand, Op, OpClass, Operand, OperandType,
    Operands, Reduction, Result, Scalar, TensorData, TensorType, Unary, UpdateMode, Value, Values, block_on,
    infer, poison_of, poisoned,
};
use kiln_suite::engines::cpu;
use kiln_suite::fill::{epsilon, float_limits};
use std::sync::{Mutex, PoisonError};

/// The CPU engine with random rounding, summation order and other numerical freedom.
pub(crate) struct Noisy {
    inner: Expand,
    random: Mutex<Random>,
    /// Probability of rounding a 16-bit float between two ops, in percent.
    rounding: usize,
    /// Whether equal elements get equal noise, like a function of the element. Otherwise noise differs per element, as
    /// in kernels that compute vectors and remainders differently.
    alike: bool,
    /// Whether it simulates a device: libraries multiply masked keys by 0 instead of skipping them, and threads scatter
    /// in any order.
    device: bool,
}

/// The payload of values with a 16-bit type.
struct Wide {
    /// The elements as `f32`, rounded to 16 bits or not.
    value: Value,
    /// The elementwise op that computed them, with its operands, if any. A region that does not store the value
    /// recomputes it for each use, possibly with other rounding.
    source: Option<(Op, Operands)>,
}

/// Probability of recomputing a 16-bit value for one use, in percent. Operands are recomputed with the same
/// probability: fewer than one on average, so that recursion terminates.
const ANEW: usize = 20;

impl Noisy {
    /// Creates an engine whose noise is determined by the number.
    pub(crate) fn new(number: u64) -> Noisy {
        let rounding = [50, 0, 90, 10][(number % 4) as usize];
        let random = Mutex::new(Random::new(0x0150, number));
        let alike = number / 4 % 2 == 1;
        Noisy { inner: cpu(1), random, rounding, alike, device: false }
    }

    /// Like [`Noisy::new`], for a device with libraries.
    pub(crate) fn of_device(number: u64) -> Noisy {
        Noisy { device: true, ..Noisy::new(number) }
    }

    fn random(&self) -> std::sync::MutexGuard<'_, Random> {
        self.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn op(&self, op: &Op, operands: Operands) -> Values {
        let types = infer(op, &OperandType::list(&operands)).expect("a cast or a choice of elements");
        self.inner.execute(op, operands, &types)
    }

    fn cast(&self, value: Value, dtype: DType) -> Value {
        self.op(&Op::Cast(dtype), [value.into()].into_iter().collect()).remove(0)
    }

    /// The value of the inner engine: of its type, or in `f32` for a 16-bit type.
    fn inside(&self, value: Value, exactly: bool) -> Value {
        let Some(Wide { value: wide, source }) = value.payload::<Wide>() else { return value };
        let dtype = value.dtype();
        if exactly {
            return self.cast(wide.clone(), dtype);
        }
        let anew = source.as_ref().filter(|_| self.random().chance(ANEW));
        let wide = match anew {
            Some((op, operands)) => {
                let value = self.execute(op, operands.clone(), &[*value.ty()]).remove(0);
                let wide = value.payload::<Wide>().map(|wide| wide.value.clone());
                wide.expect("the same op gives the same type")
            }
            None => wide.clone(),
        };
        let rounds = self.random().chance(self.rounding);
        if rounds { self.cast(self.cast(wide, dtype), DType::F32) } else { wide }
    }

    /// Applies a random change to every element.
    fn changed(&self, value: Value, mut change: impl FnMut(&mut Random, f64) -> f64) -> Value {
        let Ok(mut data) = block_on(self.inner.read(value.clone())) else { return value };
        let mut random = self.random();
        let call = random.bits();
        let mut one = |x: f64| match self.alike {
            true => change(&mut Random::new(call, x.to_bits()), x),
            false => change(&mut random, x),
        };
        match data.elements_mut() {
            Elements::F32(list) => list.iter_mut().for_each(|x| *x = one(f64::from(*x)) as f32),
            Elements::F64(list) => list.iter_mut().for_each(|x| *x = one(*x)),
            Elements::F16(_)
            | Elements::BF16(_)
            | Elements::I64(_)
            | Elements::I32(_)
            | Elements::I16(_)
            | Elements::I8(_)
            | Elements::U64(_)
            | Elements::U32(_)
            | Elements::U16(_)
            | Elements::U8(_)
            | Elements::Bool(_) => return value,
        }
        drop(random);
        self.inner.write(data)
    }

    /// A result with noise, as of another engine.
    fn perturbed(&self, rule: Rule, value: Value, overflows: bool) -> Value {
        let step = epsilon(value.dtype());
        match rule {
            Rule::Bits => value,
            Rule::Near(relative, absolute) => self.changed(value, |random, x| {
                // Functions of 0 may be exact, except for the sign of zero.
                if x == 0.0 && random.chance(50) {
                    return with_random_zero_and_nan(random, x);
                }
                let (one, other) = (signed_unit(random), signed_unit(random));
                with_random_zero_and_nan(random, x * (1.0 + relative * step * one) + absolute * step * other)
            }),
            // Not always: if all elements are undefined, dependent values distinguish no runs.
            Rule::Sum | Rule::Product | Rule::Measured if overflows && self.random().chance(50) => {
                let greatest = float_limits(value.dtype()).0;
                let near = greatest / 64.0;
                self.changed(value, |random, x| {
                    let wild =
                        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, greatest * signed_unit(random), x];
                    if x.abs() < near {
                        with_random_zero_and_nan(random, x)
                    } else {
                        wild[random.below(wild.len())]
                    }
                })
            }
            // Composites contain functions, which round differently even for operands of 0.
            Rule::Measured => self.changed(value, |random, x| {
                let error = 4.0 * step * signed_unit(random);
                with_random_zero_and_nan(random, x * (1.0 + error))
            }),
            Rule::Exact | Rule::Sum | Rule::Product => self.changed(value, with_random_zero_and_nan),
        }
    }

    /// Whether sums of the operands may overflow, so that the summation order decides between a number, infinity and
    /// NaN.
    fn may_overflow(&self, operands: &Operands) -> bool {
        operands.iter().filter_map(Operand::value).any(|value| {
            value.dtype().is_float() && self.largest(value) > float_limits(value.dtype()).0 / 1024.0
        })
    }

    /// An operand of a sum. Noise in the terms simulates another summation order.
    fn term(&self, value: Value) -> Value {
        let step = epsilon(value.dtype());
        self.changed(value, |random, x| x * (1.0 + 4.0 * step * signed_unit(random)))
    }

    /// Noise for sums that cancel to rounding errors: another order has other errors, or none.
    fn cancelled(&self, op: &Op, operands: &Operands, value: Value) -> Value {
        let (Op::Reduce { reduction: Reduction::Sum, .. }, Some(Operand::Value(terms))) =
            (op, operands.first())
        else {
            return value;
        };
        if !value.dtype().is_float() || value.error().is_some() {
            return value;
        }
        let absolute =
            self.op(&Op::Unary(Unary::Abs), [terms.clone().into()].into_iter().collect()).remove(0);
        let total = self.op(op, [absolute.into()].into_iter().collect()).remove(0);
        let Ok(totals) = block_on(self.inner.read(total)) else { return value };
        let count = terms.shape().num_elements() / value.shape().num_elements().max(1);
        let step = count as f64 * epsilon(value.dtype());
        let mut totals = totals.to_vec::<f64>().into_iter();
        self.changed(value, |random, x| {
            let error = step * totals.next().unwrap_or_default();
            let is_error = error.is_finite() && x.abs() <= error;
            let left = if random.chance(30) { 0.0 } else { error * signed_unit(random) };
            if is_error { left } else { x }
        })
    }

    /// Noise for elements of an FFT that cancel: another engine rounds sines and cosines differently, with another
    /// remainder.
    fn transformed(&self, op: &Op, operands: &Operands, value: Value) -> Value {
        let Op::Fft { kind, axis, .. } = op else { return value };
        if self.random().chance(50) {
            return value;
        }
        let largest = operands.iter().filter_map(Operand::value).map(|part| self.largest(part));
        let points =
            operands.first().and_then(Operand::value).map_or(0, |part| kind.points(part.shape()[*axis]));
        let largest = largest.fold(0.0, f64::max) * points as f64;
        let error = 2.0 * epsilon(value.dtype()) * largest;
        let value = self.changed(value, |random, x| x + error * signed_unit(random));
        self.infinite(*axis, operands, value)
    }

    /// FFTs of nonfinite values: NaN where an engine multiplies them by a sine or cosine of 0. Other engines skip that
    /// product, or their 0 has a rounding error.
    fn infinite(&self, axis: usize, operands: &Operands, value: Value) -> Value {
        let parts = || operands.iter().filter_map(Operand::value);
        if parts().all(|part| self.numbers(part).into_iter().all(f64::is_finite)) {
            return value;
        }
        let run = |op: Op, list: Vec<Operand>| self.op(&op, list.into_iter().collect()).remove(0);
        // A nonfinite value minus itself is NaN; any other difference is 0.
        let rest = |part: Value| run(Op::Binary(Binary::Sub), vec![part.clone().into(), part.into()]);
        let sum = |a: Value, b: Value| run(Op::Binary(Binary::Add), vec![a.into(), b.into()]);
        let Some(all) = parts().cloned().map(rest).reduce(sum) else { return value };
        let axes = Axes::new(&[axis]);
        let line = run(Op::Reduce { reduction: Reduction::Sum, axes }, vec![all.into()]);
        let lines = self.numbers(&run(Op::Broadcast(*value.shape()), vec![line.into()]));
        let mut lines = lines.into_iter();
        self.changed(value, |random, x| {
            let is_finite = lines.next().is_none_or(f64::is_finite);
            if is_finite { x } else { [x, f64::NAN, f64::INFINITY, f64::NEG_INFINITY][random.below(4)] }
        })
    }

    /// Scatter-add: atomic adds of a device flush subnormal numbers to 0.
    fn flushed(&self, op: &Op, value: Value) -> Value {
        let adds =
            matches!(op, Op::Put { mode: UpdateMode::Add, .. } | Op::Scatter { mode: UpdateMode::Add, .. });
        if !self.device || !adds || !value.dtype().is_float() || self.random().chance(50) {
            return value;
        }
        let (_, normal, _) = float_limits(value.dtype());
        self.changed(value, |_, x| if x.abs() < normal { 0.0 } else { x })
    }

    /// Whether an attention's results are undefined, at random: a nonfinite value times the weight 0 of a masked key,
    /// or scores without a significant digit.
    fn beyond_attention(&self, op: &Op, operands: &Operands) -> bool {
        if !self.device || attention(op).is_none() {
            return false;
        }
        let floats = || operands.iter().filter_map(Operand::value).filter(|value| value.dtype().is_float());
        let is_wild = |value: &Value| !self.numbers(value).into_iter().all(f64::is_finite);
        let huge = 1.0 / epsilon(DType::F32).sqrt();
        let is_beyond = floats().any(|value| self.largest(value) > huge || is_wild(value));
        is_beyond && self.random().chance(50)
    }

    /// Whether the results of multiplicative scatters or scans are undefined, at random: they multiply in any order and
    /// may overflow in between. The same for convolutions: a library may also multiply padding, and flushes values
    /// outside the 16-bit range to 0.
    fn beyond_product(&self, op: &Op, operands: &Operands) -> bool {
        let (Op::Put { mode: UpdateMode::Mul, .. }
        | Op::Scatter { mode: UpdateMode::Mul, .. }
        | Op::Scan { reduction: Reduction::Prod, .. }
        | Op::Conv { .. }) = op
        else {
            return false;
        };
        let leaves = |value: &Value| {
            let (greatest, least, _) = float_limits(value.dtype());
            let inside = |x: f64| x == 0.0 || (least.sqrt()..greatest.sqrt()).contains(&x.abs());
            value.dtype().is_float() && !self.numbers(value).into_iter().all(inside)
        };
        let any = self.device && operands.iter().filter_map(Operand::value).any(leaves);
        any && self.random().chance(50)
    }

    /// An undefined result. A reduction of it is NaN unless none of its elements is.
    fn undefined(&self, value: Value) -> Value {
        let alike = [None, Some(0.0), Some(f64::INFINITY), Some(f64::NEG_INFINITY)];
        let alike = alike[self.random().below(alike.len())];
        let nan_or_zero = |random: &mut Random| if random.chance(50) { f64::NAN } else { 0.0 };
        self.changed(value, |random, _| alike.unwrap_or_else(|| nan_or_zero(random)))
    }

    /// The greatest finite magnitude.
    fn largest(&self, value: &Value) -> f64 {
        let finite = self.numbers(value).into_iter().filter(|x| x.is_finite());
        finite.fold(0.0, |most, x| most.max(x.abs()))
    }

    /// The elements of an operand; empty for a failed one, on which no op runs.
    fn numbers(&self, value: &Value) -> Vec<f64> {
        block_on(self.inner.read(value.clone())).map(|data| data.to_vec()).unwrap_or_default()
    }

    /// Shuffles the operands of a sum or product.
    fn shuffled(&self, op: &Op, mut operands: Operands) -> Operands {
        if let Op::Reduce { reduction: Reduction::Sum | Reduction::Prod, axes } = op {
            axes.iter().for_each(|axis| self.shuffle(&mut operands, &[(0, axis)]));
        }
        if *op == Op::MatMul {
            let rank = operands.first().and_then(Operand::value).map_or(2, |value| value.shape().rank());
            self.shuffle(&mut operands, &[(0, rank - 1), (1, rank - 2)]);
        }
        operands
    }

    /// Permutes the elements of axes of equal length in several operands, in the same way.
    fn shuffle(&self, operands: &mut Operands, places: &[(usize, usize)]) {
        let mut index = None;
        for &(place, axis) in places {
            let Some(Operand::Value(value)) = operands.get(place).cloned() else { return };
            let index = index.get_or_insert_with(|| {
                let len = value.shape()[axis];
                let order: Vec<i64> = self.random().permutation(len).into_iter().map(|i| i as i64).collect();
                self.inner.write(TensorData::new(order, [len]).expect("as many indices as the axis is long"))
            });
            let taken = [value.into(), index.clone().into()].into_iter().collect();
            operands[place] = self.op(&Op::Take { axis }, taken).remove(0).into();
        }
    }

    /// A scalar operand of 16-bit floats, rounded to 16 bits or not.
    fn number(&self, scalar: Scalar, beside: Option<DType>) -> Scalar {
        let rounds = self.random().chance(self.rounding);
        match beside {
            Some(DType::F16) if rounds => Scalar::Float(half::f16::from_f64(scalar.to_f64()).to_f64()),
            Some(DType::BF16) if rounds => Scalar::Float(half::bf16::from_f64(scalar.to_f64()).to_f64()),
            Some(_) | None => scalar,
        }
    }

    fn outside(&self, value: Value, ty: &TensorType, source: Option<(Op, Operands)>) -> Value {
        if let Some(error) = value.error() {
            return Value::poisoned(*ty, error.clone());
        }
        if !is_narrow(ty.dtype) {
            return value;
        }
        let wide = if value.dtype() == DType::F32 { value } else { self.cast(value, DType::F32) };
        Value::new(ty.with_shape(*wide.shape()), Wide { value: wide, source })
    }
}

/// A uniform number in `[-1, 1]`.
fn signed_unit(random: &mut Random) -> f64 {
    2.0 * random.uniform() - 1.0
}

/// Randomizes the sign of a zero and the bits of a NaN.
fn with_random_zero_and_nan(random: &mut Random, x: f64) -> f64 {
    if x == 0.0 || x.is_nan() {
        let payload = if x.is_nan() && random.chance(50) { 0x7ff8_0000_2000_0000 } else { x.to_bits() };
        let x = f64::from_bits(payload);
        return if random.chance(50) { -x } else { x };
    }
    x
}

/// Whether a region may recompute the op rather than store its result.
fn is_cheap(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_)
            | Op::Binary(_)
            | Op::Select
            | Op::Cast(_)
            | Op::Reshape(_)
            | Op::Permute(_)
            | Op::Broadcast(_)
            | Op::Slice(_)
    )
}

fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// The op with 16-bit floats replaced by `f32`; `None` if it needs 16 bits.
fn widened(op: &Op) -> Option<Op> {
    if op.info().class == OpClass::Creation || matches!(op, Op::Bitcast(_)) {
        return None;
    }
    if matches!(op, Op::Cast(dtype) if is_narrow(*dtype)) {
        return Some(Op::Cast(DType::F32));
    }
    if let Op::MatMulFloat8 { formats, dtype } = *op
        && is_narrow(dtype)
    {
        return Some(Op::MatMulFloat8 { formats, dtype: DType::F32 });
    }
    if let Op::DequantizeBlocks { format, dtype } = *op
        && is_narrow(dtype)
    {
        return Some(Op::DequantizeBlocks { format, dtype: DType::F32 });
    }
    Some(op.clone())
}

impl Engine for Noisy {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        if let Op::Fused(fused) = op {
            return fused.program().run_region(self, inputs);
        }
        if let Some(error) = poison_of(&inputs) {
            return poisoned(results, &error);
        }
        // Engines run the expansion of a custom op, with rounding between its ops.
        let expands = matches!(op, Op::Custom(_)) && self.random().chance(self.rounding);
        let wide = if expands { None } else { widened(op) };
        let source = is_cheap(op).then(|| (op.clone(), inputs.clone()));
        let beside = inputs.iter().filter_map(Operand::value).map(Value::dtype).find(|&d| is_narrow(d));
        let rule = rule_of(op);
        let sums = matches!(rule, Rule::Sum | Rule::Product | Rule::Measured);
        let mut operands = Operands::new();
        for operand in inputs {
            operands.push(match operand {
                Operand::Scalar(scalar) => self.number(scalar, beside).into(),
                Operand::Value(value) => {
                    let value = self.inside(value, wide.is_none());
                    if sums { self.term(value).into() } else { value.into() }
                }
            });
        }
        let op = wide.as_ref().unwrap_or(op);
        let operands = self.shuffled(op, operands);
        if let Some(error) = poison_of(&operands) {
            return poisoned(results, &error);
        }
        let types = match infer(op, &OperandType::list(&operands)) {
            Ok(types) => types,
            Err(error) => return poisoned(results, &error),
        };
        let overflows = sums && self.may_overflow(&operands);
        let beyond = self.beyond_attention(op, &operands) || self.beyond_product(op, &operands);
        let values: Values = self.inner.execute(op, operands.clone(), &types);
        let values = values.into_iter().map(|value| self.cancelled(op, &operands, value));
        let values = values.map(|value| self.flushed(op, self.transformed(op, &operands, value)));
        let odd = values.map(|value| {
            let value = self.perturbed(rule, value, overflows);
            match beyond {
                true => self.undefined(value),
                false => value,
            }
        });
        odd.zip(results).map(|(value, ty)| self.outside(value, ty, source.clone())).collect()
    }

    fn write(&self, data: TensorData) -> Value {
        let ty = data.ty();
        let value = self.inner.write(data);
        self.outside(value, &ty, None)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        let value = self.inside(value, true);
        Box::pin(async { self.inner.read(value).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{Float8, Var};

    fn runs(body: impl Fn(&Noisy) -> Value) -> Vec<Vec<f64>> {
        (0..16)
            .map(|number| {
                let engine = Noisy::new(number);
                let value = body(&engine);
                block_on(engine.read(value)).unwrap().to_vec()
            })
            .collect()
    }

    #[test]
    fn zeros_of_float8_matmuls_have_either_sign() {
        let signs = runs(|engine| {
            let write = |data: TensorData| Var::new(engine, engine.write(data));
            let bits = |bits: u8| write(TensorData::new(vec![bits], [1, 1]).unwrap());
            let scale = write(TensorData::new(vec![1.0f32], []).unwrap());
            let formats = [Float8::E5M2, Float8::E5M2];
            let op = Op::MatMulFloat8 { formats, dtype: DType::F16 };
            let product = bits(0).apply(op, &[&bits(0xc0), &scale, &scale]);
            product.apply(Op::Bitcast(DType::I16), &[]).into_value()
        });
        assert!(signs.contains(&vec![0.0]) && signs.contains(&vec![f64::from(i16::MIN)]), "{signs:?}");
    }

    #[test]
    fn exact_ops_have_no_noise() {
        let found = runs(|engine| {
            let x = Var::new(engine, engine.write(TensorData::from([1.5f32, -2.25, 3.0])));
            (&x * 2.0 + &x).into_value()
        });
        assert!(found.iter().all(|list| list == &[4.5, -6.75, 9.0]), "{found:?}");
    }

    #[test]
    fn equal_elements_may_get_equal_noise() {
        let found = runs(|engine| {
            let x = TensorData::from([0.3f32; 32]);
            Var::new(engine, engine.write(x)).unary(Unary::Tanh).into_value()
        });
        let alike = |list: &Vec<f64>| list.iter().all(|x| *x == list[0]);
        assert!(found.iter().any(alike) && !found.iter().all(alike), "{found:?}");
        let mut firsts: Vec<f64> = found.iter().filter(|list| alike(list)).map(|list| list[0]).collect();
        firsts.dedup();
        assert!(firsts.len() > 1, "{firsts:?}");
    }

    #[test]
    fn sixteen_bit_intermediates_are_optionally_rounded() {
        let found = runs(|engine| {
            let x = TensorData::from([2049.0f32]).convert(DType::F16);
            let x = Var::new(engine, engine.write(x));
            ((&x + 1.0) - &x).into_value()
        });
        assert!(found.contains(&vec![1.0]), "{found:?}");
        assert!(found.iter().any(|list| list != &[1.0]), "{found:?}");
    }

    #[test]
    fn sums_and_functions_vary_by_rounding() {
        let found = runs(|engine| {
            let x = TensorData::new((0..64).map(|i| i as f32 * 0.1).collect(), [64]).unwrap();
            Var::new(engine, engine.write(x)).exp().sum(&[0]).into_value()
        });
        let first = found[0][0];
        assert!(found.iter().any(|list| list[0] != first), "{found:?}");
        assert!(found.iter().all(|list| (list[0] / first - 1.0).abs() < 1e-5), "{found:?}");
    }

    #[test]
    fn possible_overflows_are_optional() {
        let found = runs(|engine| {
            let x = Var::new(engine, engine.write(TensorData::new(vec![3e36f32; 64], [8, 8]).unwrap()));
            x.sum(&[0]).sum(&[1]).into_value()
        });
        assert!(found.iter().any(|list| list[0].is_finite()), "{found:?}");
        assert!(found.iter().any(|list| !list[0].is_finite()), "{found:?}");
    }

    #[test]
    fn ffts_have_rounding_noise() {
        let found = runs(|engine| {
            let part = |list: &[f32]| engine.write(TensorData::from(list));
            let op = Op::Fft { kind: kiln_ir::FftKind::Complex, axis: 0, inverse: false };
            let operands = [part(&[1.0, 1.0]).into(), part(&[0.0, 0.0]).into()].into_iter().collect();
            engine.execute(&op, operands, &[TensorType::new([2], DType::F32); 2]).remove(0)
        });
        assert!(found.iter().all(|list| list[1].abs() < 1e-6), "{found:?}");
        assert!(found.iter().any(|list| list[1] != 0.0), "{found:?}");
    }

    #[test]
    fn library_attention_may_read_masked_keys() {
        let attention = |engine: Noisy| -> Vec<f64> {
            let tensor = |list: &[f32], shape: [usize; 4]| {
                engine.write(TensorData::new(list.to_vec(), shape).unwrap()).into()
            };
            let keys = tensor(&[1.0, f32::NAN], [1, 1, 2, 1]);
            let operands = [tensor(&[1.0], [1, 1, 1, 1]), keys, tensor(&[1.0, 1.0], [1, 1, 2, 1])];
            let op = Op::Attention(kiln_ir::AttentionSpec { scale: 1.0.into(), causal: Some(0) });
            let types = infer(&op, &OperandType::list(&operands)).unwrap();
            let value = engine.execute(&op, operands.into_iter().collect(), &types).remove(0);
            block_on(engine.read(value)).unwrap().to_vec()
        };
        let is_nan = |list: Vec<f64>| list[0].is_nan();
        assert!((0..16).all(|number| !is_nan(attention(Noisy::new(number)))));
        assert!((0..16).any(|number| is_nan(attention(Noisy::of_device(number)))));
    }

    #[test]
    fn ffts_vary_only_in_lines_with_infinities() {
        let found = runs(|engine| {
            let part = |list: [f32; 4]| engine.write(TensorData::new(list.to_vec(), [2, 2]).unwrap());
            let op = Op::Fft { kind: kiln_ir::FftKind::Complex, axis: 0, inverse: false };
            let real = part([f32::INFINITY, 1.0, 1.0, 2.0]);
            let operands = [real.into(), part([0.0; 4]).into()].into_iter().collect();
            engine.execute(&op, operands, &[TensorType::new([2, 2], DType::F32); 2]).remove(0)
        });
        let kept = |list: &&Vec<f64>| list[0] == f64::INFINITY;
        assert!((1..16).contains(&found.iter().filter(kept).count()), "{found:?}");
        assert!(found.iter().all(|list| list[1].is_finite() && list[3].is_finite()), "{found:?}");
    }

    #[test]
    fn atomic_sums_may_lose_subnormal_numbers() {
        let scattered = |engine: Noisy| -> Vec<f64> {
            let tensor = |list: &[f32]| engine.write(TensorData::from(list)).into();
            let index = engine.write(TensorData::from([1i32, 0])).into();
            let operands = [tensor(&[0.0, 0.0]), index, tensor(&[1e-40, 1.0])].into_iter().collect();
            let op = Op::Scatter { axis: 0, mode: UpdateMode::Add };
            let value = engine.execute(&op, operands, &[TensorType::new([2], DType::F32)]).remove(0);
            block_on(engine.read(value)).unwrap().to_vec()
        };
        assert!((0..16).all(|number| scattered(Noisy::new(number))[1] != 0.0));
        let on_device: Vec<Vec<f64>> = (0..16).map(|number| scattered(Noisy::of_device(number))).collect();
        assert!(on_device.iter().any(|list| list[1] == 0.0) && on_device.iter().any(|list| list[1] != 0.0));
        assert!(on_device.iter().all(|list| list[0] != 0.0));
    }
}
