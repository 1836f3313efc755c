//! Special functions of two arguments.

use super::float::{below, is, override_with};
use core::f64::consts::{LN_2, LOG2_E};
use kiln_ir::Var;

/// Computes `√(a² + b²)` without intermediate overflow; infinite where either is infinite, even if the other is NaN.
pub(super) fn hypot<'e>(a: &Var<'e>, b: &Var<'e>) -> Var<'e> {
    let (a, b) = (a.abs(), b.abs());
    let (low, high) = (a.min(&b), a.max(&b));
    let y = &high * ((low / &high).square() + 1.0).sqrt();
    let y = override_with(&y, &is(&high, 0.0), 0.0);
    let infinite = is(&a, f64::INFINITY).or(&is(&b, f64::INFINITY));
    override_with(&y, &infinite, f64::INFINITY)
}

/// Computes the derivative by the first operand: 0 at the origin.
pub(super) fn hypot_slope<'e>(a: &Var<'e>, y: &Var<'e>) -> Var<'e> {
    override_with(&(a / y), &is(y, 0.0), 0.0)
}

/// Computes `ln(e^a + e^b)` without overflow.
pub(super) fn logaddexp<'e>(a: &Var<'e>, b: &Var<'e>) -> Var<'e> {
    let y = a.max(b) + (-(a - b).abs()).exp().log1p();
    // The difference of equal infinities is NaN.
    a.equal(b).select(&(a + LN_2), &y)
}

/// Computes `log₂(2^a + 2^b)` without overflow.
pub(super) fn logaddexp2<'e>(a: &Var<'e>, b: &Var<'e>) -> Var<'e> {
    let y = a.max(b) + ((a - b).abs() * -LN_2).exp().log1p() * LOG2_E;
    a.equal(b).select(&(a + 1.0), &y)
}

/// Computes `unit (a - b)`, 0 where both are equal, infinities too: the sigmoid of it is the share of `a` in the sum.
pub(super) fn gap<'e>(a: &Var<'e>, b: &Var<'e>, unit: f64) -> Var<'e> {
    override_with(&((a - b) * unit), &a.equal(b), 0.0)
}

/// Computes `x ln y`, 0 where `x` is 0 and `y` is not NaN.
pub(super) fn xlogy<'e>(x: &Var<'e>, y: &Var<'e>) -> Var<'e> {
    zero_with(x, y, &(x * y.ln()))
}

/// Computes `x ln(1 + y)`, 0 where `x` is 0 and `y` is not NaN.
pub(super) fn xlog1py<'e>(x: &Var<'e>, y: &Var<'e>) -> Var<'e> {
    zero_with(x, y, &(x * y.log1p()))
}

/// Returns 0 where `x` is 0 and `y` is not NaN, otherwise the result.
pub(super) fn zero_with<'e>(x: &Var<'e>, y: &Var<'e>, result: &Var<'e>) -> Var<'e> {
    override_with(result, &is(x, 0.0).and(&y.equal(y)), 0.0)
}

/// Computes the derivative by the factor of a logarithm: 0 where the product is 0 by definition.
pub(super) fn logarithm<'e>(x: &Var<'e>, argument: &Var<'e>, logarithm: &Var<'e>) -> Var<'e> {
    let by_definition = is(x, 0.0).and(&below(argument, 0.0).or(&is(argument, 0.0)));
    override_with(logarithm, &by_definition, 0.0)
}
