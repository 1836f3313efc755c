//! Cholesky decomposition.

use super::{Cholesky, Gradients, MatrixOp, Signature, SolveTriangular, run_one};
use crate::host::{Matrices, Number};
use crate::kernel::factor;
use crate::matrix::tril;
use kiln_ir::{Error, Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

impl MatrixOp for Cholesky {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        Ok(smallvec![*operands.square(0)?])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(inputs, 0)?;
        let factors = a.each(|index| {
            factor::cholesky(a.get(index).as_ref()).map_err(|order| not_positive(&a, index, order))
        })?;
        T::joined(factors, *inputs[0].shape())
    }

    /// I. Murray, *Differentiation of the Cholesky decomposition*, 2016, equation 10: with `P = Φ(Lᵀ L̄)` the gradient
    /// is `L⁻ᵀ P L⁻¹`, symmetrised.
    fn vjp<'e>(&self, _x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let l = &y[0];
        let Some(g) = &g[0] else { return Ok(vec![None]) };
        let product = l.transpose().matmul(g);
        let symmetric = (tril(&product, 0) + tril(&product, -1).transpose()) * 0.5;
        let upper = l.transpose();
        let solve = |b: &Var<'e>| run_one(SolveTriangular { upper: true, unit: false }, &[&upper, b]);
        let left = solve(&symmetric)?;
        Ok(vec![Some(solve(&left.transpose())?.transpose())])
    }
}

/// The error of a matrix whose leading minor of an order is not positive.
fn not_positive<T: Number>(a: &Matrices<'_, T>, index: usize, order: usize) -> Error {
    a.error("cholesky", index, "is not positive definite").hint(format!(
        "its leading minor of order {order} is not positive; for a matrix that should be positive definite, add a \
         small multiple of the identity"
    ))
}
