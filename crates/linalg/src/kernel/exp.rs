//! Matrix exponential.

use super::lu;
use faer::{Mat, MatRef};

/// Up to this 1-norm the Padé approximant of degree 13 is accurate to `f64` (Higham 2005, table 2.3).
const THETA: f64 = 5.371920351148152;

/// The coefficients of the Padé approximant of degree 13 (Higham 2005, equation 2.2).
const PADE: [f64; 14] = [
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
];

/// Computes `exp(A)` by scaling and squaring with a Padé approximant: N. J. Higham, *The scaling and squaring method
/// for the matrix exponential revisited*, SIAM J. Matrix Anal. Appl. 26 (2005), algorithm 2.3. The elements must be
/// finite.
pub(crate) fn exp(a: MatRef<'_, f64>) -> Mat<f64> {
    let n = a.nrows();
    let norm = (0..n).map(|j| (0..n).map(|i| a[(i, j)].abs()).sum::<f64>()).fold(0.0, f64::max);
    let squarings = if norm > THETA { (norm / THETA).log2().ceil() as i32 } else { 0 };
    // In two steps, since the power itself may underflow.
    let half = 0.5f64.powi(squarings / 2);
    let rest = 0.5f64.powi(squarings - squarings / 2);
    let scaled = Mat::from_fn(n, n, |i, j| a[(i, j)] * half * rest);
    let mut result = pade(&scaled);
    for _ in 0..squarings {
        result = &result * &result;
    }
    result
}

fn pade(a: &Mat<f64>) -> Mat<f64> {
    let n = a.nrows();
    let a2 = a * a;
    let a4 = &a2 * &a2;
    let a6 = &a4 * &a2;
    // `c6 A⁶ + c4 A⁴ + c2 A² + c0 I`.
    let sum = |c6: f64, c4: f64, c2: f64, c0: f64| {
        Mat::from_fn(n, n, |i, j| {
            c6 * a6[(i, j)] + c4 * a4[(i, j)] + c2 * a2[(i, j)] + c0 * f64::from(i == j)
        })
    };
    let b = &PADE;
    let odd = a * (&a6 * sum(b[13], b[11], b[9], 0.0) + sum(b[7], b[5], b[3], b[1]));
    let even = &a6 * sum(b[12], b[10], b[8], 0.0) + sum(b[6], b[4], b[2], b[0]);
    lu::factor((&even - &odd).as_ref()).solve((&even + &odd).as_ref())
}
