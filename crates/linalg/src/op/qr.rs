//! QR decomposition.

use super::{Gradients, MatrixOp, Qr, Signature, SolveTriangular, last_two, run_one, with_last};
use crate::host::{Matrices, Number, listed, nans, split};
use crate::kernel::factor;
use crate::matrix::{beside, columns, or_zeros, symmetric_from_lower};
use kiln_ir::{Error, Result, ResultTypes, TensorData, Var};
use smallvec::smallvec;

impl MatrixOp for Qr {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        let ty = operands.matrix(0)?;
        let (rows, cols) = last_two(&ty.shape);
        let inner = if self.complete { rows } else { rows.min(cols) };
        Ok(smallvec![with_last(ty, &[rows, inner]), with_last(ty, &[inner, cols])])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(inputs, 0)?;
        let inner = if self.complete { a.rows } else { a.rows.min(a.cols) };
        let parts = a.each(|index| {
            if !a.is_finite(index) {
                return Ok((nans(a.rows * inner), nans(inner * a.cols)));
            }
            Ok(factor::qr(a.get(index).as_ref(), self.complete))
        })?;
        let (q, r) = split(parts);
        let (left, right) = (a.shape_with(&[a.rows, inner]), a.shape_with(&[inner, a.cols]));
        Ok(listed([T::joined(q, left)?, T::joined(r, right)?]))
    }

    /// S. Walter and L. Lehmann, *Algorithmic differentiation of linear algebra functions*, 2018, for tall matrices;
    /// D. Roberts and L. Roberts, *QR and LQ decomposition matrix backpropagation algorithms*, 2020, for wide ones.
    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let (rows, cols) = last_two(&x[0].shape());
        if self.complete && rows > cols {
            return Err(undetermined(rows, cols));
        }
        let (q, r) = (&y[0], &y[1]);
        let (gq, gr) = (or_zeros(&g[0], q), or_zeros(&g[1], r));
        if cols <= rows {
            return Ok(vec![Some(tall(q, r, &gq, &gr)?)]);
        }
        let (u, gu, gv) = (columns(r, 0..rows), columns(&gr, 0..rows), columns(&gr, rows..cols));
        let rest = columns(&x[0], rows..cols);
        let left = tall(q, &u, &(gq + rest.matmul(&gv.transpose())), &gu)?;
        Ok(vec![Some(beside(&[left, q.matmul(&gv)]))])
    }
}

/// `(Q̄ + Q copyltu(R R̄ᵀ - Q̄ᵀ Q)) R⁻ᵀ`.
fn tall<'e>(q: &Var<'e>, r: &Var<'e>, gq: &Var<'e>, gr: &Var<'e>) -> Result<Var<'e>> {
    let m = r.matmul(&gr.transpose()) - gq.transpose().matmul(q);
    let right = gq + q.matmul(&symmetric_from_lower(&m));
    let solve = SolveTriangular { upper: true, unit: false };
    Ok(run_one(solve, &[r, &right.transpose()])?.transpose())
}

/// The error of the gradient of a complete decomposition of tall matrices, which does not exist.
pub(super) fn undetermined(rows: usize, cols: usize) -> Error {
    Error::gradient("qr", format!("a complete decomposition of {rows} x {cols} matrices has no gradient"))
        .hint("the added columns of Q are not determined by the matrix: use the reduced form")
}
