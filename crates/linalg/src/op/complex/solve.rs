//! Complex linear systems and inverses.

use super::{in_parts, none, parts};
use crate::host::{ComplexMatrices, Real, Scalar, identity, joined_complex, row_major};
use crate::kernel::lu::{self, Lu};
use crate::matrix::complex::Complex;
use crate::matrix::{tril, triu};
use crate::op::triangular::solved;
use crate::op::{Gradients, Inverse, MatrixOp, Signature, Solve, SolveTriangular, bare};
use kiln_ir::{Error, Result, ResultTypes, TensorData, Var};

/// `(A, B) -> X`: `A X = B`.
#[derive(Debug)]
pub(crate) struct ComplexSolve;

impl MatrixOp for ComplexSolve {
    const NAME: &'static str = "linalg::complex_solve";

    fn parse(attributes: &str) -> Option<Self> {
        bare(attributes, ComplexSolve)
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        Ok(in_parts(Solve.infer(operands.complex()?)?))
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = ComplexMatrices::<T>::of(&inputs[0], &inputs[2])?;
        let b = ComplexMatrices::<T>::of(&inputs[1], &inputs[3])?;
        let solutions = a.re.each(|index| {
            let lu = lu::factor(a.get(index).as_ref());
            regular("solve", &a, index, &lu)?;
            Ok(row_major(lu.solve(b.get(index).as_ref()).as_ref()))
        })?;
        Ok(joined_complex(solutions, *inputs[1].shape())?.into())
    }

    /// `B̄ = A⁻ᴴ X̄`, `Ā = -B̄ Xᴴ`: M. Giles, 2008, section 2.3.1, with adjoints instead of transposes.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let solution = Complex::at(y, 0);
        let Some(g) = Complex::gradient(g, 0, &solution) else { return none(2) };
        let gb = Complex::operand(x, 0).adjoint().solve(&g)?;
        let ga = -gb.matmul(&solution.adjoint());
        parts(&[ga, gb])
    }
}

/// `(A, B) -> X`: `A X = B`. Reads one triangle of `A`, without its diagonal if that is taken to be ones. A zero on the
/// diagonal results in infinities and NaNs.
#[derive(Debug)]
pub(crate) struct ComplexSolveTriangular(pub(crate) SolveTriangular);

impl MatrixOp for ComplexSolveTriangular {
    const NAME: &'static str = "linalg::complex_solve_triangular";

    fn attributes(&self) -> String {
        self.0.attributes()
    }

    fn parse(attributes: &str) -> Option<Self> {
        SolveTriangular::parse(attributes).map(ComplexSolveTriangular)
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        Ok(in_parts(self.0.infer(operands.complex()?)?))
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = ComplexMatrices::<T>::of(&inputs[0], &inputs[2])?;
        let b = ComplexMatrices::<T>::of(&inputs[1], &inputs[3])?;
        let solutions = a.re.each(|index| Ok(solved(&self.0, a.get(index).as_ref(), b.get(index))))?;
        Ok(joined_complex(solutions, *inputs[1].shape())?.into())
    }

    /// The rule of [`ComplexSolve`], with the part of `Ā` that is read.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let solution = Complex::at(y, 0);
        let Some(g) = Complex::gradient(g, 0, &solution) else { return none(2) };
        let SolveTriangular { upper, unit } = self.0;
        let turned = ComplexSolveTriangular(SolveTriangular { upper: !upper, unit });
        let gb = Complex::run_one(turned, &[&Complex::operand(x, 0).adjoint(), &g])?;
        let ga = -gb.matmul(&solution.adjoint());
        let offset = i32::from(unit);
        let ga = ga.each(|part| if upper { triu(part, offset) } else { tril(part, -offset) });
        parts(&[ga, gb])
    }
}

/// `(A) -> A⁻¹`.
#[derive(Debug)]
pub(crate) struct ComplexInverse;

impl MatrixOp for ComplexInverse {
    const NAME: &'static str = "linalg::complex_inverse";

    fn parse(attributes: &str) -> Option<Self> {
        bare(attributes, ComplexInverse)
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        Ok(in_parts(Inverse { infinite: false }.infer(operands.complex()?)?))
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = ComplexMatrices::<T>::of(&inputs[0], &inputs[1])?;
        let n = a.re.rows;
        let inverses = a.re.each(|index| {
            let lu = lu::factor(a.get(index).as_ref());
            regular("inverse", &a, index, &lu)?;
            Ok(row_major(lu.solve(identity(n, n).as_ref()).as_ref()))
        })?;
        Ok(joined_complex(inverses, *inputs[0].shape())?.into())
    }

    /// `-Yᴴ Ȳ Yᴴ`: M. Giles, 2008, section 2.2.3, with adjoints instead of transposes.
    fn vjp<'e>(&self, _x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let inverse = Complex::at(y, 0);
        let Some(g) = Complex::gradient(g, 0, &inverse) else { return none(1) };
        let adjoint = inverse.adjoint();
        parts(&[-adjoint.matmul(&g).matmul(&adjoint)])
    }
}

/// Returns an error for a singular matrix.
fn regular<T: Real>(
    op: &str,
    a: &ComplexMatrices<'_, T>,
    index: usize,
    lu: &Lu<impl Scalar>,
) -> Result<(), Error> {
    match lu.zero_pivot() {
        None => Ok(()),
        Some(place) => Err(a
            .re
            .error(op, index, "is singular")
            .hint(format!("the pivot of row {place} is zero; `complex::svd` accepts such matrices"))),
    }
}
