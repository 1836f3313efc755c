//! Determinants.

use super::{Cofactor, Det, Gradients, Inverse, MatrixOp, Signature, Slogdet, run_one, with_last};
use crate::host::{Matrices, Number, Scalar, joined, listed, nans, row_major, split};
use crate::kernel::{factor, lu};
use crate::matrix::{as_matrix, sum};
use faer::Mat;
use faer::traits::math_utils::{conj, from_f64};
use kiln_ir::{Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

impl MatrixOp for Det {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        Ok(smallvec![with_last(operands.square(0)?, &[])])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(inputs, 0)?;
        let determinants = a.each(|index| Ok(vec![lu::factor(a.get(index).as_ref()).determinant()]))?;
        T::joined(determinants, a.shape_with(&[]))
    }

    /// M. Giles, 2008, section 2.2.4, with the cofactor matrix instead of `det(A) A⁻ᵀ`, so that singular matrices have
    /// a gradient.
    fn vjp<'e>(&self, x: &[Var<'e>], _y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return Ok(vec![None]) };
        Ok(vec![Some(run_one(Cofactor, &[&x[0]])? * as_matrix(g))])
    }
}

impl MatrixOp for Cofactor {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        Ok(smallvec![*operands.square(0)?])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(inputs, 0)?;
        let cofactors = a.each(|index| {
            if !a.is_finite(index) {
                return Ok(nans(a.rows * a.cols));
            }
            let svd = factor::thin(a.get(index).as_ref());
            Ok(svd.map_or_else(|| nans(a.rows * a.cols), |svd| row_major(cofactors(&svd).as_ref())))
        })?;
        T::joined(cofactors, *inputs[0].shape())
    }

    /// From `dC = (⟨C, dA⟩ C - C dAᵀ C) / det A`, which requires a nonsingular matrix.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return Ok(vec![None]) };
        let c = &y[0];
        let determinant = as_matrix(&run_one(Det, &[&x[0]])?);
        let difference = c * sum(&(c * g)) - c.matmul(&g.transpose()).matmul(c);
        Ok(vec![Some(difference / determinant)])
    }
}

/// `det(U) det(V)* U* diag(products of all other singular values) Vᵀ`, where `*` is the conjugate.
fn cofactors<T: Scalar>(svd: &factor::Thin<T>) -> Mat<T> {
    let n = svd.values.len();
    let sign = |side: &Mat<T>| lu::factor(side.as_ref()).sign_and_log().0;
    let sign = sign(&svd.u) * conj(&sign(&svd.v));
    let others =
        |skipped: usize| -> f64 { (0..n).filter(|&i| i != skipped).map(|i| svd.values[i]).product() };
    let scaled: Vec<T> = (0..n).map(|i| sign * T::of(others(i))).collect();
    let left = Mat::from_fn(n, n, |i, j| conj(&svd.u[(i, j)]) * scaled[j]);
    left * svd.v.transpose()
}

impl MatrixOp for Slogdet {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        let ty = with_last(operands.square(0)?, &[]);
        Ok(smallvec![ty, ty])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(inputs, 0)?;
        let parts = a.each(|index| {
            let (sign, log) = lu::factor(a.get(index).as_ref()).sign_and_log();
            Ok((vec![sign], vec![from_f64::<T::Real>(log)]))
        })?;
        let (signs, logs) = split(parts);
        let shape = a.shape_with(&[]);
        Ok(listed([T::joined(signs, shape)?, vec![joined(logs, shape)?]]))
    }

    /// M. Giles, 2008, section 2.2.4: `A⁻ᵀ` times the gradient of the logarithm. The sign is constant.
    fn vjp<'e>(&self, x: &[Var<'e>], _y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[1] else { return Ok(vec![None]) };
        let inverse = run_one(Inverse { infinite: false }, &[&x[0]])?;
        Ok(vec![Some(inverse.transpose() * as_matrix(g))])
    }
}
