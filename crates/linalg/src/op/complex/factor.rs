//! Cholesky and QR decompositions of complex matrices.

use super::{ComplexOp, ComplexRule, none, parts};
use crate::matrix::beside;
use crate::matrix::complex::Complex;
use crate::op::qr::undetermined;
use crate::op::{Cholesky, Gradients, Qr, SolveTriangular, last_two};
use kiln_ir::{Result, Var};

/// `(A) -> L`: `A = L Lᴴ` for Hermitian positive definite matrices. Reads the lower triangle and the real part of the
/// diagonal.
impl ComplexRule for Cholesky {
    /// I. Murray, *Differentiation of the Cholesky decomposition*, 2016, equation 10, with adjoints instead of
    /// transposes. The diagonal of `L` is real, so only the real part of the diagonal of `P = Φ(Lᴴ L̄)` is used. The
    /// gradient `L⁻ᴴ P L⁻¹` is made Hermitian.
    fn complex_vjp<'e>(&self, _x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let l = Complex::at(y, 0);
        let Some(g) = Complex::gradient(g, 0, &l) else { return none(1) };
        let upper = l.adjoint();
        let hermitian = upper.matmul(&g).hermitian_from_lower().each(|part| part * 0.5);
        let left = solve_upper(&upper, &hermitian)?;
        parts(&[solve_upper(&upper, &left.adjoint())?.adjoint()])
    }
}

/// Solves `R X = B` with upper triangular `R`.
fn solve_upper<'e>(r: &Complex<'e>, b: &Complex<'e>) -> Result<Complex<'e>> {
    Complex::run_one(ComplexOp(SolveTriangular { upper: true, unit: false }), &[r, b])
}

/// `(A) -> (Q, R)`: `A = Q R` with orthonormal columns of `Q` and upper triangular `R`, whose diagonal is real and not
/// negative.
impl ComplexRule for Qr {
    /// The rules of [`Qr`] with adjoints instead of transposes, for a real diagonal of `R`.
    fn complex_vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let (rows, cols) = last_two(&x[0].shape());
        if self.complete && rows > cols {
            return Err(undetermined(rows, cols));
        }
        let (q, r) = (Complex::at(y, 0), Complex::at(y, 2));
        let (gq, gr) = match (Complex::gradient(g, 0, &q), Complex::gradient(g, 2, &r)) {
            (None, None) => return none(1),
            (gq, gr) => (gq.unwrap_or_else(|| zeros(&q)), gr.unwrap_or_else(|| zeros(&r))),
        };
        if cols <= rows {
            return parts(&[tall(&q, &r, gq, &gr)?]);
        }
        let (u, gu, gv) = (r.columns(0..rows), gr.columns(0..rows), gr.columns(rows..cols));
        let rest = Complex::operand(x, 0).columns(rows..cols);
        let left = tall(&q, &u, gq + rest.matmul(&gv.adjoint()), &gu)?;
        let right = q.matmul(&gv);
        parts(&[Complex::new(beside(&[left.re, right.re]), beside(&[left.im, right.im]))])
    }
}

fn zeros<'e>(like: &Complex<'e>) -> Complex<'e> {
    like.each(|part| Var::zeros(part.engine(), part.ty()))
}

/// `(Q̄ + Q H(R R̄ᴴ - Q̄ᴴ Q)) R⁻ᴴ`, where `H` returns the Hermitian matrix of a lower triangle.
fn tall<'e>(q: &Complex<'e>, r: &Complex<'e>, gq: Complex<'e>, gr: &Complex<'e>) -> Result<Complex<'e>> {
    let m = r.matmul(&gr.adjoint()) - gq.adjoint().matmul(q);
    let right = gq + q.matmul(&m.hermitian_from_lower());
    Ok(solve_upper(r, &right.adjoint())?.adjoint())
}
