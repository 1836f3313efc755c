//! Determinants of complex matrices.

use super::{in_parts, none, parts};
use crate::host::{ComplexMatrices, Real, joined, joined_complex, nans, row_major, split};
use crate::kernel::{factor, lu};
use crate::matrix::as_matrix;
use crate::matrix::complex::Complex;
use crate::op::determinant::cofactors;
use crate::op::{Cofactor, ComplexInverse, Det, Gradients, MatrixOp, Signature, Slogdet, bare};
use kiln_ir::{Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

/// `(A) -> det A`, `[..]`.
#[derive(Debug)]
pub(crate) struct ComplexDet;

impl MatrixOp for ComplexDet {
    const NAME: &'static str = "linalg::complex_det";

    fn parse(attributes: &str) -> Option<Self> {
        bare(attributes, ComplexDet)
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        Ok(in_parts(Det.infer(operands.complex()?)?))
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = ComplexMatrices::<T>::of(&inputs[0], &inputs[1])?;
        let determinants = a.re.each(|index| Ok(vec![lu::factor(a.get(index).as_ref()).determinant()]))?;
        Ok(joined_complex(determinants, a.re.shape_with(&[]))?.into())
    }

    /// `d̄ C*` with the cofactor matrix `C = det(A) A⁻ᵀ`, since `d det(A) = tr(Cᵀ dA)`. It exists for singular matrices
    /// too.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = Complex::gradient(g, 0, &Complex::at(y, 0)) else { return none(1) };
        let cofactors = Complex::run_one(ComplexCofactor, &[&Complex::operand(x, 0)])?;
        parts(&[cofactors.conj().times(&g.as_matrix())])
    }
}

/// `(A) -> det(A) A⁻ᵀ`: the cofactor matrix, for singular matrices too.
#[derive(Debug)]
pub(crate) struct ComplexCofactor;

impl MatrixOp for ComplexCofactor {
    const NAME: &'static str = "linalg::complex_cofactor";

    fn parse(attributes: &str) -> Option<Self> {
        bare(attributes, ComplexCofactor)
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        Ok(in_parts(Cofactor.infer(operands.complex()?)?))
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = ComplexMatrices::<T>::of(&inputs[0], &inputs[1])?;
        let count = a.re.rows * a.re.cols;
        let cofactors = a.re.each(|index| {
            if !a.is_finite(index) {
                return Ok(nans::<T::Complex>(count));
            }
            let svd = factor::thin(a.get(index).as_ref());
            Ok(svd.map_or_else(|| nans(count), |svd| row_major(cofactors(&svd).as_ref())))
        })?;
        Ok(joined_complex(cofactors, *inputs[0].shape())?.into())
    }

    /// From `dC = (tr(Cᵀ dA) C - C dAᵀ C) / det A`, which requires a nonsingular matrix: the conjugate of
    /// `(⟨C̄, C⟩ C - C C̄ᴴ C) / det A`.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let c = Complex::at(y, 0);
        let Some(g) = Complex::gradient(g, 0, &c) else { return none(1) };
        let determinant = Complex::run_one(ComplexDet, &[&Complex::operand(x, 0)])?.as_matrix();
        let inner = g.conj().times(&c).sum();
        let difference = c.times(&inner) - c.matmul(&g.adjoint()).matmul(&c);
        parts(&[difference.divide(&determinant).conj()])
    }
}

/// `(A) -> (sign, ln |det A|)`, each `[..]`. The sign is complex with magnitude 1 or 0.
#[derive(Debug)]
pub(crate) struct ComplexSlogdet;

impl MatrixOp for ComplexSlogdet {
    const NAME: &'static str = "linalg::complex_slogdet";

    fn parse(attributes: &str) -> Option<Self> {
        bare(attributes, ComplexSlogdet)
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        let types = Slogdet.infer(operands.complex()?)?;
        let (sign, log) = (types[0], types[1]);
        Ok(smallvec![sign, sign, log])
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = ComplexMatrices::<T>::of(&inputs[0], &inputs[1])?;
        let found = a.re.each(|index| {
            let (sign, log) = lu::factor(a.get(index).as_ref()).sign_and_log();
            Ok((vec![sign], vec![T::of(log)]))
        })?;
        let (signs, logs) = split(found);
        let shape = a.re.shape_with(&[]);
        let [re, im] = joined_complex(signs, shape)?;
        Ok(vec![re, im, joined(logs, shape)?])
    }

    /// With `tr(A⁻¹ dA) = d ln|det A| + i dθ` and `sign = exp(iθ)`: `(l̄ + i θ̄) A⁻ᴴ`, `θ̄ = Im(sign* sign̄)`.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
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
    Ok(Complex::run_one(ComplexInverse, &[&Complex::operand(x, 0)])?.adjoint())
}
