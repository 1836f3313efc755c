//! Singular value decomposition.

use super::{Gradients, MatrixOp, Signature, Svd, Svdvals, last_two, run, with_last};
use crate::host::{Matrices, Number, joined, listed};
use crate::kernel::factor;
use crate::matrix::{as_column, as_row, columns, eye, from_diagonal, rows};
use kiln_ir::{Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

impl MatrixOp for Svd {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        let ty = operands.matrix(0)?;
        let (m, n) = last_two(&ty.shape);
        let k = m.min(n);
        let (left, right) = if self.full { (m, n) } else { (k, k) };
        Ok(smallvec![with_last(ty, &[m, left]), with_last(ty, &[k]), with_last(ty, &[right, n])])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(inputs, 0)?;
        let k = a.rows.min(a.cols);
        let (left, right) = if self.full { (a.rows, a.cols) } else { (k, k) };
        let parts = a.each_converged("svd", |index| factor::svd(a.get(index).as_ref(), self.full))?;
        let (u, s, v): (Vec<_>, Vec<_>, Vec<_>) = parts.into_iter().collect();
        Ok(listed([
            T::joined(u, a.shape_with(&[a.rows, left]))?,
            vec![joined(s, a.shape_with(&[k]))?],
            T::joined(v, a.shape_with(&[right, a.cols]))?,
        ]))
    }

    /// J. Townsend, *Differentiating the singular value decomposition*, 2016; the same rule is in Z. Wan and S. Zhang,
    /// *Automatic differentiation for complex valued SVD*, 2019. Equal singular values result in infinities and NaNs if
    /// the vectors have gradients, since the vectors are not unique then.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let (m, n) = last_two(&x[0].shape());
        let k = m.min(n);
        let (u, s, v) = (columns(&y[0], 0..k), &y[1], rows(&y[2], 0..k).transpose());
        let gu = g[0].as_ref().map(|g| columns(g, 0..k));
        let gv = g[2].as_ref().map(|g| rows(g, 0..k).transpose());
        let (ut, vt) = (u.transpose(), v.transpose());
        let (s_row, s_column) = (as_row(s), as_column(s));
        // `s_j² - s_i²`, with ones on the diagonal.
        let gaps = (&s_row - &s_column) * (&s_row + &s_column) + eye(s, k, k);
        let skew = |side: &Var<'e>, g: &Var<'e>| {
            let product = side.matmul(g);
            (&product - product.transpose()) / &gaps
        };
        let mut inner = g[1].as_ref().map(from_diagonal);
        if let Some(gu) = &gu {
            inner = plus(inner, skew(&ut, gu) * &s_row);
        }
        if let Some(gv) = &gv {
            inner = plus(inner, skew(&vt, gv) * &s_column);
        }
        let mut ga = inner.map(|inner| u.matmul(&inner).matmul(&vt));
        if let (Some(gu), true) = (&gu, m > k) {
            let outside = gu - u.matmul(&ut.matmul(gu));
            ga = plus(ga, (outside / &s_row).matmul(&vt));
        }
        if let (Some(gv), true) = (&gv, n > k) {
            let outside = gv - v.matmul(&vt.matmul(gv));
            ga = plus(ga, u.matmul(&(outside / &s_row).transpose()));
        }
        Ok(vec![ga])
    }
}

fn plus<'e>(a: Option<Var<'e>>, b: Var<'e>) -> Option<Var<'e>> {
    Some(match a {
        Some(a) => a + b,
        None => b,
    })
}

impl MatrixOp for Svdvals {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        let ty = operands.matrix(0)?;
        let (m, n) = last_two(&ty.shape);
        Ok(smallvec![with_last(ty, &[m.min(n)])])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(inputs, 0)?;
        let values = a.each_converged("svdvals", |index| factor::singular_values(a.get(index).as_ref()))?;
        Ok(vec![joined(values, a.shape_with(&[a.rows.min(a.cols)]))?])
    }

    /// `U diag(S̄) Vᵀ`.
    fn vjp<'e>(&self, x: &[Var<'e>], _y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return Ok(vec![None]) };
        Ok(vec![Some(weighted(&x[0], g)?)])
    }
}

/// `U diag(w) Vᵀ` of a matrix.
pub(crate) fn weighted<'e>(a: &Var<'e>, weights: &Var<'e>) -> Result<Var<'e>> {
    let svd = run(Svd { full: false }, &[a])?;
    Ok((&svd[0] * as_row(weights)).matmul(&svd[2]))
}
