//! Powers of two, logarithms of other bases, hyperbolic functions.

use super::float::{
    at_least, at_most, below, by_precision, is, is_wide, mantissa_and_exponent, override_with, scaled,
    signed_like,
};
use super::polynomial::horner;
use core::f64::consts::{LN_2, LOG2_E, LOG10_E};
use kiln_ir::Var;

/// Computes `2^x`: the integer part is added to the exponent, so that the error does not grow with it.
pub(super) fn exp2<'e>(x: &Var<'e>) -> Var<'e> {
    let clamped = at_most(&at_least(x, by_precision(x, -160.0, -1100.0)), by_precision(x, 130.0, 1030.0));
    let whole = clamped.round();
    scaled(&((clamped - &whole) * LN_2).exp(), &whole)
}

/// Computes the binary logarithm.
pub(super) fn log2<'e>(x: &Var<'e>) -> Var<'e> {
    let (mantissa, exponent) = mantissa_and_exponent(x);
    or_limit(x, exponent + mantissa.ln() * LOG2_E)
}

/// Computes the decimal logarithm. The product of the first part of log₁₀ 2 with an exponent is exact.
pub(super) fn log10<'e>(x: &Var<'e>) -> Var<'e> {
    let (high, low) = if is_wide(x) {
        (0.301_029_995_663_611_77, 3.694_239_077_158_931e-13)
    } else {
        (0.301_025_390_625, 4.605_038_981_195_214e-6)
    };
    let (mantissa, exponent) = mantissa_and_exponent(x);
    or_limit(x, (&exponent * low + mantissa.ln() * LOG10_E) + exponent * high)
}

/// Returns the result for positive finite arguments, and the natural logarithm otherwise, which has the same limits.
fn or_limit<'e>(x: &Var<'e>, result: Var<'e>) -> Var<'e> {
    let finite = below(&-x, 0.0).and(&below(x, f64::INFINITY));
    finite.select(&result, &x.ln())
}

/// Computes the cube root: an estimate by logarithms, and one step of Newton's method.
pub(super) fn cbrt<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let y = (a.ln() / 3.0).exp();
    let y = &y - (&y - &a / y.square()) / 3.0;
    // Zeros, infinities and NaN are their own roots.
    let own = is(x, 0.0).or(&below(&a, f64::INFINITY).not());
    own.select(x, &signed_like(&y, x))
}

/// Returns an argument just below the overflow of the exponential function.
fn large(x: &Var<'_>) -> f64 {
    by_precision(x, 88.0, 709.0)
}

/// Computes `e^a / 2` for large `a`, also where `e^a` overflows. `k ln 2` is subtracted from the argument, for a `k`
/// whose product is almost a float, and added back as a power of two.
fn half_exp<'e>(a: &Var<'e>) -> Var<'e> {
    let (k, product) =
        if is_wide(a) { (1799.0, 1_246.971_777_827_341_2) } else { (235.0, 162.889_587_402_343_75) };
    // The power itself is beyond the dtype: it is multiplied in two parts.
    let part = libm::exp2((k - 1.0) / 2.0);
    (a - product).exp() * part * part
}

/// Computes the hyperbolic sine: up to 1 by its series.
pub(super) fn sinh<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let square = at_most(&a, 1.0).square();
    let near = x + x * &square * horner(&square, &SINH_SERIES);
    let e = at_most(&a, large(x)).exp();
    let moderate = &e * 0.5 - 0.5 / &e;
    let far = signed_like(&below(&a, large(x)).select(&moderate, &half_exp(&a)), x);
    below(&a, 1.0).select(&near, &far)
}

/// `1 / (2k + 3)!`, until a term is beyond `f64` for an argument of 1.
const SINH_SERIES: [f64; 8] = [
    1.0 / 6.0,
    1.0 / 120.0,
    1.0 / 5_040.0,
    1.0 / 362_880.0,
    1.0 / 39_916_800.0,
    1.0 / 6_227_020_800.0,
    1.0 / 1_307_674_368_000.0,
    1.0 / 355_687_428_096_000.0,
];

/// Computes the hyperbolic cosine.
pub(super) fn cosh<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let e = at_most(&a, large(x)).exp();
    let moderate = &e * 0.5 + 0.5 / &e;
    below(&a, large(x)).select(&moderate, &half_exp(&a))
}

/// Above this, `x² + 1` is `x²`.
fn far(x: &Var<'_>) -> f64 {
    by_precision(x, 16_384.0, 1e9)
}

/// Computes the inverse hyperbolic sine, accurate near 0.
pub(super) fn asinh<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let square = at_most(&a, far(x)).square();
    let moderate = (&a + &square / ((&square + 1.0).sqrt() + 1.0)).log1p();
    let y = below(&a, far(x)).select(&moderate, &(a.ln() + LN_2));
    signed_like(&y, x)
}

/// Computes `1 / √(x² + 1)`.
pub(super) fn asinh_slope<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let moderate = (at_most(&a, far(x)).square() + 1.0).rsqrt();
    below(&a, far(x)).select(&moderate, &a.recip())
}

/// Computes the inverse hyperbolic cosine, accurate near 1; NaN below 1.
pub(super) fn acosh<'e>(x: &Var<'e>) -> Var<'e> {
    let t = at_most(x, far(x)) - 1.0;
    let moderate = (&t + (&t * (&t + 2.0)).sqrt()).log1p();
    let y = below(x, far(x)).select(&moderate, &(x.ln() + LN_2));
    override_with(&y, &below(x, 1.0), f64::NAN)
}

/// Computes the inverse hyperbolic tangent, accurate near 0; NaN beyond ±1.
pub(super) fn atanh<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let twice = &a * 2.0;
    let rest = 1.0 - &a;
    let near = &twice + &twice * &a / &rest;
    let argument = below(&a, 0.5).select(&near, &(twice / rest));
    signed_like(&(argument.log1p() * 0.5), x)
}

/// Computes `1 / (1 + e^-x)`, without overflow on either side.
pub(super) fn sigmoid<'e>(x: &Var<'e>) -> Var<'e> {
    let e = (-x.abs()).exp();
    let above = (&e + 1.0).recip();
    below(x, 0.0).select(&(&e * &above), &above)
}

/// Computes `ln(x / (1 - x))`, accurate near one half.
pub(super) fn logit<'e>(x: &Var<'e>) -> Var<'e> {
    let rest = 1.0 - x;
    let low = (x / &rest).ln();
    let high = ((x * 2.0 - 1.0) / rest).log1p();
    below(x, 0.25).select(&low, &high)
}

/// Computes `1 / (x (1 - x))`; NaN outside [0, 1], where the function has no value.
pub(super) fn logit_slope<'e>(x: &Var<'e>) -> Var<'e> {
    let product = x * (1.0 - x);
    override_with(&product.recip(), &below(&product, 0.0), f64::NAN)
}
