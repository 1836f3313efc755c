//! Bit-level functions of floats, and selections.

use kiln_ir::{Binary, Comparison, DType, Op, Unary, Var};

/// The binary layout of a float dtype.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// The integer dtype of the same size.
    pub(super) integer: DType,
    /// The number of stored mantissa bits.
    pub(super) mantissa: i64,
    pub(super) bias: i64,
    /// The bits of the least normal number above `√½`: mantissas are taken from there to `√2`.
    root_half: i64,
}

/// Returns the layout of `f32` or `f64`.
pub(super) fn layout(dtype: DType) -> Layout {
    if dtype == DType::F64 {
        Layout { integer: DType::I64, mantissa: 52, bias: 1023, root_half: 0x3fe6_a09e_667f_3bcd }
    } else {
        Layout { integer: DType::I32, mantissa: 23, bias: 127, root_half: 0x3f35_04f3 }
    }
}

/// Converts 16-bit floats to `f32`, because they are too coarse to compute in.
pub(super) fn widened<'e>(x: &Var<'e>) -> Var<'e> {
    x.cast(x.dtype().accumulator())
}

pub(super) fn is_wide(x: &Var<'_>) -> bool {
    x.dtype() == DType::F64
}

/// Selects one of two numbers by precision: the first for `f32`.
pub(super) fn by_precision(x: &Var<'_>, single: f64, double: f64) -> f64 {
    if is_wide(x) { double } else { single }
}

/// Computes `x < c`.
pub(super) fn below<'e>(x: &Var<'e>, c: f64) -> Var<'e> {
    x.compare(Comparison::Lt, &x.scalar(c))
}

/// Computes `x == c`.
pub(super) fn is<'e>(x: &Var<'e>, c: f64) -> Var<'e> {
    x.compare(Comparison::Eq, &x.scalar(c))
}

/// Returns `number` where the condition holds, otherwise `x`.
pub(super) fn override_with<'e>(x: &Var<'e>, condition: &Var<'e>, number: f64) -> Var<'e> {
    condition.select(&x.scalar(number), x)
}

/// Clamps from below to `c`; NaN stays NaN.
pub(super) fn at_least<'e>(x: &Var<'e>, c: f64) -> Var<'e> {
    x.max(&x.scalar(c))
}

/// Clamps from above to `c`; NaN stays NaN.
pub(super) fn at_most<'e>(x: &Var<'e>, c: f64) -> Var<'e> {
    x.min(&x.scalar(c))
}

/// Returns the magnitude with the sign bit of `x`, zeros and NaN included: `magnitude` must not be negative.
pub(super) fn signed_like<'e>(magnitude: &Var<'e>, x: &Var<'e>) -> Var<'e> {
    magnitude * x.sign()
}

/// Returns the distance from a number that is the sum of a float and a remainder, which is subtracted after the float.
pub(super) fn distance<'e>(x: &Var<'e>, [high, low]: [f64; 2]) -> Var<'e> {
    let single = f64::from(high as f32);
    let (high, low) = if is_wide(x) { (high, low) } else { (single, (high - single) + low) };
    (x - high) - low
}

/// Returns the bits as a signed integer of the same size.
pub(crate) fn bits<'e>(x: &Var<'e>) -> Var<'e> {
    let integer = if x.dtype().size() == 2 { DType::I16 } else { layout(x.dtype()).integer };
    x.apply(Op::Bitcast(integer), &[])
}

/// Returns the float next to `x` in the direction of another.
pub(crate) fn nextafter<'e>(x: &Var<'e>, towards: &Var<'e>) -> Var<'e> {
    let dtype = x.dtype();
    let float = |bits: &Var<'e>| bits.apply(Op::Bitcast(dtype), &[]);
    let bits = bits(x);
    let outwards = below(x, 0.0).equal(&towards.less(x));
    let next = outwards.select(&(&bits + 1.0), &(&bits - 1.0));
    // The neighbours of zero are the smallest subnormals of both signs.
    let least = float(&(bits * 0.0 + 1.0));
    let next = is(x, 0.0).select(&signed_like(&least, towards), &float(&next));
    let next = x.equal(towards).select(towards, &next);
    let has_nan = x.equal(x).and(&towards.equal(towards)).not();
    has_nan.select(&(x + towards), &next)
}

/// Returns the exponent `e` of `x = m 2^e` with `½ <= |m| < 1`; 0 for zeros, infinities and NaN.
pub(crate) fn exponent<'e>(x: &Var<'e>) -> Var<'e> {
    let a = widened(x).abs();
    let (mantissa, exponent) = mantissa_and_exponent(&a);
    let exponent = below(&mantissa, 1.0).select(&exponent, &(&exponent + 1.0));
    let ordinary = below(&-&a, 0.0).and(&below(&a, f64::INFINITY));
    override_with(&exponent, &ordinary.not(), 0.0)
}

/// Powers of two whose product is `2^n`, each of them a normal number. `n` is clamped to the
/// range beyond which every number becomes infinite or zero.
pub(crate) fn powers_of_two<'e>(n: &Var<'e>) -> [Var<'e>; 3] {
    let most = by_precision(n, 300.0, 2200.0);
    let n = at_most(&at_least(n, -most), most);
    let part = (&n / 3.0).trunc();
    let rest = n - &part * 2.0;
    let part = power_of_two(&part);
    [part.clone(), part, power_of_two(&rest)]
}

/// Computes `2^n` for integer `n` whose power is a normal number.
pub(super) fn power_of_two<'e>(n: &Var<'e>) -> Var<'e> {
    let Layout { integer, mantissa, bias, .. } = layout(n.dtype());
    let exponent = n.cast(integer) + bias as f64;
    exponent.binary(Binary::Shl, &exponent.scalar(mantissa)).apply(Op::Bitcast(n.dtype()), &[])
}

/// Computes `x 2^n` for integer `n`, rounded once where `x` is near 1 and both half steps are normal numbers.
pub(super) fn scaled<'e>(x: &Var<'e>, n: &Var<'e>) -> Var<'e> {
    let half = (n * 0.5).unary(Unary::Floor);
    let rest = n - &half;
    x * power_of_two(&half) * power_of_two(&rest)
}

/// Returns `(m, e)` with `x = m 2^e` and `√½ <= m < √2`, for finite positive `x`.
pub(super) fn mantissa_and_exponent<'e>(x: &Var<'e>) -> (Var<'e>, Var<'e>) {
    let dtype = x.dtype();
    let Layout { mantissa, bias, root_half, .. } = layout(dtype);
    // Subnormal numbers are scaled to normal ones first.
    let lift = mantissa as f64 + 1.0;
    let least = by_precision(x, f64::from(f32::MIN_POSITIVE), f64::MIN_POSITIVE);
    let is_tiny = below(x, least);
    let x = is_tiny.select(&(x * libm::exp2(lift)), x);
    let one = bias << mantissa;
    let bits = bits(&x);
    let shifted = &bits + bits.scalar(one - root_half);
    let exponent = shifted.binary(Binary::Shr, &shifted.scalar(mantissa)) - bias as f64;
    let field = shifted.and(&shifted.scalar((1i64 << mantissa) - 1));
    let field = &field + field.scalar(root_half);
    let exponent = exponent.cast(dtype);
    let lowered = &exponent - lift;
    (field.apply(Op::Bitcast(dtype), &[]), is_tiny.select(&lowered, &exponent))
}

/// Returns the leading half of the mantissa: its square is exact.
pub(super) fn leading_half<'e>(x: &Var<'e>) -> Var<'e> {
    let mask = if is_wide(x) { -1i64 << 27 } else { -1i64 << 12 };
    let kept = bits(x);
    kept.and(&kept.scalar(mask)).apply(Op::Bitcast(x.dtype()), &[])
}

/// Computes `(sin πx, cos πx)`: exact at multiples of one half, NaN for infinities.
pub(super) fn sin_cos_pi<'e>(x: &Var<'e>) -> (Var<'e>, Var<'e>) {
    let whole = x.round();
    let rest = (x - &whole) * core::f64::consts::PI;
    let is_odd = is(&(&whole - (&whole * 0.5).floor() * 2.0), 1.0);
    let (sin, cos) = (rest.sin(), rest.cos());
    (is_odd.select(&-&sin, &sin), is_odd.select(&-&cos, &cos))
}
