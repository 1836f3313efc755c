//! Bessel functions of order 0 and 1: ordinary, `J` and `Y`, and modified, `I` and `K`.

use super::coefficients::{
    I0_FAR, I0_NEAR, I1_FAR, I1_NEAR, J0_NEAR, J0_ZEROS, J1_NEAR, J1_ZEROS, K0_FAR, K0_NEAR, K1_FAR, K1_NEAR,
    P0, P1, Q0, Q1, Y0_NEAR, Y1_NEAR,
};
use super::float::{at_least, at_most, below, by_precision, distance, is, override_with};
use super::polynomial::{Polynomial, horner};
use core::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
use kiln_ir::Var;

/// The upper bound of the series of ordinary functions in `x²`; beyond, Hankel's expansion is used.
const ORDINARY_FAR: f64 = 5.0;

/// The upper bound of the series of `K` in `x²`.
const MODIFIED_FAR: f64 = 2.0;

/// Computes `exp(-|x|) I₀(x)`.
pub(super) fn i0e<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    below(&a, 8.0).select(&I0_NEAR.at(&at_most(&a, 8.0)), &far(&a, &I0_FAR))
}

/// Computes `exp(-|x|) I₁(x)`.
pub(super) fn i1e<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let near = I1_NEAR.at(&at_most(&a, 8.0)) * x;
    below(&a, 8.0).select(&near, &(far(&a, &I1_FAR) * x.sign()))
}

/// Computes the far branch, for `|x| >= 8`.
fn far<'e>(a: &Var<'e>, polynomial: &Polynomial) -> Var<'e> {
    let a = at_least(a, 8.0);
    polynomial.at(&a.recip()) * a.rsqrt()
}

/// Computes `I₀(x)`.
pub(super) fn i0<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    override_with(&unscaled(&a, &i0e(x)), &is(&a, f64::INFINITY), f64::INFINITY)
}

/// Computes `I₁(x)`.
pub(super) fn i1<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    is(&a, f64::INFINITY).select(x, &unscaled(&a, &i1e(x)))
}

/// Multiplies by `exp(a)`, in two parts where that overflows before the product does.
fn unscaled<'e>(a: &Var<'e>, scaled: &Var<'e>) -> Var<'e> {
    let part = (a * 0.5).exp();
    below(a, by_precision(a, 88.0, 709.0)).select(&(scaled * a.exp()), &(scaled * &part * &part))
}

/// Computes `numerator / x`, which is 1/2 at 0 for the functions of order 1.
pub(super) fn divided<'e>(numerator: &Var<'e>, x: &Var<'e>) -> Var<'e> {
    let y = numerator / x;
    override_with(&y, &is(x, 0.0), 0.5)
}

/// Computes `J₀(x)`.
pub(super) fn j0<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let y = below(&a, ORDINARY_FAR).select(&j0_near(&a), &j0_far(&a));
    override_with(&y, &is(&a, f64::INFINITY), 0.0)
}

/// Computes `J₁(x)`.
pub(super) fn j1<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let y = below(&a, ORDINARY_FAR).select(&j1_near(&a), &j1_far(&a));
    let y = override_with(&y, &is(&a, f64::INFINITY), 0.0);
    below(x, 0.0).select(&-&y, &y)
}

/// Computes `Y₀(x)`: -∞ at 0, NaN below.
pub(super) fn y0<'e>(x: &Var<'e>) -> Var<'e> {
    let low = at_most(x, ORDINARY_FAR);
    let near = low.ln() * j0_near(&low) * FRAC_2_PI + Y0_NEAR.at(&low.square());
    let high = at_least(x, ORDINARY_FAR);
    let (sin, cos) = eighth_turns(&high);
    let [p, q] = hankel(&high, &P0, &Q0);
    let far = amplitude(&high) * (p * sin + q * cos);
    second_kind(x, &near, &far)
}

/// Computes `Y₁(x)`: -∞ at 0, NaN below.
pub(super) fn y1<'e>(x: &Var<'e>) -> Var<'e> {
    let low = at_most(x, ORDINARY_FAR);
    let near = (low.ln() * j1_near(&low) - low.recip()) * FRAC_2_PI + &low * Y1_NEAR.at(&low.square());
    let high = at_least(x, ORDINARY_FAR);
    // sin(x - 3π/4) = -cos(x - π/4), cos(x - 3π/4) = sin(x - π/4).
    let (sin, cos) = eighth_turns(&high);
    let [p, q] = hankel(&high, &P1, &Q1);
    let far = amplitude(&high) * (q * sin - p * cos);
    second_kind(x, &near, &far)
}

fn second_kind<'e>(x: &Var<'e>, near: &Var<'e>, far: &Var<'e>) -> Var<'e> {
    let y = below(x, ORDINARY_FAR).select(near, far);
    let y = override_with(&y, &is(x, f64::INFINITY), 0.0);
    let y = override_with(&y, &is(x, 0.0), f64::NEG_INFINITY);
    override_with(&y, &below(x, 0.0), f64::NAN)
}

fn j0_near<'e>(a: &Var<'e>) -> Var<'e> {
    let a = at_most(a, ORDINARY_FAR);
    around_zeros(&a, &J0_ZEROS) * J0_NEAR.at(&a.square())
}

fn j1_near<'e>(a: &Var<'e>) -> Var<'e> {
    let a = at_most(a, ORDINARY_FAR);
    around_zeros(&a, &J1_ZEROS) * J1_NEAR.at(&a.square()) * a
}

/// Computes `(x² - r²)(x² - s²)`, accurate next to the zeros.
fn around_zeros<'e>(a: &Var<'e>, zeros: &[[f64; 2]; 2]) -> Var<'e> {
    let [first, second] = zeros.map(|zero| distance(a, zero) * (a + zero[0]));
    first * second
}

fn j0_far<'e>(a: &Var<'e>) -> Var<'e> {
    let a = at_least(a, ORDINARY_FAR);
    let (sin, cos) = eighth_turns(&a);
    let [p, q] = hankel(&a, &P0, &Q0);
    amplitude(&a) * (p * cos - q * sin)
}

fn j1_far<'e>(a: &Var<'e>) -> Var<'e> {
    let a = at_least(a, ORDINARY_FAR);
    let (sin, cos) = eighth_turns(&a);
    let [p, q] = hankel(&a, &P1, &Q1);
    amplitude(&a) * (p * sin + q * cos)
}

/// Computes `√(2 / πx)`.
fn amplitude<'e>(x: &Var<'e>) -> Var<'e> {
    (x.recip() * FRAC_2_PI).sqrt()
}

/// Computes `P` and `Q` of Hankel's expansion, from polynomials of `25 / x²` for `P` and `Q x`.
fn hankel<'e>(x: &Var<'e>, p: &Polynomial, q: &Polynomial) -> [Var<'e>; 2] {
    let variable = (x.recip() * ORDINARY_FAR).square();
    [p.at(&variable), q.at(&variable) / x]
}

/// Computes `(sin(x - π/4), cos(x - π/4))`, without rounding the difference.
fn eighth_turns<'e>(x: &Var<'e>) -> (Var<'e>, Var<'e>) {
    let (sin, cos) = (x.sin(), x.cos());
    ((&sin - &cos) * FRAC_1_SQRT_2, (sin + cos) * FRAC_1_SQRT_2)
}

/// Computes `exp(x) K₀(x)`: ∞ at 0, NaN below.
pub(super) fn k0e<'e>(x: &Var<'e>) -> Var<'e> {
    scaled_second(x, &k0_near(x), &K0_FAR)
}

/// Computes `exp(x) K₁(x)`: ∞ at 0, NaN below.
pub(super) fn k1e<'e>(x: &Var<'e>) -> Var<'e> {
    scaled_second(x, &k1_near(x), &K1_FAR)
}

/// Computes `K₀(x)`: ∞ at 0, NaN below.
pub(super) fn k0<'e>(x: &Var<'e>) -> Var<'e> {
    plain_second(x, &k0_near(x), &K0_FAR)
}

/// Computes `K₁(x)`: ∞ at 0, NaN below.
pub(super) fn k1<'e>(x: &Var<'e>) -> Var<'e> {
    plain_second(x, &k1_near(x), &K1_FAR)
}

fn k0_near<'e>(x: &Var<'e>) -> Var<'e> {
    let x = at_most(x, MODIFIED_FAR);
    K0_NEAR.at(&x.square()) - (&x * 0.5).ln() * unscaled(&x, &i0e(&x))
}

fn k1_near<'e>(x: &Var<'e>) -> Var<'e> {
    let x = at_most(x, MODIFIED_FAR);
    K1_NEAR.at(&x.square()) / &x + (&x * 0.5).ln() * unscaled(&x, &i1e(&x))
}

fn scaled_second<'e>(x: &Var<'e>, near: &Var<'e>, far: &Polynomial) -> Var<'e> {
    let high = at_least(x, MODIFIED_FAR);
    let near = near * at_most(x, MODIFIED_FAR).exp();
    defined(x, &below(x, MODIFIED_FAR).select(&near, &(far.at(&high.recip()) * high.rsqrt())))
}

fn plain_second<'e>(x: &Var<'e>, near: &Var<'e>, far: &Polynomial) -> Var<'e> {
    let high = at_least(x, MODIFIED_FAR);
    let far = far.at(&high.recip()) * high.rsqrt() * (-&high).exp();
    defined(x, &below(x, MODIFIED_FAR).select(near, &far))
}

/// Sets the values of `K` at 0 and below.
fn defined<'e>(x: &Var<'e>, y: &Var<'e>) -> Var<'e> {
    let y = override_with(y, &is(x, 0.0), f64::INFINITY);
    override_with(&y, &below(x, 0.0), f64::NAN)
}

/// Computes `sin(x) / x`, 1 at 0: the spherical Bessel function of order 0.
pub(super) fn spherical_j0<'e>(x: &Var<'e>) -> Var<'e> {
    let y = override_with(&(x.sin() / x), &is(x, 0.0), 1.0);
    override_with(&y, &is(&x.abs(), f64::INFINITY), 0.0)
}

/// Its derivative, `(cos(x) - y) / x`; near 0 by its series.
pub(super) fn spherical_j0_slope<'e>(x: &Var<'e>, y: &Var<'e>) -> Var<'e> {
    let coefficients =
        [-1.0 / 3.0, 1.0 / 30.0, -1.0 / 840.0, 1.0 / 45_360.0, -1.0 / 3_991_680.0, 1.0 / 518_918_400.0];
    let series = x * horner(&x.square(), &coefficients);
    below(&x.abs(), 0.5).select(&series, &((x.cos() - y) / x))
}
