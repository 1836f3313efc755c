//! Modified Bessel functions of the first kind, of order 0 and 1.

use super::coefficients::{I0_FAR, I0_NEAR, I1_FAR, I1_NEAR};
use super::float::{at_least, at_most, below, by_precision, is, override_with};
use super::polynomial::Polynomial;
use kiln_ir::Var;

/// `exp(-|x|) I₀(x)`.
pub(super) fn i0e<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    below(&a, 8.0).select(&I0_NEAR.at(&at_most(&a, 8.0)), &far(&a, &I0_FAR))
}

/// `exp(-|x|) I₁(x)`.
pub(super) fn i1e<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let near = I1_NEAR.at(&at_most(&a, 8.0)) * x;
    below(&a, 8.0).select(&near, &(far(&a, &I1_FAR) * x.sign()))
}

/// From 8 on.
fn far<'e>(a: &Var<'e>, polynomial: &Polynomial) -> Var<'e> {
    let a = at_least(a, 8.0);
    polynomial.at(&a.recip()) * a.rsqrt()
}

/// `I₀(x)`.
pub(super) fn i0<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    override_with(&unscaled(&a, &i0e(x)), &is(&a, f64::INFINITY), f64::INFINITY)
}

/// `I₁(x)`.
pub(super) fn i1<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    is(&a, f64::INFINITY).select(x, &unscaled(&a, &i1e(x)))
}

/// Multiplied by `exp(a)`, in two parts where that overflows before the product does.
fn unscaled<'e>(a: &Var<'e>, scaled: &Var<'e>) -> Var<'e> {
    let part = (a * 0.5).exp();
    below(a, by_precision(a, 88.0, 709.0)).select(&(scaled * a.exp()), &(scaled * &part * &part))
}

/// `numerator / x`, which is 1/2 at 0 for the functions of order 1.
pub(super) fn divided<'e>(numerator: &Var<'e>, x: &Var<'e>) -> Var<'e> {
    let y = numerator / x;
    override_with(&y, &is(x, 0.0), 0.5)
}
