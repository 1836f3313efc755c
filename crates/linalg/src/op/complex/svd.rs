//! Singular value decomposition of complex matrices.

use super::{ComplexOp, ComplexRule, none, parts, plus};
use crate::matrix::complex::Complex;
use crate::matrix::{as_column, as_row, diagonal, eye, from_diagonal, on_diagonal};
use crate::op::{Gradients, Svd, Svdvals, last_two};
use kiln_ir::Var;

/// `(A) -> (U, S, Vᴴ)`: `A = U diag(S) Vᴴ`, singular values in descending order.
impl ComplexRule for Svd {
    const IS_COMPLEX: &'static [bool] = &[true, false, true];

    /// Z. Wan and S. Zhang, *Automatic differentiation for complex valued SVD*, 2019. A pair of vectors has one free
    /// common phase. Only the difference of their phases changes with the matrix: the last term of `inner`. Equal or
    /// zero singular values result in infinities and NaNs if the vectors have gradients.
    fn complex_vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
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
impl ComplexRule for Svdvals {
    const IS_COMPLEX: &'static [bool] = &[false];

    /// `U diag(S̄) Vᴴ`.
    fn complex_vjp<'e>(&self, x: &[Var<'e>], _y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return none(1) };
        let svd = Complex::run(ComplexOp(Svd { full: false }), &[&Complex::operand(x, 0)])?;
        let weights = as_row(g);
        parts(&[Complex::at(&svd, 0).each(|part| part * &weights).matmul(&Complex::at(&svd, 3))])
    }
}
