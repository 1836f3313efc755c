//! Pseudo-inverse and least squares.

use super::svd::{no_convergence, weighted};
use super::{Gradients, MatrixOp, Signature, attribute, last_two, run_one, with_last};
use crate::host::{Matrices, Real, joined, row_major, split};
use crate::kernel::factor::{self, Thin};
use crate::matrix::eye;
use faer::Mat;
use kiln_ir::{Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

/// `(A) -> A⁺`, `[.., n, m]`: the Moore-Penrose inverse. Singular values up to `max(atol, rtol * maximum)` are treated
/// as zero.
#[derive(Debug)]
pub(crate) struct Pinv {
    pub(crate) atol: f64,
    pub(crate) rtol: f64,
}

impl MatrixOp for Pinv {
    const NAME: &'static str = "linalg::pinv";

    fn attributes(&self) -> String {
        format!("atol={:e} rtol={:e}", self.atol, self.rtol)
    }

    fn parse(attributes: &str) -> Option<Self> {
        Some(Pinv { atol: attribute(attributes, "atol")?, rtol: attribute(attributes, "rtol")? })
    }

    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        let ty = operands.matrix(0)?;
        let (m, n) = last_two(&ty.shape);
        Ok(smallvec![with_last(ty, &[n, m])])
    }

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(&inputs[0])?;
        let inverses = a.each(|index| {
            let svd = decompose("pinv", &a, index)?;
            let left = scaled_v(&svd, self.atol, self.rtol);
            Ok(row_major((left * svd.u.transpose()).as_ref()))
        })?;
        Ok(vec![joined(inverses, a.shape_with(&[a.cols, a.rows]))?])
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

/// `(A, B) -> (X, S)`: the minimum-norm least-squares solution of `A X = B`, and the singular values of `A`.
#[derive(Debug)]
pub(crate) struct Lstsq {
    /// Singular values up to this factor times the largest are treated as zero.
    pub(crate) rcond: f64,
}

impl MatrixOp for Lstsq {
    const NAME: &'static str = "linalg::lstsq";

    fn attributes(&self) -> String {
        format!("rcond={:e}", self.rcond)
    }

    fn parse(attributes: &str) -> Option<Self> {
        Some(Lstsq { rcond: attribute(attributes, "rcond")? })
    }

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

    fn evaluate<T: Real>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let (a, b) = (Matrices::<T>::of(&inputs[0])?, Matrices::<T>::of(&inputs[1])?);
        let parts = a.each(|index| {
            let svd = decompose("lstsq", &a, index)?;
            let x = scaled_v(&svd, 0.0, self.rcond) * (svd.u.transpose() * b.get(index));
            let values = svd.values.iter().map(|&value| T::of(value)).collect();
            Ok((row_major(x.as_ref()), values))
        })?;
        let (solutions, values) = split(parts);
        let (x, s) = (a.shape_with(&[a.cols, b.cols]), a.shape_with(&[a.rows.min(a.cols)]));
        Ok(vec![joined(solutions, x)?, joined::<T>(values, s)?])
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

fn decompose<T: Real>(op: &str, a: &Matrices<'_, T>, index: usize) -> Result<Thin<T>> {
    if !a.is_finite(index) {
        return Err(a.not_finite(op, index));
    }
    factor::thin(a.get(index)).ok_or_else(|| no_convergence(op, a, index))
}

/// `V diag(1 / s)`, with 0 for singular values that are treated as zero.
fn scaled_v<T: Real>(svd: &Thin<T>, atol: f64, rtol: f64) -> Mat<T> {
    let greatest = svd.values.first().copied().unwrap_or(0.0);
    let least = atol.max(rtol * greatest);
    let weight = |s: f64| if s > least { 1.0 / s } else { 0.0 };
    Mat::from_fn(svd.v.nrows(), svd.v.ncols(), |i, j| svd.v[(i, j)] * T::of(weight(svd.values[j])))
}
