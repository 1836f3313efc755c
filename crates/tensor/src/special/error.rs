//! Functions beside the error function.

use super::coefficients::{ERFC_TAIL, ERFINV_CENTRE, ERFINV_TAIL};
use super::float::{
    at_least, at_most, below, by_precision, is, is_wide, leading_half, override_with, signed_like,
};
use core::f64::consts::FRAC_2_SQRT_PI;
use kiln_ir::Var;

/// `1 - erf(x)` without cancellation. From 1/2 on it is `exp(-x²) p(t) / (1 + 2x)` with a polynomial of
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

/// The inverse of the error function: polynomials of `-ln(1 - x²)` and its root, as
/// [Giles 2010](https://people.maths.ox.ac.uk/gilesm/files/gems_erfinv.pdf) arranges them, and for `f64` one step of
/// Halley's method.
pub(super) fn erfinv<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let near = -(-x.square()).log1p();
    let far = -((1.0 - &a) * (&a + 1.0)).ln();
    let w = at_most(&below(&a, 0.5).select(&near, &far), 38.0);
    let centre = ERFINV_CENTRE.at(&at_most(&w, 6.0));
    let tail = ERFINV_TAIL.at(&at_least(&w, 6.0).sqrt());
    let y = below(&w, 6.0).select(&centre, &tail) * &a;
    let y = if is_wide(x) { refined(&a, y) } else { y };
    let y = override_with(&y, &is(&a, 1.0), f64::INFINITY);
    signed_like(&override_with(&y, &below(&-a, -1.0), f64::NAN), x)
}

/// Takes `erf(y) - a` to zero, by the complements where those are the more exact.
fn refined<'e>(a: &Var<'e>, y: Var<'e>) -> Var<'e> {
    let near = y.erf() - a;
    let far = (1.0 - a) - erfc(&y);
    let excess = below(a, 0.5).select(&near, &far);
    let step = excess / ((-y.square()).exp() * FRAC_2_SQRT_PI);
    &y - &step / (&y * &step + 1.0)
}
