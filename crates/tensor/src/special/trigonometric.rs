//! Inverse trigonometric functions, and the sinc function.

use super::float::{below, is, override_with, sin_cos_pi};
use core::f64::consts::PI;
use kiln_ir::{Binary, Var};

/// Computes `√(1 - x²)`, NaN beyond ±1.
pub(super) fn complement<'e>(x: &Var<'e>) -> Var<'e> {
    // Each form is used where it rounds less.
    let near = 1.0 - x.square();
    let far = (1.0 - x) * (x + 1.0);
    below(&x.abs(), 0.5).select(&near, &far).sqrt()
}

/// Computes the arc sine; NaN beyond ±1.
pub(super) fn asin<'e>(x: &Var<'e>) -> Var<'e> {
    x.binary(Binary::Atan2, &complement(x))
}

/// Computes the arc cosine; NaN beyond ±1.
pub(super) fn acos<'e>(x: &Var<'e>) -> Var<'e> {
    complement(x).binary(Binary::Atan2, x)
}

/// Computes `sin(πx) / (πx)`, 1 at 0.
pub(super) fn sinc<'e>(x: &Var<'e>) -> Var<'e> {
    let (sin, _) = sin_cos_pi(x);
    let y = sin / (x * PI);
    let y = override_with(&y, &is(x, 0.0), 1.0);
    override_with(&y, &is(&x.abs(), f64::INFINITY), 0.0)
}

/// Computes the derivative of [`sinc`]: by its series where the difference of two terms near 1 would cancel.
pub(super) fn sinc_slope<'e>(x: &Var<'e>, y: &Var<'e>) -> Var<'e> {
    let (_, cos) = sin_cos_pi(x);
    let far = (cos - y) / x;
    let square = x.square() * (PI * PI);
    let near = x
        * (PI * PI)
        * super::polynomial::horner(&square, &[-1.0 / 3.0, 1.0 / 30.0, -1.0 / 840.0, 1.0 / 45_360.0]);
    let y = below(&x.abs(), 0.125).select(&near, &far);
    override_with(&y, &is(&x.abs(), f64::INFINITY), 0.0)
}
