//! Complex linear systems and inverses.

use super::{ComplexOp, ComplexRule, none, parts};
use crate::matrix::complex::Complex;
use crate::matrix::{tril, triu};
use crate::op::{Gradients, Inverse, Solve, SolveTriangular};
use kiln_ir::Var;

/// `(A, B) -> X`: `A X = B`.
impl ComplexRule for Solve {
    /// `B̄ = A⁻ᴴ X̄`, `Ā = -B̄ Xᴴ`: M. Giles, 2008, section 2.3.1, with adjoints instead of transposes.
    fn complex_vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let solution = Complex::at(y, 0);
        let Some(g) = Complex::gradient(g, 0, &solution) else { return none(2) };
        let gb = Complex::operand(x, 0).adjoint().solve(&g)?;
        let ga = -gb.matmul(&solution.adjoint());
        parts(&[ga, gb])
    }
}

/// `(A, B) -> X`: `A X = B`. Reads one triangle of `A`, without its diagonal if that is taken to be ones. A zero on the
/// diagonal results in infinities and NaNs.
impl ComplexRule for SolveTriangular {
    /// The rule of [`Solve`], with the part of `Ā` that is read.
    fn complex_vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let solution = Complex::at(y, 0);
        let Some(g) = Complex::gradient(g, 0, &solution) else { return none(2) };
        let SolveTriangular { upper, unit } = *self;
        let turned = ComplexOp(SolveTriangular { upper: !upper, unit });
        let gb = Complex::run_one(turned, &[&Complex::operand(x, 0).adjoint(), &g])?;
        let ga = -gb.matmul(&solution.adjoint());
        let offset = i32::from(unit);
        let ga = ga.each(|part| if upper { triu(part, offset) } else { tril(part, -offset) });
        parts(&[ga, gb])
    }
}

/// `(A) -> A⁻¹`.
impl ComplexRule for Inverse {
    fn complex_attributes(&self) -> String {
        String::new()
    }

    fn complex_parse(attributes: &str) -> Option<Self> {
        attributes.is_empty().then_some(Inverse { infinite: false })
    }

    /// `-Yᴴ Ȳ Yᴴ`: M. Giles, 2008, section 2.2.3, with adjoints instead of transposes.
    fn complex_vjp<'e>(&self, _x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let inverse = Complex::at(y, 0);
        let Some(g) = Complex::gradient(g, 0, &inverse) else { return none(1) };
        let adjoint = inverse.adjoint();
        parts(&[-adjoint.matmul(&g).matmul(&adjoint)])
    }
}
