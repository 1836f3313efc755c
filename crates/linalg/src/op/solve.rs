//! Linear systems and inverses.

use super::triangular::infer_solution;
use super::{Gradients, MatrixOp, Signature, attribute, bare, run_one};
use crate::host::{Matrices, Real, identity, joined, row_major};
use crate::kernel::lu::{self, Lu};
use kiln_ir::{Error, Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

/// `(A, B) -> X`: `A X = B`.
#[derive(Debug)]
pub(crate) struct Solve;

impl MatrixOp for Solve {
    const NAME: &'static str = "linalg::solve";

    fn parse(attributes: &str) -> Option<Self> {
        bare(attributes, Solve)
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        Ok(smallvec![infer_solution(operands)?])
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let (a, b) = (Matrices::<T>::of(&inputs[0])?, Matrices::<T>::of(&inputs[1])?);
        let solutions = a.each(|index| {
            let lu = lu::factor(a.get(index));
            regular("solve", &a, index, &lu)?;
            Ok(row_major(lu.solve(b.get(index)).as_ref()))
        })?;
        Ok(vec![joined(solutions, *inputs[1].shape())?])
    }

    /// M. Giles, 2008, section 2.3.1: `B̄ = A⁻ᵀ X̄`, `Ā = -B̄ Xᵀ`.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return Ok(vec![None, None]) };
        let gb = run_one(Solve, &[&x[0].transpose(), g])?;
        let ga = -gb.matmul(&y[0].transpose());
        Ok(vec![Some(ga), Some(gb)])
    }
}

/// `(A) -> A⁻¹`.
#[derive(Debug)]
pub(crate) struct Inverse {
    /// Whether a singular matrix returns infinities instead of an error.
    pub(crate) infinite: bool,
}

impl MatrixOp for Inverse {
    const NAME: &'static str = "linalg::inverse";

    fn attributes(&self) -> String {
        format!("infinite={}", self.infinite)
    }

    fn parse(attributes: &str) -> Option<Self> {
        Some(Inverse { infinite: attribute(attributes, "infinite")? })
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        Ok(smallvec![*operands.square(0)?])
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(&inputs[0])?;
        let inverses = a.each(|index| {
            let lu = lu::factor(a.get(index));
            if self.infinite && lu.zero_pivot().is_some() {
                return Ok(vec![T::of(f64::INFINITY); a.rows * a.cols]);
            }
            regular("inverse", &a, index, &lu)?;
            Ok(row_major(lu.solve(identity(a.rows, a.rows).as_ref()).as_ref()))
        })?;
        Ok(vec![joined(inverses, *inputs[0].shape())?])
    }

    /// M. Giles, 2008, section 2.2.3: `-Yᵀ Ȳ Yᵀ`.
    fn vjp<'e>(&self, _x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return Ok(vec![None]) };
        let transposed = y[0].transpose();
        Ok(vec![Some(-transposed.matmul(g).matmul(&transposed))])
    }
}

/// Returns an error for a singular matrix.
fn regular<T: Real>(op: &str, a: &Matrices<'_, T>, index: usize, lu: &Lu<T>) -> Result<(), Error> {
    match lu.zero_pivot() {
        None => Ok(()),
        Some(place) => Err(a
            .error(op, index, "is singular")
            .hint(format!("the pivot of row {place} is zero; `pinv` and `lstsq` accept such matrices"))),
    }
}
