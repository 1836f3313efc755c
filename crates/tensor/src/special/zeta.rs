//! The Hurwitz zeta function.

use super::float::{below, is, override_with};
use kiln_ir::Var;

/// The number of terms that are summed before the Euler-Maclaurin formula.
const TERMS: u32 = 10;

/// `B₂ₖ / (2k)!` for `k` from 1 on.
const COEFFICIENTS: [f64; 8] = [
    1.0 / 12.0,
    -1.0 / 720.0,
    1.0 / 30_240.0,
    -1.0 / 1_209_600.0,
    1.0 / 47_900_160.0,
    -691.0 / 1_307_674_368_000.0,
    1.0 / 74_724_249_600.0,
    -3617.0 / 10_670_622_842_880_000.0,
];

/// Computes `Σ 1 / (q + k)^s` over all `k >= 0`. It is ∞ at `s = 1` and where `q` is 0 or a negative integer, NaN for
/// other negative `q` and for `s < 1`.
pub(super) fn zeta<'e>(s: &Var<'e>, q: &Var<'e>) -> Var<'e> {
    let [sum, _] = with_slope(s, q);
    // For an infinite order only the first term remains.
    let y = is(s, f64::INFINITY).select(&q.pow(&-s), &sum);
    let y = override_with(&y, &is(s, 1.0), f64::INFINITY);
    let y = override_with(&y, &below(s, 1.0), f64::NAN);
    let is_positive = below(&-q, 0.0);
    let is_pole = is_positive.not().and(&q.equal(&q.floor()));
    let y = override_with(&y, &below(q, 0.0), f64::NAN);
    let y = override_with(&y, &is_pole.and(&below(s, 1.0).not()), f64::INFINITY);
    let has_nan = s.equal(s).and(&q.equal(q)).not();
    override_with(&y, &has_nan, f64::NAN)
}

/// Computes the derivative of [`zeta`] by `s`, for `s > 1` and `q > 0`; NaN elsewhere.
pub(super) fn slope_of_order<'e>(s: &Var<'e>, q: &Var<'e>) -> Var<'e> {
    let [_, slope] = with_slope(s, q);
    let is_defined = below(&-s, -1.0).and(&below(&-q, 0.0));
    override_with(&slope, &is_defined.not(), f64::NAN)
}

/// Computes the sum and its derivative by `s`.
fn with_slope<'e>(s: &Var<'e>, q: &Var<'e>) -> [Var<'e>; 2] {
    let power = |place: &Var<'e>| place.pow(&-s);
    let (mut sum, mut slope) = (power(q), power(q) * -q.ln());
    for k in 1..TERMS {
        let place = q + f64::from(k);
        let term = power(&place);
        slope = slope - &term * place.ln();
        sum = sum + term;
    }
    let place = q + f64::from(TERMS);
    let inverse = place.recip();
    let past = s - 1.0;
    let mut rest = &place / &past + 0.5;
    let mut rest_slope = -(&place / past.square());
    // s (s + 1) .. (s + 2k - 2) over place^(2k - 1), and the sum of the factors' reciprocals.
    let mut factor = s * &inverse;
    let mut logarithmic = s.recip();
    for (k, coefficient) in COEFFICIENTS.into_iter().enumerate() {
        let term = &factor * coefficient;
        rest_slope = rest_slope + &term * &logarithmic;
        rest = rest + term;
        let last = 2.0 * k as f64;
        let (next, after) = (s + (last + 1.0), s + (last + 2.0));
        factor = factor * &next * &inverse * &after * &inverse;
        logarithmic = logarithmic + next.recip() + after.recip();
    }
    let first = power(&place);
    slope = slope + &first * (rest_slope - &rest * place.ln());
    [sum + first * rest, slope]
}
