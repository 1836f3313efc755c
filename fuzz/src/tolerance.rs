//! Error bounds between two engines on one op with the same operands.
//!
//! The reference computes in `f64` and rounds once. An engine computes in the accumulator of the dtype and may round at
//! every step and sum in another order. The error bound depends on the op:
//!
//! * Ops that move or compare elements, or round once, are exact.
//! * A sum of `n` products has an error of at most about `n ε Σ|terms|`
//!   ([Higham 2002](https://doi.org/10.1137/1.9780898718027), §3.1). The reference itself computes `Σ|terms|`: it is the
//!   same op on the absolute values. The op on ones counts the terms.
//! * A product of `n` factors has a relative error of at most about `n ε`.
//! * For other composites, the condition number is measured: operands are perturbed by a relative `ε`, and the bound is
//!   a multiple of the change of the result.
//!
//! Where an intermediate can overflow the accumulator, which is wider for the reference, any result is accepted.

use crate::random::Random;
use crate::trace::{HostOperand, run_on};
use kiln_ir::{
    AttentionSpec, Binary, DType, Effort, Elements, Fact, FftKind, Op, OpClass, OpKind, PoolKind, PoolSpec,
    RandomKind, Reduction, Scalar, Shape, TensorData, Unary, UpdateMode,
};
use kiln_suite::case::Tolerance;
use kiln_suite::compare;
use kiln_suite::engines::reference;
use kiln_suite::fill::{epsilon, float_limits};

/// The kind of computation that is compared with the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Computed {
    /// An engine's own kernel.
    Natively,
    /// A kernel of a device engine or vendor library, with fewer guarantees than Kiln's CPU kernels.
    Elsewhere,
    /// An engine's kernels, by the batching rule: one op or a few.
    Batched,
    /// The expansion, which rounds to the dtype after each of its ops.
    Expanded,
}

/// How the results of an op are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// The same bits.
    Bits,
    /// Equal numbers: the sign of zero and the bits of NaN may differ.
    Exact,
    /// Within multiples of epsilon, relative to the magnitude and to 1.
    Near(f64, f64),
    /// A sum of products of operands.
    Sum,
    /// A product of operands.
    Product,
    /// By perturbation of the operands.
    Measured,
}

/// Describes the first difference of results and expected results, if any.
pub(crate) fn difference(
    op: &Op,
    operands: &[HostOperand],
    expected: &[TensorData],
    actual: &[TensorData],
    computed: Computed,
) -> Option<String> {
    if expected.len() != actual.len() {
        return Some(format!("{} results instead of {}", actual.len(), expected.len()));
    }
    (0..expected.len()).find_map(|place| {
        let (expected, actual) = (&expected[place], &actual[place]);
        let same = expected.ty() == actual.ty() && expected.bytes() == actual.bytes();
        let judge = ResultComparison { op, operands, place, computed };
        if same { None } else { judge.difference(expected, actual) }
            .map(|text| format!("result {place}: {text}"))
    })
}

/// Whether an op is exact: every engine returns the same bits for equal operands, except for signs of zero and NaN
/// bits, and results do not depend on those.
pub(crate) fn is_exact(op: &Op, dtypes: &[DType], results: &[DType]) -> bool {
    let floats = |list: &[DType]| list.iter().any(|dtype| dtype.is_float());
    let only_moves = rule(op, Computed::Natively) == Rule::Bits && !matches!(op, Op::Bitcast(_));
    only_moves || !floats(dtypes) && (!floats(results) || rule(op, Computed::Natively) == Rule::Exact)
}

/// The rule that compares an engine's native result with the reference.
pub(crate) fn rule_of(op: &Op) -> Rule {
    rule(op, Computed::Natively)
}

fn rule(op: &Op, computed: Computed) -> Rule {
    let kind = op.kind();
    if matches!(op.info().class, OpClass::View | OpClass::Movement) || MOVES.contains(&kind) {
        return match computed {
            Computed::Natively | Computed::Elsewhere | Computed::Batched => Rule::Bits,
            Computed::Expanded => Rule::Exact,
        };
    }
    RULES.iter().find(|(of, _)| *of == kind).map_or(Rule::Measured, |(_, rule)| rule.of(op))
}

/// Ops that move elements, beside views and movements.
const MOVES: [OpKind; 6] =
    [OpKind::Full, OpKind::Select, OpKind::CheckIndex, OpKind::Recover, OpKind::Take, OpKind::Gather];

const EXACT: Fact<Rule> = Fact::Fixed(Rule::Exact);
const SUM: Fact<Rule> = Fact::Fixed(Rule::Sum);

/// The rules of kinds. The others are measured.
const RULES: [(OpKind, Fact<Rule>); 28] = [
    (OpKind::Iota, EXACT),
    (OpKind::Random, Fact::By(random)),
    (OpKind::Unary, Fact::By(function)),
    (OpKind::Binary, Fact::By(function)),
    (OpKind::Compare, EXACT),
    (OpKind::Cast, EXACT),
    (OpKind::Reduce, Fact::By(reduction)),
    (OpKind::ArgReduce, EXACT),
    (OpKind::Scan, Fact::By(reduction)),
    (OpKind::Sort, EXACT),
    (OpKind::TopK, EXACT),
    (OpKind::Put, Fact::By(update)),
    (OpKind::Scatter, Fact::By(update)),
    (OpKind::SliceUpdate, Fact::By(update)),
    (OpKind::NonZero, EXACT),
    (OpKind::MatMul, SUM),
    // Operands of programs have exactly summable products.
    (OpKind::MatMulFloat8, Fact::Fixed(Rule::Near(4.0, 0.0))),
    (OpKind::Conv, SUM),
    (OpKind::Pool, Fact::By(pool)),
    (OpKind::PoolGrad, SUM),
    // The logarithm of a rounded sum, which is near 1 if the result is near 0.
    (OpKind::LogSumExp, Fact::Fixed(Rule::Near(8.0, 16.0))),
    (OpKind::Fft, SUM),
    (OpKind::Quantize, EXACT),
    (OpKind::Dequantize, Fact::Fixed(Rule::Near(2.0, 0.0))),
    (OpKind::DequantizeBlocks, Fact::Fixed(Rule::Near(4.0, 16.0))),
    (OpKind::Collective, EXACT),
    (OpKind::Custom, Fact::Fixed(Rule::Near(4.0, 0.0))),
    // Compared op by op.
    (OpKind::Fused, EXACT),
];

fn random(op: &Op) -> Rule {
    if let Op::Random { distribution: RandomKind::Normal, .. } = op {
        Rule::Near(8.0, 8.0)
    } else {
        Rule::Bits
    }
}

fn pool(op: &Op) -> Rule {
    if let Op::Pool(PoolSpec { kind: PoolKind::Max, .. }) = op { Rule::Exact } else { Rule::Sum }
}

/// Functions with other bounds than those of their effort.
const FUNCTIONS: [(Op, Rule); 8] = [
    (Op::Unary(Unary::Rsqrt), Rule::Near(2.0, 0.0)),
    // Near a pole, the result is sensitive to the last bit of the operand.
    (Op::Unary(Unary::Tan), Rule::Near(16.0, 2.0)),
    // Near a root away from 0, the result is sensitive to the last bit of the reduced operand.
    (Op::Unary(Unary::Sin), Rule::Near(4.0, 1.0)),
    (Op::Unary(Unary::Cos), Rule::Near(4.0, 1.0)),
    (Op::Unary(Unary::Ln), Rule::Near(4.0, 1.0)),
    (Op::Binary(Binary::Atan2), Rule::Near(4.0, 1.0)),
    (Op::Binary(Binary::Pow), Rule::Near(16.0, 0.0)),
    (Op::Binary(Binary::Rem), Rule::Exact),
];

fn function(op: &Op) -> Rule {
    let is_elementary = op.function().is_some_and(|function| function.effort >= Effort::Elementary);
    let of_effort = if is_elementary { Rule::Near(4.0, 0.0) } else { Rule::Exact };
    FUNCTIONS.iter().find(|(of, _)| of == op).map_or(of_effort, |(_, rule)| *rule)
}

fn reduction(op: &Op) -> Rule {
    match op.reduction() {
        Some(Reduction::Sum) => Rule::Sum,
        Some(Reduction::Prod) => Rule::Product,
        Some(Reduction::Min | Reduction::Max) | None => Rule::Exact,
    }
}

fn update(op: &Op) -> Rule {
    match op.update_mode() {
        Some(UpdateMode::Add) => Rule::Sum,
        Some(UpdateMode::Mul) => Rule::Product,
        Some(UpdateMode::Set | UpdateMode::Min | UpdateMode::Max) | None => Rule::Exact,
    }
}

/// The attributes of an attention or its gradient.
pub(crate) fn attention(op: &Op) -> Option<&AttentionSpec> {
    if let Op::Attention(spec) | Op::AttentionGrad(spec) = op { Some(spec) } else { None }
}

/// Compares one result of an op.
struct ResultComparison<'a> {
    op: &'a Op,
    operands: &'a [HostOperand],
    place: usize,
    computed: Computed,
}

impl ResultComparison<'_> {
    fn difference(&self, expected: &TensorData, actual: &TensorData) -> Option<String> {
        let rule = rule(self.op, self.computed);
        if !expected.dtype().is_float() || expected.ty() != actual.ty() || rule == Rule::Exact {
            return compare::difference(expected, actual, Tolerance::Exact);
        }
        if rule == Rule::Bits {
            return compare::difference(expected, actual, Tolerance::Bits);
        }
        let (results, found) = (expected.to_vec::<f64>(), actual.to_vec::<f64>());
        let allowed = self.allowed(rule, expected.dtype(), &results);
        let is_finite = self.is_finite();
        // `pow(1, NaN)` is 1, except for a signaling NaN, which the reference does not distinguish.
        let signals = *self.op == Op::Binary(Binary::Pow) && self.operands.iter().any(has_signaling_nan);
        let nan_is_right = signals || !is_finite && self.multiplies_by_nothing();
        let resizes = matches!(self.op, Op::Resize { .. });
        let normalises = matches!(self.op, Op::Norm { .. });
        // Some cuDNN kernels return 0 if a sum overflows `f16`.
        let loses =
            self.is_elsewhere() && matches!(self.op, Op::Conv { .. }) && expected.dtype() == DType::F16;
        let right = |i: usize| {
            let wild = (!results[i].is_finite(), !found[i].is_finite());
            let unknown = !is_finite
                && match rule {
                    // In another order, a product that overflows may underflow to 0 first.
                    Rule::Product => wild == (true, true),
                    // A constant row minus its mean is 0 or a rounding error: times infinity, that is NaN or infinity.
                    Rule::Measured if normalises => wild == (true, true),
                    Rule::Measured => resizes && wild != (false, false),
                    Rule::Bits | Rule::Exact | Rule::Near(..) | Rule::Sum => false,
                };
            unknown
                || found[i].is_nan() && nan_is_right
                || loses && results[i].is_infinite() && found[i] == 0.0
                || agrees(results[i], found[i], allowed[i], expected.dtype())
        };
        let wrong: Vec<usize> = (0..results.len()).filter(|&i| !right(i)).collect();
        let &first = wrong.first()?;
        Some(format!(
            "element {first}: {:?} instead of {:?} within {:.3e} ({} of {} elements differ)",
            found[first],
            results[first],
            allowed[first],
            wrong.len(),
            results.len()
        ))
    }

    fn is_elsewhere(&self) -> bool {
        self.computed == Computed::Elsewhere
    }

    /// The divisor that the op applies to its sums, which must not overflow before the division.
    fn divisor(&self) -> f64 {
        if let Op::Pool(spec) = self.op { window_size(spec) } else { 1.0 }
    }

    /// Whether an engine may multiply padding and masked keys, which the reference skips. Their products with nonfinite
    /// values are NaN.
    fn multiplies_by_nothing(&self) -> bool {
        matches!(self.op, Op::Conv { .. }) || attention(self.op).is_some()
    }

    fn is_finite(&self) -> bool {
        self.operands.iter().all(|operand| match operand {
            HostOperand::Data(data) => {
                !data.dtype().is_float() || data.to_vec::<f64>().iter().all(|x| x.is_finite())
            }
            HostOperand::Number(_) => true,
        })
    }

    /// The allowed error of each element.
    fn allowed(&self, rule: Rule, dtype: DType, results: &[f64]) -> Vec<f64> {
        let working = match self.computed {
            Computed::Natively | Computed::Elsewhere | Computed::Batched => dtype.accumulator(),
            Computed::Expanded => dtype,
        };
        let (rounding, step) = (epsilon(dtype), epsilon(working));
        let factor = if self.computed == Computed::Expanded { 4.0 } else { 1.0 };
        // cuDNN flushes subnormal results to 0.
        let convolves = self.is_elsewhere() && matches!(self.op, Op::Conv { .. });
        let least = if convolves { float_limits(dtype).1 } else { float_limits(dtype).2 };
        // Atomic adds of GPUs flush subnormal numbers to 0 (PTX, `atom`).
        let adds = self.is_elsewhere() && matches!(self.op, Op::Put { .. } | Op::Scatter { .. });
        let smallest = if adds { float_limits(working).1 } else { float_limits(working).2 };
        let limit = float_limits(dtype.accumulator()).0 / 2.0 / self.divisor();
        let bounded = |magnitudes: Vec<f64>, counts: Vec<f64>, relative: &dyn Fn(usize) -> f64| {
            let one = |i: usize| {
                if magnitudes[i].is_nan() || magnitudes[i] >= limit {
                    return f64::INFINITY;
                }
                let rounded = 2.0 * rounding * finite(results[i]).abs();
                let underflow = counts[i] * smallest * magnitudes[i].max(1.0);
                rounded + factor * (4.0 + counts[i]) * step * relative(i) + underflow + least
            };
            (0..results.len()).map(one).collect()
        };
        match rule {
            Rule::Bits | Rule::Exact => vec![0.0; results.len()],
            Rule::Near(relative, absolute) => {
                let one = |x: &f64| factor * rounding * (absolute + relative * finite(*x).abs()) + least;
                results.iter().map(one).collect()
            }
            Rule::Sum => {
                let magnitudes = self.magnitudes(f64::abs);
                bounded(magnitudes.clone(), self.counts(), &|i| magnitudes[i])
            }
            Rule::Product => {
                let magnitudes = self.magnitudes(|x| x.abs().max(1.0));
                bounded(magnitudes, self.counts(), &|i| finite(results[i]).abs())
            }
            Rule::Measured => self.measured(dtype, results, factor * (16.0 + self.longest_sum())),
        }
    }

    /// The op on a function of all summed or multiplied elements. Nonfinite values count as 0, since the result shows
    /// whether they propagate; an FFT propagates them to all elements.
    fn magnitudes(&self, of: impl Fn(f64) -> f64) -> Vec<f64> {
        let keeps = matches!(self.op, Op::Fft { .. });
        let of = |x: f64| {
            if x.is_finite() {
                of(x)
            } else if keeps {
                f64::INFINITY
            } else {
                of(0.0)
            }
        };
        self.computed_on(&of)
    }

    /// The number of summed or multiplied terms of each element.
    fn counts(&self) -> Vec<f64> {
        let mut window = 0.0;
        if let Op::Pool(spec) | Op::PoolGrad { spec, .. } = self.op {
            window = window_size(spec);
        }
        if let Op::Fft { .. } = self.op {
            window = 16.0;
        }
        let counts = if let Op::Fft { kind, axis, .. } = self.op {
            self.fft_terms(*kind, *axis, &|_| 1.0)
        } else {
            let ones = |(i, x): (usize, &HostOperand)| self.mapped(i, x, &|_| 1.0);
            let ones: Vec<HostOperand> = self.operands.iter().enumerate().map(ones).collect();
            let results = run_on(&reference(), &summing(self.op), &ones);
            results.expect("the op ran on these types before")[self.place].to_vec()
        };
        counts.into_iter().map(|count| count + window).collect()
    }

    fn computed_on(&self, of: &dyn Fn(f64) -> f64) -> Vec<f64> {
        if let Op::Fft { kind, axis, .. } = self.op {
            return self.fft_terms(*kind, *axis, of);
        }
        let operands: Vec<HostOperand> =
            self.operands.iter().enumerate().map(|(i, x)| self.mapped(i, x, of)).collect();
        let results = run_on(&reference(), self.op, &operands).expect("the op ran on these types before");
        results[self.place].to_vec()
    }

    /// An operand in `f64`, with a function applied to each element. Indices are unchanged, and so is the operand that
    /// selects the maxima for a gradient.
    fn mapped(&self, place: usize, operand: &HostOperand, of: &dyn Fn(f64) -> f64) -> HostOperand {
        let chooses = place == 1 && matches!(self.op, Op::PoolGrad { .. });
        match operand {
            HostOperand::Data(data) if data.dtype().is_float() => {
                numbers(data, |x| if chooses { x } else { of(x) })
            }
            HostOperand::Data(data) => HostOperand::Data(data.clone()),
            HostOperand::Number(scalar) => HostOperand::Number(Scalar::Float(of(scalar.to_f64()))),
        }
    }

    /// For each element, the sum of magnitudes over its line; elements of a half spectrum count twice.
    fn fft_terms(&self, kind: FftKind, axis: usize, of: &dyn Fn(f64) -> f64) -> Vec<f64> {
        let part = |operand: &HostOperand| match operand {
            HostOperand::Data(data) => Some((*data.shape(), data.to_vec::<f64>())),
            HostOperand::Number(_) => None,
        };
        let parts: Vec<(Shape, Vec<f64>)> = self.operands.iter().filter_map(part).collect();
        let Some(&(shape, _)) = parts.first() else { return Vec::new() };
        let (weight, to) = match kind {
            FftKind::Complex => (1.0, shape[axis]),
            FftKind::FromReal => (1.0, shape[axis] / 2 + 1),
            FftKind::ToReal { points } => (2.0, points),
        };
        let inner: usize = shape[axis + 1..].iter().product();
        let outer: usize = shape[..axis].iter().product();
        let sum = |place: usize| -> f64 {
            let start = place / (inner * to) * inner * shape[axis] + place % inner;
            let line = (0..shape[axis]).map(|k| start + k * inner);
            weight * line.map(|at| parts.iter().map(|(_, numbers)| of(numbers[at])).sum::<f64>()).sum::<f64>()
        };
        (0..outer * to * inner).map(sum).collect()
    }

    /// A multiple of the change of the results under a perturbation of all operands by one rounding error.
    fn measured(&self, dtype: DType, results: &[f64], factor: f64) -> Vec<f64> {
        let working = dtype.accumulator();
        if self.largest() > float_limits(working).0.sqrt() * 1e-3 {
            return vec![f64::INFINITY; results.len()];
        }
        let scores = Scores::of(self.op, self.operands);
        // Scores have no accurate fractional digits, so their exponentials are arbitrary.
        if scores.as_ref().is_some_and(|scores| scores.magnitude * epsilon(working) > 0.5) {
            return vec![f64::INFINITY; results.len()];
        }
        let mut random = Random::new(0, results.len() as u64);
        let mut run = |step: f64| -> Vec<f64> {
            let mut moved: Vec<HostOperand> = Vec::new();
            for operand in self.operands {
                let mut near = || 1.0 + step * (2.0 * random.uniform() - 1.0);
                moved.push(match operand {
                    HostOperand::Data(data) if data.dtype().is_float() => numbers(data, |x| x * near()),
                    HostOperand::Data(_) | HostOperand::Number(_) => operand.clone(),
                });
            }
            if let Some(scores) = &scores {
                moved.truncate(scores.place);
                moved.push(scores.moved(step, &mut random));
            }
            run_on(&reference(), self.op, &moved).expect("the op ran on these types before")[self.place]
                .to_vec()
        };
        let exact = run(0.0);
        let mut moved: f64 = 0.0;
        for _ in 0..4 {
            let near = run(epsilon(working));
            for (a, b) in near.iter().zip(&exact) {
                let change = if a.is_finite() == b.is_finite() { finite(a - b).abs() } else { f64::INFINITY };
                moved = moved.max(change);
            }
        }
        moved += self.misplaced() * epsilon(working);
        let least = float_limits(dtype).2;
        let one = |x: &f64| {
            8.0 * epsilon(dtype) * finite(*x).abs() + factor * moved + 8.0 * epsilon(working) + least
        };
        results.iter().map(one).collect()
    }

    /// The number of terms of the longest intermediate sum, whose rounding errors may all have one sign.
    fn longest_sum(&self) -> f64 {
        let Some(HostOperand::Data(x)) = self.operands.first() else { return 0.0 };
        let count = match (self.op, x.shape().rank()) {
            (Op::Norm { axes, .. }, rank) => x.shape()[rank - axes..].iter().product(),
            (Op::Softmax { axis, .. }, _) => x.shape()[*axis],
            (_, _) => 0,
        };
        count as f64
    }

    /// The error bound for rounded sample positions of a resize: the largest difference of neighbours, times the
    /// largest position along an axis.
    fn misplaced(&self) -> f64 {
        let (Op::Resize { .. }, Some(HostOperand::Data(x))) = (self.op, self.operands.first()) else {
            return 0.0;
        };
        let longest = x.shape()[2..].iter().copied().max().unwrap_or(0);
        longest as f64 * largest(x)
    }

    /// The greatest finite magnitude of an operand.
    fn largest(&self) -> f64 {
        let one = |operand: &HostOperand| match operand {
            HostOperand::Data(data) if data.dtype().is_float() => largest(data),
            HostOperand::Data(_) | HostOperand::Number(_) => 0.0,
        };
        self.operands.iter().map(one).fold(0.0, f64::max)
    }
}

/// The greatest finite magnitude.
fn largest(data: &TensorData) -> f64 {
    data.to_vec::<f64>().into_iter().filter(|x| x.is_finite()).fold(0.0, |most, x| x.abs().max(most))
}

/// A tensor in `f64`, with a function applied to each element.
fn numbers(data: &TensorData, of: impl FnMut(f64) -> f64) -> HostOperand {
    let list: Vec<f64> = data.to_vec::<f64>().into_iter().map(of).collect();
    HostOperand::Data(TensorData::new(list, *data.shape()).expect("as many numbers as before"))
}

/// The scores of an attention. Each score is rounded separately, so scores are perturbed separately, through the mask.
struct Scores {
    /// The operand index of the mask.
    place: usize,
    /// The bias added to each score, `-inf` for masked keys.
    mask: TensorData,
    /// The maximum magnitude of scores.
    magnitude: f64,
}

impl Scores {
    fn of(op: &Op, operands: &[HostOperand]) -> Option<Scores> {
        let spec = attention(op)?;
        let (first, place) = if let Op::Attention(_) = op { (0, 3) } else { (1, 6) };
        let (HostOperand::Data(q), HostOperand::Data(k)) = (&operands[first], &operands[first + 1]) else {
            return None;
        };
        let dim = q.shape()[3] as f64;
        let product = spec.scale.0.abs() * dim * largest(q) * largest(k);
        let [batch, heads, queries, keys] = [q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]];
        let none = HostOperand::Data(TensorData::from([0.0]).reshape([1, 1, 1, 1]).expect("one element"));
        let (mask, added) = match operands.get(place) {
            Some(HostOperand::Data(mask)) if mask.dtype().is_bool() => {
                (numbers(mask, |x| if x == 0.0 { f64::NEG_INFINITY } else { 0.0 }), 0.0)
            }
            Some(HostOperand::Data(mask)) => (numbers(mask, |x| x), largest(mask)),
            Some(HostOperand::Number(_)) | None => (none, 0.0),
        };
        let op = Op::Broadcast([batch, heads, queries, keys].into());
        let mask = run_on(&reference(), &op, &[mask]).expect("a mask broadcasts to the scores").remove(0);
        Some(Scores { place, mask, magnitude: product + added })
    }

    fn moved(&self, step: f64, random: &mut Random) -> HostOperand {
        numbers(&self.mask, |x| x + step * self.magnitude * (2.0 * random.uniform() - 1.0))
    }
}

/// Whether a float is a NaN without the topmost bit of the fraction ([IEEE 754](https://doi.org/10.1109/IEEESTD.2019.8766229),
/// §6.2.1).
fn has_signaling_nan(operand: &HostOperand) -> bool {
    fn signals(bits: u64, fraction: u32, exponent: u32) -> bool {
        let exponent = ((1u64 << exponent) - 1) << fraction;
        let quiet = 1u64 << (fraction - 1);
        bits & exponent == exponent && bits & quiet == 0 && bits & (quiet - 1) != 0
    }
    let HostOperand::Data(data) = operand else { return false };
    match data.elements() {
        Elements::F64(list) => list.iter().any(|x| signals(x.to_bits(), 52, 11)),
        Elements::F32(list) => list.iter().any(|x| signals(x.to_bits().into(), 23, 8)),
        Elements::F16(list) => list.iter().any(|x| signals(x.to_bits().into(), 10, 5)),
        Elements::BF16(list) => list.iter().any(|x| signals(x.to_bits().into(), 7, 8)),
        Elements::I64(_)
        | Elements::I32(_)
        | Elements::I16(_)
        | Elements::I8(_)
        | Elements::U64(_)
        | Elements::U32(_)
        | Elements::U16(_)
        | Elements::U8(_)
        | Elements::Bool(_) => false,
    }
}

/// The op with products replaced by sums.
fn summing(op: &Op) -> Op {
    let mut op = op.clone();
    if let Op::Reduce { reduction, .. } | Op::Scan { reduction, .. } = &mut op {
        *reduction = Reduction::Sum;
    }
    if let Op::Put { mode, .. } | Op::Scatter { mode, .. } | Op::SliceUpdate { mode, .. } = &mut op {
        *mode = UpdateMode::Add;
    }
    op
}

fn window_size(spec: &PoolSpec) -> f64 {
    spec.window.iter().product::<usize>() as f64
}

fn finite(x: f64) -> f64 {
    if x.is_finite() { x } else { 0.0 }
}

/// Whether a number is within the allowed error. Infinity is adjacent to the maximum of a dtype.
fn agrees(expected: f64, actual: f64, allowed: f64, dtype: DType) -> bool {
    if expected == actual || allowed == f64::INFINITY || expected.is_nan() && actual.is_nan() {
        return true;
    }
    let greatest = float_limits(dtype).0;
    let edge = greatest * (1.0 - 64.0 * epsilon(dtype));
    match (expected.is_infinite(), actual.is_infinite()) {
        (true, false) => actual * expected.signum() + allowed >= edge,
        (false, true) => expected * actual.signum() + allowed >= edge,
        (true, true) => false,
        (false, false) => (expected - actual).abs() <= allowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{Axes, ConvPass, ConvSpec, Unary};

    fn data(list: &[f64]) -> HostOperand {
        HostOperand::Data(TensorData::from(list).convert(DType::F32))
    }

    #[test]
    fn the_tolerance_of_sums_scales_with_their_terms() {
        let op = Op::Reduce { reduction: Reduction::Sum, axes: Axes::one(0) };
        let operands = [data(&[1000.0, 1.0, -1000.0])];
        let expected = [TensorData::from([1.0f32])];
        let judge =
            |x: f32| difference(&op, &operands, &expected, &[TensorData::from([x])], Computed::Natively);
        assert_eq!(judge(1.0), None);
        assert_eq!(judge(1.001), None);
        assert!(judge(1.01).unwrap().contains("instead of 1.0"), "{:?}", judge(1.01));
        assert!(judge(f32::NAN).is_some());
        assert!(judge(f32::INFINITY).is_some());
    }

    #[test]
    fn intermediate_overflows_are_ignored() {
        let op = Op::Reduce { reduction: Reduction::Sum, axes: Axes::one(0) };
        let operands = [data(&[3e38, 3e38, -3e38])];
        let expected = [TensorData::from([3e38f32])];
        let actual = [TensorData::from([f32::INFINITY])];
        assert_eq!(difference(&op, &operands, &expected, &actual, Computed::Natively), None);
    }

    #[test]
    fn data_movement_is_compared_bitwise() {
        let operands = [data(&[0.0])];
        let (expected, actual) = ([TensorData::from([0.0f32])], [TensorData::from([-0.0f32])]);
        assert!(difference(&Op::Copy, &operands, &expected, &actual, Computed::Natively).is_some());
        let op = Op::Unary(Unary::Floor);
        assert_eq!(difference(&op, &operands, &expected, &actual, Computed::Natively), None);
    }

    #[test]
    fn only_device_libraries_may_return_other_results_for_overflowing_sums() {
        let ones = |shape: [usize; 3], x: f64| {
            let data = TensorData::new(vec![x; shape.iter().product()], shape).unwrap();
            HostOperand::Data(data.convert(DType::F16))
        };
        let op = Op::Conv { spec: ConvSpec::new(1), pass: ConvPass::Forward };
        let operands = [ones([1, 1, 2], 6e4), ones([1, 1, 2], 1.0)];
        let expected = run_on(&reference(), &op, &operands).unwrap();
        let lost = [TensorData::zeros(expected[0].ty())];
        let judge = |computed| difference(&op, &operands, &expected, &lost, computed);
        assert!(judge(Computed::Natively).is_some(), "{expected:?}");
        assert_eq!(judge(Computed::Elsewhere), None);
    }
}
