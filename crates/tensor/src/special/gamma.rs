//! The logarithm of the gamma function and its derivatives.

use super::coefficients::{DIGAMMA, DIGAMMA_ROOT, LGAMMA_ONE, LGAMMA_TWO};
use super::float::{at_least, at_most, below, distance, is, override_with, sin_cos_pi};
use super::polynomial::horner;
use alloc::vec::Vec;
use core::f64::consts::PI;
use kiln_ir::Var;

/// From here on asymptotic series are used.
const FAR: f64 = 10.0;

/// `(ln 2π - 1) / 2`.
const STIRLING: f64 = 0.418_938_533_204_672_7;

/// Computes `ln |Γ(x)|`, infinite at 0 and at negative integers.
pub(super) fn lgamma<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let [here, after] = lgamma_of_positive(&a);
    // Γ(-a) Γ(1 + a) = -π / sin πa; from 1/2 on by Γ(1 + a) = a Γ(a).
    let (sin, _) = sin_cos_pi(&a);
    let is_low = below(&a, 0.5);
    let sine = sin.abs() / PI;
    let product = is_low.select(&sine, &(&sine * &a));
    let negative = -product.ln() - is_low.select(&after, &here);
    let y = below(x, 0.0).select(&negative, &here);
    // Large magnitudes are whole: poles below zero, and infinite above.
    let pole = below(x, 0.0).and(&is(&sin, 0.0));
    override_with(&y, &pole.or(&is(&a, f64::INFINITY)), f64::INFINITY)
}

/// Computes `ln Γ(x)`, and below 1/2 also `ln Γ(1 + x)`: by polynomials around the zeros at 1 and 2, to which arguments
/// up to [`FAR`] are brought, and Stirling's series.
fn lgamma_of_positive<'e>(x: &Var<'e>) -> [Var<'e>; 2] {
    let low = below(x, 0.5);
    // Γ(1 + x) = x Γ(x): below 1/2 around 1 with `u = x`, up to 3/2 with `u = x - 1`.
    let u = at_most(&low.select(x, &(x - 1.0)), 0.5);
    let after = &u * LGAMMA_ONE.at(&u);
    let one = low.select(&(&after - x.ln()), &after);

    let middle = at_most(&at_least(x, 1.5), FAR);
    let steps = at_least(&(&middle - 2.0).round(), 0.0);
    let mut product = Var::full(x.engine(), x.ty(), 1.0);
    for k in 1..=8 {
        let taken = below(&steps, f64::from(k));
        product = taken.select(&product, &(&product * (&middle - f64::from(k))));
    }
    let u = middle - steps - 2.0;
    let two = product.ln() + &u * LGAMMA_TWO.at(&u);

    let big = at_least(x, FAR);
    let inverse = big.recip();
    let series = [
        1.0 / 12.0,
        -1.0 / 360.0,
        1.0 / 1260.0,
        -1.0 / 1680.0,
        1.0 / 1188.0,
        -691.0 / 360_360.0,
        1.0 / 156.0,
    ];
    let far = (&big - 0.5) * (big.ln() - 1.0) + (&inverse * horner(&inverse.square(), &series) + STIRLING);

    let y = below(x, FAR).select(&two, &far);
    [below(x, 1.5).select(&one, &y), after]
}

/// Computes the derivative of [`lgamma`]: -∞ at 0, +∞ at -0, NaN at negative integers.
pub(super) fn digamma<'e>(x: &Var<'e>) -> Var<'e> {
    let a = x.abs();
    let [here, after] = digamma_of_positive(&a);
    // ψ(-a) = ψ(1 + a) + π cot πa.
    let (sin, cos) = sin_cos_pi(&a);
    let negative = override_with(&(after + cos / &sin * PI), &is(&sin, 0.0), f64::NAN);
    let y = below(x, 0.0).select(&negative, &here);
    is(x, 0.0).select(&-x.recip(), &y)
}

/// Computes `ψ(x)` and `ψ(1 + x)` for `x >= 0`.
fn digamma_of_positive<'e>(x: &Var<'e>) -> [Var<'e>; 2] {
    // Brought into [1, 2): below 1 by one step up, above by steps down.
    let is_low = below(x, 1.0);
    let middle = at_most(x, FAR);
    let steps = at_least(&(&middle - 1.0).floor(), 0.0);
    let reduced = is_low.select(&(&middle + 1.0), &(&middle - &steps));
    let mut near = distance(&reduced, DIGAMMA_ROOT) * DIGAMMA.at(&reduced);
    for k in 1..=9 {
        let taken = below(&steps, f64::from(k));
        near = taken.select(&near, &(&near + (&middle - f64::from(k)).recip()));
    }

    let big = at_least(x, FAR);
    let inverse = big.recip();
    let square = inverse.square();
    let series =
        [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32_760.0, 1.0 / 12.0];
    let far = big.ln() - (&inverse * 0.5 + &square * horner(&square, &series));
    let y = below(x, FAR).select(&near, &far);

    let inverse = x.recip();
    [is_low.select(&(&y - &inverse), &y), is_low.select(&y, &(&y + &inverse))]
}

/// Computes the derivative of order `n >= 1` of [`digamma`]: `(-1)^(n+1) n! ζ(n + 1, x)`, and below zero by reflection.
pub(super) fn polygamma<'e>(n: u32, x: &Var<'e>) -> Var<'e> {
    let sign = if n.is_multiple_of(2) { -1.0 } else { 1.0 };
    let factorial: f64 = (1..=n).map(f64::from).product();
    let is_negative = below(x, 0.0);
    let y = hurwitz_zeta(n + 1, &is_negative.select(&(1.0 - x), x)) * (sign * factorial);
    // ψₙ(x) = (-1)ⁿ ψₙ(1 - x) - π dⁿ/dxⁿ cot πx.
    let (sin, cos) = sin_cos_pi(x);
    let slope = horner(&(cos / sin), &cotangent_derivative(n)) * libm::pow(PI, f64::from(n) + 1.0);
    is_negative.select(&(&y * -sign - slope), &y)
}

/// Computes the derivative of order `n` of the cotangent, as a polynomial of the cotangent.
fn cotangent_derivative(n: u32) -> Vec<f64> {
    let mut polynomial = alloc::vec![0.0, 1.0];
    for _ in 0..n {
        // The derivative of a polynomial `p(c)` is `-(1 + c²) p'(c)`.
        let slopes: Vec<f64> = (1..polynomial.len()).map(|k| k as f64 * polynomial[k]).collect();
        polynomial = alloc::vec![0.0; slopes.len() + 2];
        for (k, slope) in slopes.into_iter().enumerate() {
            polynomial[k] -= slope;
            polynomial[k + 2] -= slope;
        }
    }
    polynomial
}

/// Computes `Σ 1 / (x + k)^s` over all `k >= 0`, for `x >= 0`: terms up to [`FAR`], then the Euler-Maclaurin formula.
fn hurwitz_zeta<'e>(s: u32, x: &Var<'e>) -> Var<'e> {
    let power = |x: &Var<'e>| {
        let inverse = x.recip();
        (1..s).fold(inverse.clone(), |product, _| product * &inverse)
    };
    let mut sum = Var::zeros(x.engine(), x.ty());
    let mut place = x.clone();
    for _ in 0..12 {
        let near = below(&place, FAR + 2.0);
        sum = near.select(&(&sum + power(&place)), &sum);
        place = near.select(&(&place + 1.0), &place);
    }
    let order = f64::from(s);
    let inverse = place.recip();
    let square = inverse.square();
    // B₂ₖ / (2k)! times s (s + 1) .. (s + 2k - 2).
    let bernoulli = [1.0 / 6.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 5.0 / 66.0, -691.0 / 2730.0, 7.0 / 6.0];
    let mut factor = order / 2.0;
    let mut series = [0.0; 7];
    for (k, number) in bernoulli.into_iter().enumerate() {
        series[k] = number * factor;
        let last = 2.0 * k as f64;
        factor *= (order + last + 1.0) * (order + last + 2.0) / ((last + 3.0) * (last + 4.0));
    }
    let first = power(&place);
    let rest = &place / (order - 1.0) + 0.5 + &inverse * horner(&square, &series);
    let far = &first * rest;
    // At infinity the product is 0 · ∞.
    let far = override_with(&far, &is(&place, f64::INFINITY), 0.0);
    sum + far
}
