//! Eigenvalue decompositions of complex matrices.

use super::{ComplexOp, ComplexRule, none, parts};
use crate::matrix::complex::Complex;
use crate::matrix::{as_column, as_row, eye, from_diagonal, on_diagonal, or_zeros};
use crate::op::{Eig, Eigh, Eigvalsh, Gradients, eig, last_two};
use kiln_ir::Var;

/// `(A) -> (values, V)`: `A = V diag(values) Vᴴ`, values ascending. Reads the lower triangle and the real part of the
/// diagonal.
impl ComplexRule for Eigh {
    const IS_COMPLEX: &'static [bool] = &[false, true];

    /// The rule of [`Eigh`] with adjoints instead of transposes, for functions that do not depend on the phases of the
    /// vectors: the diagonal of `Vᴴ V̄` is ignored.
    fn complex_vjp<'e>(&self, _x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let (values, v) = (&y[0], Complex::at(y, 1));
        let adjoint = v.adjoint();
        let n = last_two(&v.re.shape()).0;
        let of_values = g[0].as_ref().map(|g| Complex::from_real(from_diagonal(g)));
        let of_vectors = Complex::gradient(g, 1, &v).map(|g| {
            let gaps = as_row(values) - as_column(values) + eye(&v.re, n, n);
            let here = on_diagonal(&v.re, n, n);
            adjoint.matmul(&g).each(|part| here.select(&part.scalar(0.0), &(part / &gaps)))
        });
        let inner = match (of_values, of_vectors) {
            (Some(a), Some(b)) => a + b,
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return none(1),
        };
        parts(&[v.matmul(&inner).matmul(&adjoint)])
    }
}

/// `(A) -> values`: the eigenvalues, ascending. Reads the lower triangle and the real part of the diagonal.
impl ComplexRule for Eigvalsh {
    const IS_COMPLEX: &'static [bool] = &[false];

    /// `V diag(w̄) Vᴴ`.
    fn complex_vjp<'e>(&self, x: &[Var<'e>], _y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return none(1) };
        let eigen = Complex::run(ComplexOp(Eigh), &[&Complex::operand(x, 0)])?;
        let (v, weights) = (Complex::at(&eigen, 1), as_row(g));
        parts(&[v.each(|part| part * &weights).matmul(&v.adjoint())])
    }
}

/// `(A) -> (w, V)`: `A V = V diag(w)`, columns of norm 1 whose largest element is real.
impl ComplexRule for Eig {
    const IS_COMPLEX: &'static [bool] = &[false, false, false, false];

    /// The rule of [`Eig`], without taking the real part.
    fn complex_vjp<'e>(&self, _x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let (w, v) = (Complex::at(y, 0), Complex::at(y, 2));
        let of_vectors = Complex::gradient(g, 2, &v);
        if of_vectors.is_none() && g[0].is_none() && g[1].is_none() {
            return none(1);
        }
        let gw = Complex::new(or_zeros(&g[0], &w.re), or_zeros(&g[1], &w.im));
        parts(&[eig::gradient(&w, &v, &gw, of_vectors)?])
    }
}
