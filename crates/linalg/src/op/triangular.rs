//! Triangular linear systems.

use super::{Gradients, MatrixOp, Signature, SolveTriangular, last_two, run_one};
use crate::host::{Matrices, Number, Scalar, row_major};
use crate::matrix::{tril, triu};
use faer::linalg::triangular_solve as triangular;
use faer::{Mat, MatRef, Par};
use kiln_ir::{Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

impl MatrixOp for SolveTriangular {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        Ok(smallvec![infer_solution(operands)?])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let (a, b) = (Matrices::<T>::of(inputs, 0)?, Matrices::<T>::of(inputs, 1)?);
        let solutions =
            a.each(|index| Ok(solved(self, a.get(index).as_ref(), b.get(index).as_ref().to_owned())))?;
        T::joined(solutions, *inputs[1].shape())
    }

    /// M. Giles, *An extended collection of matrix derivative results*, 2008, section 2.3.1, with the part of `Ā` that is
    /// read: `B̄ = A⁻ᵀ X̄`, `Ā = -B̄ Xᵀ`.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return Ok(vec![None, None]) };
        let transposed = SolveTriangular { upper: !self.upper, unit: self.unit };
        let gb = run_one(transposed, &[&x[0].transpose(), g])?;
        let ga = -gb.matmul(&y[0].transpose());
        let offset = i32::from(self.unit);
        let ga = if self.upper { triu(&ga, offset) } else { tril(&ga, -offset) };
        Ok(vec![Some(ga), Some(gb)])
    }
}

/// Solves `A X = B` and returns `X` in row-major order.
fn solved<T: Scalar>(op: &SolveTriangular, a: MatRef<'_, T>, b: Mat<T>) -> Vec<T> {
    let mut x = b;
    match (op.upper, op.unit) {
        (false, false) => triangular::solve_lower_triangular_in_place(a, x.as_mut(), Par::Seq),
        (false, true) => triangular::solve_unit_lower_triangular_in_place(a, x.as_mut(), Par::Seq),
        (true, false) => triangular::solve_upper_triangular_in_place(a, x.as_mut(), Par::Seq),
        (true, true) => triangular::solve_unit_upper_triangular_in_place(a, x.as_mut(), Par::Seq),
    }
    row_major(x.as_ref())
}

/// The type of `X` in `A X = B` with square `A`.
pub(crate) fn infer_solution(operands: Signature<'_>) -> Result<kiln_ir::TensorType> {
    operands.count(2)?;
    let (a, b) = (operands.square(0)?, operands.matrix(1)?);
    operands.alike(a, b)?;
    let (n, rows) = (last_two(&a.shape).0, last_two(&b.shape).0);
    if n != rows {
        return Err(operands
            .error("sizes differ")
            .hint(format!("the matrices have {n} rows and the right sides {rows}: both must be equal")));
    }
    Ok(*b)
}
