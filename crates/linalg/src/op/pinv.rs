//! Pseudo-inverse and least squares.

use super::svd::weighted;
use super::{Gradients, Lstsq, MatrixOp, Pinv, Signature, last_two, run_one, with_last};
use crate::host::{Matrices, Number, Scalar, joined, listed, row_major, split};
use crate::kernel::factor::{self, Thin};
use crate::matrix::eye;
use faer::Mat;
use faer::traits::math_utils::from_f64;
use kiln_ir::{Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

impl MatrixOp for Pinv {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        let ty = operands.matrix(0)?;
        let (m, n) = last_two(&ty.shape);
        Ok(smallvec![with_last(ty, &[n, m])])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(inputs, 0)?;
        let inverses = a.each_converged("pinv", |index| {
            let svd = factor::thin(a.get(index).as_ref())?;
            let left = scaled_v(&svd, self.atol, self.rtol);
            Some(row_major((left * svd.u.transpose()).as_ref()))
        })?;
        T::joined(inverses, a.shape_with(&[a.cols, a.rows]))
    }

    /// G. Golub and V. Pereyra, *The differentiation of pseudo-inverses and nonlinear least squares problems whose
    /// variables separate*, 1973, equation 4.12, for matrices of constant rank.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return Ok(vec![None]) };
        Ok(vec![Some(gradient(&x[0], &y[0], g))])
    }
}

/// `-Pᵀ P̄ Pᵀ + (I - A P) P̄ᵀ P Pᵀ + Pᵀ P P̄ᵀ (I - P A)`.
fn gradient<'e>(a: &Var<'e>, p: &Var<'e>, g: &Var<'e>) -> Var<'e> {
    let (m, n) = last_two(&a.shape());
    let (pt, gt) = (p.transpose(), g.transpose());
    let outside_columns = eye(a, m, m) - a.matmul(p);
    let outside_rows = eye(a, n, n) - p.matmul(a);
    let left = outside_columns.matmul(&gt).matmul(&p.matmul(&pt));
    let right = pt.matmul(p).matmul(&gt).matmul(&outside_rows);
    left + right - pt.matmul(g).matmul(&pt)
}

impl MatrixOp for Lstsq {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(2)?;
        let (a, b) = (operands.matrix(0)?, operands.matrix(1)?);
        operands.alike(a, b)?;
        let ((m, n), (rows, cols)) = (last_two(&a.shape), last_two(&b.shape));
        if m != rows {
            return Err(operands
                .error("sizes differ")
                .hint(format!("the matrices have {m} rows and the right sides {rows}: both must be equal")));
        }
        Ok(smallvec![with_last(b, &[n, cols]), with_last(a, &[m.min(n)])])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let (a, b) = (Matrices::<T>::of(inputs, 0)?, Matrices::<T>::of(inputs, 1)?);
        let parts = a.each_converged("lstsq", |index| {
            let svd = factor::thin(a.get(index).as_ref())?;
            let x = scaled_v(&svd, 0.0, self.rcond) * (svd.u.transpose() * b.get(index).as_ref());
            let values = svd.values.iter().map(|&value| from_f64::<T::Real>(value)).collect();
            Some((row_major(x.as_ref()), values))
        })?;
        let (solutions, values) = split(parts);
        let (x, s) = (a.shape_with(&[a.cols, b.cols]), a.shape_with(&[a.rows.min(a.cols)]));
        Ok(listed([T::joined(solutions, x)?, vec![joined(values, s)?]]))
    }

    /// The gradient of `A⁺ B`, with the rule of [`Pinv`], plus that of [`Svdvals`](super::Svdvals).
    fn vjp<'e>(&self, x: &[Var<'e>], _y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let mut gradients = vec![None, None];
        if let Some(g) = &g[0] {
            let p = run_one(Pinv { atol: 0.0, rtol: self.rcond }, &[&x[0]])?;
            gradients[0] = Some(gradient(&x[0], &p, &g.matmul(&x[1].transpose())));
            gradients[1] = Some(p.transpose().matmul(g));
        }
        if let Some(g) = &g[1] {
            let of_values = weighted(&x[0], g)?;
            gradients[0] = Some(match gradients[0].take() {
                Some(sum) => sum + of_values,
                None => of_values,
            });
        }
        Ok(gradients)
    }
}

/// `V diag(1 / s)`, with 0 for singular values that are treated as zero.
fn scaled_v<T: Scalar>(svd: &Thin<T>, atol: f64, rtol: f64) -> Mat<T> {
    let greatest = svd.values.first().copied().unwrap_or(0.0);
    let least = atol.max(rtol * greatest);
    let weight = |s: f64| if s > least { 1.0 / s } else { 0.0 };
    Mat::from_fn(svd.v.nrows(), svd.v.ncols(), |i, j| svd.v[(i, j)] * T::of(weight(svd.values[j])))
}
