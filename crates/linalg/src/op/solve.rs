//! Linear systems and inverses.

use super::triangular::infer_solution;
use super::{Gradients, Inverse, MatrixOp, Signature, Solve, run_one};
use crate::host::{Matrices, Number, identity, row_major};
use crate::kernel::lu::{self, Lu};
use kiln_ir::{Error, Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

impl MatrixOp for Solve {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        Ok(smallvec![infer_solution(operands)?])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let (a, b) = (Matrices::<T>::of(inputs, 0)?, Matrices::<T>::of(inputs, 1)?);
        let solutions = a.each(|index| {
            let lu = lu::factor(a.get(index).as_ref());
            regular("solve", &a, index, &lu)?;
            Ok(row_major(lu.solve(b.get(index).as_ref()).as_ref()))
        })?;
        T::joined(solutions, *inputs[1].shape())
    }

    /// M. Giles, 2008, section 2.3.1: `B̄ = A⁻ᵀ X̄`, `Ā = -B̄ Xᵀ`.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return Ok(vec![None, None]) };
        let gb = run_one(Solve, &[&x[0].transpose(), g])?;
        let ga = -gb.matmul(&y[0].transpose());
        Ok(vec![Some(ga), Some(gb)])
    }
}

impl MatrixOp for Inverse {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        Ok(smallvec![*operands.square(0)?])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(inputs, 0)?;
        let inverses = a.each(|index| {
            let lu = lu::factor(a.get(index).as_ref());
            if self.infinite && lu.zero_pivot().is_some() {
                return Ok(vec![T::of(f64::INFINITY); a.rows * a.cols]);
            }
            regular("inverse", &a, index, &lu)?;
            Ok(row_major(lu.solve(identity(a.rows, a.rows).as_ref()).as_ref()))
        })?;
        T::joined(inverses, *inputs[0].shape())
    }

    /// M. Giles, 2008, section 2.2.3: `-Yᵀ Ȳ Yᵀ`.
    fn vjp<'e>(&self, _x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return Ok(vec![None]) };
        let transposed = y[0].transpose();
        Ok(vec![Some(-transposed.matmul(g).matmul(&transposed))])
    }
}

/// Returns an error for a singular matrix.
fn regular<T: Number>(op: &str, a: &Matrices<'_, T>, index: usize, lu: &Lu<T>) -> Result<(), Error> {
    match lu.zero_pivot() {
        None => Ok(()),
        Some(place) => {
            let others = if T::IS_REAL { "`pinv` and `lstsq` accept" } else { "`complex::svd` accepts" };
            let hint = format!("the pivot of row {place} is zero; {others} such matrices");
            Err(a.error(op, index, "is singular").hint(hint))
        }
    }
}
