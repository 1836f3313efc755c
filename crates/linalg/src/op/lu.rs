//! LU decomposition.

use super::{
    Gradients, LuFactor, MatrixOp, RowOrder, Signature, SolveTriangular, last_two, leading, run_one,
    with_last,
};
use crate::host::{Matrices, Number, joined, listed, row_major, split};
use crate::kernel::lu;
use crate::matrix::{below, beside, block, columns, eye, on_diagonal, rows, tril, triu};
use kiln_ir::{DType, Result, ResultTypes, Shape, TensorData, TensorType, Var};
use smallvec::smallvec;

impl MatrixOp for LuFactor {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        let ty = operands.matrix(0)?;
        let (rows, cols) = last_two(&ty.shape);
        Ok(smallvec![*ty, with_last(ty, &[rows.min(cols)]).with_dtype(DType::I32)])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T>::of(inputs, 0)?;
        let factors = a.each(|index| {
            let lu = lu::factor(a.get(index).as_ref());
            let pivots: Vec<i32> = lu.swaps.iter().map(|&row| row as i32 + 1).collect();
            Ok((row_major(lu.factors.as_ref()), pivots))
        })?;
        let (factors, pivots) = split(factors);
        let shape = a.shape_with(&[a.rows.min(a.cols)]);
        Ok(listed([T::joined(factors, *inputs[0].shape())?, vec![joined(pivots, shape)?]]))
    }

    /// For square matrices (S. Axen, 2021, <https://sethaxen.com/blog/2021/02/differentiating-the-lu-decomposition/>)
    /// `Ā = P L⁻ᵀ (tril(Lᵀ L̄, -1) + triu(Ū Uᵀ)) U⁻ᵀ`. The remaining block of a wide or tall matrix is the solution of
    /// a triangular system, whose gradient is added.
    fn vjp<'e>(&self, _x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return Ok(vec![None]) };
        let (m, n) = last_two(&y[0].shape());
        let k = m.min(n);
        let square = block(&y[0], 0..k, 0..k);
        let l = tril(&square, -1) + eye(&square, k, k);
        let (u, lt) = (triu(&square, 0), l.transpose());
        let ut = u.transpose();
        let corner = block(g, 0..k, 0..k);
        let (gl, gu) = (tril(&corner, -1), triu(&corner, 0));
        let from_left = |b: &Var<'e>| run_one(SolveTriangular { upper: true, unit: true }, &[&lt, b]);
        let from_right = |b: &Var<'e>| {
            let solution = run_one(SolveTriangular { upper: true, unit: false }, &[&u, &b.transpose()])?;
            Ok::<_, kiln_ir::Error>(solution.transpose())
        };
        let mut of_l = lt.matmul(&gl);
        let mut of_u = gu.matmul(&ut);
        if n > m {
            let (u2, gu2) = (columns(&y[0], k..n), columns(g, k..n));
            of_l = of_l - gu2.matmul(&u2.transpose());
        }
        if m > n {
            let (l2, gl2) = (rows(&y[0], k..m), rows(g, k..m));
            of_u = of_u - l2.transpose().matmul(&gl2);
        }
        let middle = tril(&of_l, -1) + triu(&of_u, 0);
        let mut ga = from_right(&from_left(&middle)?)?;
        if n > m {
            ga = beside(&[ga, from_left(&columns(g, k..n))?]);
        }
        if m > n {
            ga = below(&[ga, from_right(&rows(g, k..m))?]);
        }
        Ok(vec![Some(permutation(&y[1], m, &y[0])?.matmul(&ga))])
    }
}

/// The permutation matrices `P` of `A = P L U`, `[.., rows, rows]` in the dtype of `like`, from LAPACK's pivots.
pub(crate) fn permutation<'e>(pivots: &Var<'e>, rows: usize, like: &Var<'e>) -> Result<Var<'e>> {
    let order = run_one(RowOrder { rows }, &[pivots])?;
    let row = Var::iota(like.engine(), TensorType::new([rows, 1], DType::I32), 0);
    Ok(row.equal(&crate::matrix::as_row(&order)).cast(like.dtype()))
}

impl MatrixOp for RowOrder {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        let ty = operands.tensor(0)?;
        let Some((&exchanges, batch)) = ty.shape.split_last() else {
            return Err(operands.error("needs a last dimension of pivots"));
        };
        if ty.dtype != DType::I32 || exchanges > self.rows {
            return Err(operands
                .error(format!("needs i32 pivots, at most {} for each matrix", self.rows))
                .hint("pass the pivots that `lu_factor` returned with these factors"));
        }
        let shape: Shape = batch.iter().copied().chain([self.rows]).collect();
        Ok(smallvec![ty.with_shape(shape)])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let pivots = inputs[0].as_slice::<i32>()?;
        let (&exchanges, batch) = inputs[0].shape().split_last().unwrap_or((&0, &[]));
        let count: usize = batch.iter().product();
        let shape: Shape = batch.iter().copied().chain([self.rows]).collect();
        let mut orders = Vec::with_capacity(count * self.rows);
        for matrix in 0..count {
            let mut swaps = Vec::with_capacity(exchanges);
            for &pivot in &pivots[matrix * exchanges..][..exchanges] {
                match usize::try_from(pivot) {
                    Ok(row @ 1..) if row <= self.rows => swaps.push(row - 1),
                    Ok(_) | Err(_) => {
                        let problem = format!("the pivot {pivot} is not in 1..={}", self.rows);
                        return Err(kiln_ir::Error::value("lu_solve", problem)
                            .hint("pass the pivots that `lu_factor` returned with these factors"));
                    }
                }
            }
            orders.extend(lu::order(&swaps, self.rows).into_iter().map(|row| row as i32));
        }
        Ok(vec![TensorData::new(orders, shape)?])
    }

    fn vjp<'e>(&self, _x: &[Var<'e>], _y: &[Var<'e>], _g: &[Option<Var<'e>>]) -> Gradients<'e> {
        Ok(vec![None])
    }
}

/// `L` and `U` of packed factors: `[.., m, k]` and `[.., k, n]` with `k = min(m, n)`.
pub(crate) fn unpack<'e>(factors: &Var<'e>) -> (Var<'e>, Var<'e>) {
    let (m, n) = last_two(&factors.shape());
    let k = m.min(n);
    let lower = columns(factors, 0..k);
    let strict = tril(&lower, -1);
    let l = on_diagonal(&lower, m, k).select(&lower.scalar(1.0), &strict);
    (l, triu(&rows(factors, 0..k), 0))
}

/// Whether the dtype and shape of pivots match the factors.
pub(crate) fn pivots_fit(factors: &TensorType, pivots: &TensorType) -> bool {
    let (m, n) = last_two(&factors.shape);
    pivots.shape.split_last().is_some_and(|(&k, batch)| k == m.min(n) && batch == leading(&factors.shape))
}
