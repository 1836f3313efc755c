//! Eigenvalue decomposition of symmetric matrices.

use super::{Eigh, Eigvalsh, Gradients, MatrixOp, Signature, last_two, run, with_last};
use crate::host::{Matrices, Number, joined, listed, split};
use crate::kernel::eigen;
use crate::matrix::{as_column, as_row, eye, from_diagonal, on_diagonal};
use kiln_ir::{Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

impl MatrixOp for Eigh {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        let ty = operands.square(0)?;
        Ok(smallvec![with_last(ty, &[last_two(&ty.shape).0]), *ty])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(inputs, 0)?;
        let parts = a.each_converged("eigh", |index| eigen::symmetric(a.get(index).as_ref()))?;
        let (values, vectors) = split(parts);
        let values = joined(values, a.shape_with(&[a.rows]))?;
        Ok(listed([vec![values], T::joined(vectors, *inputs[0].shape())?]))
    }

    /// M. Giles, 2008, section 3.1: `V (diag(w̄) + (Vᵀ V̄) / E) Vᵀ` with `E_ij = w_j - w_i`. Equal eigenvalues result
    /// in infinities and NaNs if the vectors have a gradient.
    fn vjp<'e>(&self, _x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let (values, v) = (&y[0], &y[1]);
        let vt = v.transpose();
        let n = last_two(&v.shape()).0;
        let of_values = g[0].as_ref().map(from_diagonal);
        let of_vectors = g[1].as_ref().map(|g| {
            let gaps = as_row(values) - as_column(values) + eye(v, n, n);
            let quotient = vt.matmul(g) / gaps;
            on_diagonal(v, n, n).select(&v.scalar(0.0), &quotient)
        });
        let inner = match (of_values, of_vectors) {
            (Some(a), Some(b)) => a + b,
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return Ok(vec![None]),
        };
        Ok(vec![Some(v.matmul(&inner).matmul(&vt))])
    }
}

impl MatrixOp for Eigvalsh {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        let ty = operands.square(0)?;
        Ok(smallvec![with_last(ty, &[last_two(&ty.shape).0])])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(inputs, 0)?;
        let values = a.each_converged("eigvalsh", |index| eigen::symmetric_values(a.get(index).as_ref()))?;
        Ok(vec![joined(values, a.shape_with(&[a.rows]))?])
    }

    /// `V diag(w̄) Vᵀ`.
    fn vjp<'e>(&self, x: &[Var<'e>], _y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return Ok(vec![None]) };
        let eigen = run(Eigh, &[&x[0]])?;
        let v = &eigen[1];
        Ok(vec![Some((v * as_row(g)).matmul(&v.transpose()))])
    }
}
