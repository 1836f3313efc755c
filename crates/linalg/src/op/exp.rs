//! Matrix exponential.

use super::{Gradients, MatrixExp, MatrixOp, Signature, last_two, run_one};
use crate::host::{Matrices, Number, Scalar, nans};
use crate::kernel::exp;
use crate::matrix::{below, beside, block};
use faer::Mat;
use kiln_ir::{Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

impl MatrixOp for MatrixExp {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        Ok(smallvec![*operands.square(0)?])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T::Part>::of(inputs, 0)?;
        let n = a.rows;
        let results = a.each(|index| {
            if !a.is_finite(index) {
                return Ok(nans(n * n));
            }
            let matrix = a.get(index);
            let matrix = matrix.as_ref();
            // In f64 for both dtypes, so that one approximant suffices.
            let result = exp::exp(Mat::<f64>::from_fn(n, n, |i, j| matrix[(i, j)].into()).as_ref());
            Ok((0..n * n).map(|place| T::Part::of(result[(place / n, place % n)])).collect())
        })?;
        T::Part::joined(results, *inputs[0].shape())
    }

    /// R. Mathias, *A chain rule for matrix functions and applications*, 1996: the gradient is the upper right block of
    /// `exp([[Aᵀ, Ȳ], [0, Aᵀ]])`.
    fn vjp<'e>(&self, x: &[Var<'e>], _y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return Ok(vec![None]) };
        let n = last_two(&x[0].shape()).0;
        let at = x[0].transpose();
        let zeros = Var::zeros(at.engine(), at.ty());
        let matrix = below(&[beside(&[at.clone(), g.clone()]), beside(&[zeros, at])]);
        let result = run_one(MatrixExp, &[&matrix])?;
        Ok(vec![Some(block(&result, 0..n, n..2 * n))])
    }
}
