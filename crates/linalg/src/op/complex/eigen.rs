//! Eigenvalue decompositions of complex matrices.

use super::{none, parts};
use crate::host::{ComplexMatrices, Real, joined, joined_complex, split};
use crate::kernel::eigen;
use crate::matrix::complex::Complex;
use crate::matrix::{as_column, as_row, eye, from_diagonal, on_diagonal, or_zeros};
use crate::op::svd::no_convergence;
use crate::op::{Eig, Eigh, Eigvalsh, Gradients, MatrixOp, Signature, bare, eig, last_two};
use kiln_ir::{Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

/// `(A) -> (values, V)`: `A = V diag(values) Vᴴ`, values ascending. Reads the lower triangle and the real part of the
/// diagonal.
#[derive(Debug)]
pub(crate) struct ComplexEigh;

impl MatrixOp for ComplexEigh {
    const NAME: &'static str = "linalg::complex_eigh";

    fn parse(attributes: &str) -> Option<Self> {
        bare(attributes, ComplexEigh)
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        let types = Eigh.infer(operands.complex()?)?;
        let (values, vectors) = (types[0], types[1]);
        Ok(smallvec![values, vectors, vectors])
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = ComplexMatrices::<T>::of(&inputs[0], &inputs[1])?;
        let found = a.re.each(|index| {
            if !a.is_finite(index) {
                return Err(a.re.not_finite("eigh", index));
            }
            let eigen = eigen::symmetric(a.get(index).as_ref());
            eigen.ok_or_else(|| no_convergence("eigh", &a.re, index))
        })?;
        let (values, vectors) = split(found);
        let [re, im] = joined_complex(vectors, *inputs[0].shape())?;
        Ok(vec![joined(values, a.re.shape_with(&[a.re.rows]))?, re, im])
    }

    /// The rule of [`Eigh`] with adjoints instead of transposes, for functions that do not depend on the phases of the
    /// vectors: the diagonal of `Vᴴ V̄` is ignored.
    fn vjp<'e>(&self, _x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
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
#[derive(Debug)]
pub(crate) struct ComplexEigvalsh;

impl MatrixOp for ComplexEigvalsh {
    const NAME: &'static str = "linalg::complex_eigvalsh";

    fn parse(attributes: &str) -> Option<Self> {
        bare(attributes, ComplexEigvalsh)
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        Eigvalsh.infer(operands.complex()?)
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = ComplexMatrices::<T>::of(&inputs[0], &inputs[1])?;
        let values = a.re.each(|index| {
            if !a.is_finite(index) {
                return Err(a.re.not_finite("eigvalsh", index));
            }
            let values = eigen::symmetric_values(a.get(index).as_ref());
            values.ok_or_else(|| no_convergence("eigvalsh", &a.re, index))
        })?;
        Ok(vec![joined(values, a.re.shape_with(&[a.re.rows]))?])
    }

    /// `V diag(w̄) Vᴴ`.
    fn vjp<'e>(&self, x: &[Var<'e>], _y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return none(1) };
        let eigen = Complex::run(ComplexEigh, &[&Complex::operand(x, 0)])?;
        let (v, weights) = (Complex::at(&eigen, 1), as_row(g));
        parts(&[v.each(|part| part * &weights).matmul(&v.adjoint())])
    }
}

/// `(A) -> (w, V)`: `A V = V diag(w)`, columns of norm 1 whose largest element is real.
#[derive(Debug)]
pub(crate) struct ComplexEig;

impl MatrixOp for ComplexEig {
    const NAME: &'static str = "linalg::complex_eig";

    fn parse(attributes: &str) -> Option<Self> {
        bare(attributes, ComplexEig)
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        Eig.infer(operands.complex()?)
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = ComplexMatrices::<T>::of(&inputs[0], &inputs[1])?;
        let found = a.re.each(|index| {
            if !a.is_finite(index) {
                return Err(a.re.not_finite("eig", index));
            }
            let eigen = eigen::general(a.get(index).as_ref());
            let eigen = eigen.ok_or_else(|| no_convergence("eig", &a.re, index))?;
            Ok((eigen.values, eigen.vectors))
        })?;
        let (values, vectors) = split(found);
        let ((w_re, w_im), (v_re, v_im)) = (split(values), split(vectors));
        let (short, long) = (a.re.shape_with(&[a.re.rows]), *inputs[0].shape());
        Ok(vec![joined(w_re, short)?, joined(w_im, short)?, joined(v_re, long)?, joined(v_im, long)?])
    }

    /// The rule of [`Eig`], without taking the real part.
    fn vjp<'e>(&self, _x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let (w, v) = (Complex::at(y, 0), Complex::at(y, 2));
        let of_vectors = Complex::gradient(g, 2, &v);
        if of_vectors.is_none() && g[0].is_none() && g[1].is_none() {
            return none(1);
        }
        let gw = Complex::new(or_zeros(&g[0], &w.re), or_zeros(&g[1], &w.im));
        parts(&[eig::gradient(&w, &v, &gw, of_vectors)?])
    }
}
