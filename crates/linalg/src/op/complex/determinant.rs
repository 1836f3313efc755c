//! Determinants of complex matrices.

use super::{ComplexOp, ComplexRule, none, parts};
use crate::matrix::as_matrix;
use crate::matrix::complex::Complex;
use crate::op::{Cofactor, Det, Gradients, Inverse, Slogdet};
use kiln_ir::{Result, Var};

/// `(A) -> det A`, `[..]`.
impl ComplexRule for Det {
    /// `d̄ C*` with the cofactor matrix `C = det(A) A⁻ᵀ`, since `d det(A) = tr(Cᵀ dA)`. It exists for singular matrices
    /// too.
    fn complex_vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = Complex::gradient(g, 0, &Complex::at(y, 0)) else { return none(1) };
        let cofactors = Complex::run_one(ComplexOp(Cofactor), &[&Complex::operand(x, 0)])?;
        parts(&[cofactors.conj().times(&g.as_matrix())])
    }
}

/// `(A) -> det(A) A⁻ᵀ`: the cofactor matrix, for singular matrices too.
impl ComplexRule for Cofactor {
    /// From `dC = (tr(Cᵀ dA) C - C dAᵀ C) / det A`, which requires a nonsingular matrix: the conjugate of
    /// `(⟨C̄, C⟩ C - C C̄ᴴ C) / det A`.
    fn complex_vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let c = Complex::at(y, 0);
        let Some(g) = Complex::gradient(g, 0, &c) else { return none(1) };
        let determinant = Complex::run_one(ComplexOp(Det), &[&Complex::operand(x, 0)])?.as_matrix();
        let inner = g.conj().times(&c).sum();
        let difference = c.times(&inner) - c.matmul(&g.adjoint()).matmul(&c);
        parts(&[difference.divide(&determinant).conj()])
    }
}

/// `(A) -> (sign, ln |det A|)`, each `[..]`. The sign is complex with magnitude 1 or 0.
impl ComplexRule for Slogdet {
    const IS_COMPLEX: &'static [bool] = &[true, false];

    /// With `tr(A⁻¹ dA) = d ln|det A| + i dθ` and `sign = exp(iθ)`: `(l̄ + i θ̄) A⁻ᴴ`, `θ̄ = Im(sign* sign̄)`.
    fn complex_vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let sign = Complex::at(y, 0);
        let of_sign = Complex::gradient(g, 0, &sign);
        let of_angle = of_sign.map(|g| as_matrix(&(&g.im * &sign.re - &g.re * &sign.im)));
        let of_log = g[2].as_ref().map(as_matrix);
        let (re, im) = match (of_log, of_angle) {
            (None, None) => return none(1),
            (Some(log), None) => return parts(&[adjoint_inverse(x)?.each(|part| part * &log)]),
            (None, Some(angle)) => (Var::zeros(angle.engine(), angle.ty()), angle),
            (Some(log), Some(angle)) => (log, angle),
        };
        parts(&[adjoint_inverse(x)?.times(&Complex::new(re, im))])
    }
}

fn adjoint_inverse<'e>(x: &[Var<'e>]) -> Result<Complex<'e>> {
    Ok(Complex::run_one(ComplexOp(Inverse { infinite: false }), &[&Complex::operand(x, 0)])?.adjoint())
}
