//! Functions related to the error function.

use super::coefficients::{ERFC_TAIL, ERFINV_CENTRE, ERFINV_FAR, ERFINV_TAIL};
use super::float::{
    at_least, at_most, below, by_precision, is, is_wide, leading_half, override_with, signed_like,
};
use core::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};
use kiln_ir::Var;

/// Computes `1 - erf(x)` without cancellation. From 1/2 on it is `exp(-x²) p(t) / (1 + 2x)` with a polynomial of
/// `t = (x - 3.75) / (x + 3.75)`, after [Shepherd and Laframboise
/// 1981](https://doi.org/10.1090/S0025-5718-1981-0595058-X).
pub(super) fn erfc<'e>(x: &Var<'e>) -> Var<'e> {
    // Beyond, the result is 0; at infinity `t` would be NaN.
    let a = at_most(&at_least(x, 0.5), by_precision(x, 12.0, 30.0));
    let t = (&a - 3.75) / (&a + 3.75);
    // The square in two parts: an error of it would be multiplied by itself.
    let high = leading_half(&a);
    let low = (&a - &high) * (&a + &high);
    let far = (-high.square()).exp() * (-low).exp() * (ERFC_TAIL.at(&t) / (&a * 2.0 + 1.0));
    below(x, 0.5).select(&(1.0 - x.erf()), &far)
}

/// Computes the inverse of the error function: polynomials of `-ln(1 - x²)` and its root, as
/// [Giles 2010](https://people.maths.ox.ac.uk/gilesm/files/gems_erfinv.pdf) arranges them, and for `f64` one step of
/// Halley's method.
pub(super) fn erfinv<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let near = -(-x.square()).log1p();
    let far = -((1.0 - &a) * (&a + 1.0)).ln();
    let w = at_most(&below(&a, 0.5).select(&near, &far), TAIL_END);
    let y = over_argument(&w) * &a;
    let y = if is_wide(x) { refined(&a, &(1.0 - &a), y) } else { y };
    let y = override_with(&y, &is(&a, 1.0), f64::INFINITY);
    signed_like(&override_with(&y, &below(&-a, -1.0), f64::NAN), x)
}

/// The upper bound of the single-precision polynomials.
const TAIL_END: f64 = 38.0;

/// Computes `erfinv(x) / x`, of `w = -ln(1 - x²)` up to [`TAIL_END`], to single precision.
fn over_argument<'e>(w: &Var<'e>) -> Var<'e> {
    let centre = ERFINV_CENTRE.at(&at_most(w, 6.0));
    let tail = ERFINV_TAIL.at(&at_most(&at_least(w, 6.0), TAIL_END).sqrt());
    below(w, 6.0).select(&centre, &tail)
}

/// Computes the quantile of the standard normal distribution: `√2 erfinv(2p - 1)`, without cancellation next to 0.
pub(super) fn ndtri<'e>(p: &Var<'e>) -> Var<'e> {
    // The smaller tail; `1 - 2a` is the argument of the inverse error function, and `1 - x² = 4a(1 - a)`.
    let is_low = below(p, 0.5);
    let a = is_low.select(p, &(1.0 - p));
    let x = 1.0 - &a * 2.0;
    let product = (1.0 - &a) * &a * 4.0;
    let w = below(&x, 0.5).select(&-(-x.square()).log1p(), &-product.ln());
    let y = over_argument(&w) * &x;
    let y = if is_wide(p) { refined(&x, &(&a * 2.0), y) } else { y };
    let far = ERFINV_FAR.at(&at_most(&at_least(&w, TAIL_END), 720.0).sqrt()) * &x;
    let y = below(&w, TAIL_END).select(&y, &far) * SQRT_2;
    let y = override_with(&y, &is(&a, 0.0), f64::INFINITY);
    let y = override_with(&y, &below(&a, 0.0), f64::NAN);
    is_low.select(&-&y, &y)
}

/// Refines `y` by one Halley step of `erf(y) = a`, with the complements where those are more accurate.
fn refined<'e>(a: &Var<'e>, complement: &Var<'e>, y: Var<'e>) -> Var<'e> {
    let near = y.erf() - a;
    let far = complement - erfc(&y);
    let excess = below(a, 0.5).select(&near, &far);
    let step = excess / ((-y.square()).exp() * FRAC_2_SQRT_PI);
    &y - &step / (&y * &step + 1.0)
}
