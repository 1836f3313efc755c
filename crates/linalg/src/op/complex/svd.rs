//! Singular value decomposition of complex matrices.

use super::{none, parts, plus};
use crate::host::{ComplexMatrices, Real, joined, joined_complex};
use crate::kernel::factor;
use crate::matrix::complex::Complex;
use crate::matrix::{as_column, as_row, diagonal, eye, from_diagonal, on_diagonal};
use crate::op::svd::no_convergence;
use crate::op::{Gradients, MatrixOp, Signature, Svd, Svdvals, bare, last_two};
use kiln_ir::{Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

/// `(A) -> (U, S, Vᴴ)`: `A = U diag(S) Vᴴ`, singular values in descending order.
#[derive(Debug)]
pub(crate) struct ComplexSvd(pub(crate) Svd);

impl MatrixOp for ComplexSvd {
    const NAME: &'static str = "linalg::complex_svd";

    fn attributes(&self) -> String {
        self.0.attributes()
    }

    fn parse(attributes: &str) -> Option<Self> {
        Svd::parse(attributes).map(ComplexSvd)
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        let types = self.0.infer(operands.complex()?)?;
        let (u, s, v) = (types[0], types[1], types[2]);
        Ok(smallvec![u, u, s, v, v])
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = ComplexMatrices::<T>::of(&inputs[0], &inputs[1])?;
        let (rows, cols, k) = (a.re.rows, a.re.cols, a.re.rows.min(a.re.cols));
        let (left, right) = if self.0.full { (rows, cols) } else { (k, k) };
        let found = a.re.each(|index| {
            if !a.is_finite(index) {
                return Err(a.re.not_finite("svd", index));
            }
            let svd = factor::svd(a.get(index).as_ref(), self.0.full);
            svd.ok_or_else(|| no_convergence("svd", &a.re, index))
        })?;
        let (u, s, v): (Vec<_>, Vec<_>, Vec<_>) = found.into_iter().collect();
        let [u_re, u_im] = joined_complex(u, a.re.shape_with(&[rows, left]))?;
        let [v_re, v_im] = joined_complex(v, a.re.shape_with(&[right, cols]))?;
        Ok(vec![u_re, u_im, joined(s, a.re.shape_with(&[k]))?, v_re, v_im])
    }

    /// Z. Wan and S. Zhang, *Automatic differentiation for complex valued SVD*, 2019. A pair of vectors has one free
    /// common phase. Only the difference of their phases changes with the matrix: the last term of `inner`. Equal or
    /// zero singular values result in infinities and NaNs if the vectors have gradients.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let (m, n) = last_two(&x[0].shape());
        let k = m.min(n);
        let (left, s, right) = (Complex::at(y, 0), &y[2], Complex::at(y, 3));
        let gu = Complex::gradient(g, 0, &left).map(|g| g.columns(0..k));
        let gv = Complex::gradient(g, 3, &right).map(|g| g.rows(0..k).adjoint());
        let (u, v) = (left.columns(0..k), right.rows(0..k).adjoint());
        let (u_adjoint, v_adjoint) = (u.adjoint(), v.adjoint());
        let (s_row, s_column) = (as_row(s), as_column(s));
        // `s_j² - s_i²`, with ones on the diagonal.
        let gaps = (&s_row - &s_column) * (&s_row + &s_column) + eye(s, k, k);
        let here = on_diagonal(s, k, k);
        // The off-diagonal part, and the imaginary part of the diagonal.
        let skew = |side: &Complex<'e>, g: &Complex<'e>| {
            let product = side.matmul(g);
            let free = (product.clone() - product.adjoint()).each(|part| part / &gaps);
            let phases = diagonal(&product.im);
            (free.each(|part| here.select(&part.scalar(0.0), part)), phases)
        };
        let mut inner = g[2].as_ref().map(|g| Complex::from_real(from_diagonal(g)));
        let mut turn: Option<Var<'e>> = None;
        if let Some(gu) = &gu {
            let (free, phases) = skew(&u_adjoint, gu);
            inner = plus(inner, free.each(|part| part * &s_row));
            turn = Some(phases);
        }
        if let Some(gv) = &gv {
            let (free, phases) = skew(&v_adjoint, gv);
            inner = plus(inner, free.each(|part| part * &s_column));
            turn = Some(match turn {
                Some(turn) => turn - phases,
                None => -phases,
            });
        }
        if let (Some(turn), Some(inner)) = (turn, inner.as_mut()) {
            inner.im = &inner.im + from_diagonal(&(turn * 0.5 / s));
        }
        let mut ga = inner.map(|inner| u.matmul(&inner).matmul(&v_adjoint));
        if let (Some(gu), true) = (&gu, m > k) {
            let outside = gu.clone() - u.matmul(&u_adjoint.matmul(gu));
            ga = plus(ga, outside.each(|part| part / &s_row).matmul(&v_adjoint));
        }
        if let (Some(gv), true) = (&gv, n > k) {
            let outside = gv.clone() - v.matmul(&v_adjoint.matmul(gv));
            ga = plus(ga, u.matmul(&outside.each(|part| part / &s_row).adjoint()));
        }
        match ga {
            Some(ga) => parts(&[ga]),
            None => none(1),
        }
    }
}

/// `(A) -> S`: the singular values in descending order.
#[derive(Debug)]
pub(crate) struct ComplexSvdvals;

impl MatrixOp for ComplexSvdvals {
    const NAME: &'static str = "linalg::complex_svdvals";

    fn parse(attributes: &str) -> Option<Self> {
        bare(attributes, ComplexSvdvals)
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        Svdvals.infer(operands.complex()?)
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = ComplexMatrices::<T>::of(&inputs[0], &inputs[1])?;
        let values = a.re.each(|index| {
            if !a.is_finite(index) {
                return Err(a.re.not_finite("svdvals", index));
            }
            let values = factor::singular_values(a.get(index).as_ref());
            values.ok_or_else(|| no_convergence("svdvals", &a.re, index))
        })?;
        Ok(vec![joined(values, a.re.shape_with(&[a.re.rows.min(a.re.cols)]))?])
    }

    /// `U diag(S̄) Vᴴ`.
    fn vjp<'e>(&self, x: &[Var<'e>], _y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return none(1) };
        let svd = Complex::run(ComplexSvd(Svd { full: false }), &[&Complex::operand(x, 0)])?;
        let weights = as_row(g);
        parts(&[Complex::at(&svd, 0).each(|part| part * &weights).matmul(&Complex::at(&svd, 3))])
    }
}
