//! Eigenvalue decomposition of general matrices, as pairs of real and imaginary parts.

use super::{Eig, Gradients, MatrixOp, Signature, last_two, with_last};
use crate::host::{Matrices, Number, joined, split};
use crate::kernel::eigen;
use crate::matrix::complex::Complex;
use crate::matrix::{as_column, as_row, diagonal, eye, from_diagonal, on_diagonal, or_zeros};
use kiln_ir::{Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

impl MatrixOp for Eig {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        let ty = operands.square(0)?;
        let values = with_last(ty, &[last_two(&ty.shape).0]);
        Ok(smallvec![values, values, *ty, *ty])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(inputs, 0)?;
        let parts = a.each_converged("eig", |index| {
            let eigen = eigen::general(a.get(index).as_ref())?;
            Some((eigen.values, eigen.vectors))
        })?;
        let (values, vectors) = split(parts);
        let ((w_re, w_im), (v_re, v_im)) = (split(values), split(vectors));
        let (short, long) = (a.shape_with(&[a.rows]), *inputs[0].shape());
        Ok(vec![joined(w_re, short)?, joined(w_im, short)?, joined(v_re, long)?, joined(v_im, long)?])
    }

    /// C. Boeddeker and others, *On the computation of complex-valued gradients with application to statistically
    /// optimum beamforming*, 2017, equation 4.77, for eigenvectors of norm 1: the real part of
    /// `V⁻ᴴ (diag(w̄) + (VᴴV̄ - VᴴV diag(Re(VᴴV̄))) / E*) Vᴴ` with `E_ij = w_j - w_i`.
    fn vjp<'e>(&self, _x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let w = Complex::new(y[0].clone(), y[1].clone());
        let v = Complex::new(y[2].clone(), y[3].clone());
        let gw = Complex::new(or_zeros(&g[0], &w.re), or_zeros(&g[1], &w.im));
        let of_vectors = match (&g[2], &g[3]) {
            (None, None) => None,
            (re, im) => Some(Complex::new(or_zeros(re, &v.re), or_zeros(im, &v.im))),
        };
        Ok(vec![Some(gradient(&w, &v, &gw, of_vectors)?.re)])
    }
}

/// The gradient of the matrix before taking the real part.
pub(super) fn gradient<'e>(
    w: &Complex<'e>,
    v: &Complex<'e>,
    gw: &Complex<'e>,
    gv: Option<Complex<'e>>,
) -> Result<Complex<'e>> {
    let n = last_two(&v.re.shape()).0;
    let adjoint = v.adjoint();
    let mut inner = Complex::new(from_diagonal(&gw.re), from_diagonal(&gw.im));
    if let Some(gv) = gv {
        let product = adjoint.matmul(&gv);
        let lengths = as_row(&diagonal(&product.re));
        let gram = adjoint.matmul(v);
        let free = Complex::new(product.re - gram.re * &lengths, product.im - gram.im * &lengths);
        let gaps = Complex::new(
            as_row(&w.re) - as_column(&w.re) + eye(&v.re, n, n),
            as_column(&w.im) - as_row(&w.im),
        );
        let quotient = free.divide(&gaps);
        let here = on_diagonal(&v.re, n, n);
        let rest = |part: &Var<'e>| here.select(&part.scalar(0.0), part);
        inner = Complex::new(inner.re + rest(&quotient.re), inner.im + rest(&quotient.im));
    }
    adjoint.solve(&inner.matmul(&adjoint))
}
