//! Cholesky, QR and singular value decompositions, by `faer`.

use crate::host::{Real, identity, row_major};
use faer::linalg::solvers::{Llt, Qr, Svd};
use faer::{Mat, MatRef, Side};

/// The lower Cholesky factor, row by row, reading the lower triangle alone; or the order of the leading minor that is
/// not positive.
pub(crate) fn cholesky<T: Real>(a: MatRef<'_, T>) -> Result<Vec<T>, usize> {
    let n = a.nrows();
    let symmetric = Mat::from_fn(n, n, |i, j| a[(i.max(j), i.min(j))]);
    let factor = Llt::new(symmetric.as_ref(), Side::Lower).map_err(|error| match error {
        faer::linalg::cholesky::llt::factor::LltError::NonPositivePivot { index } => index + 1,
    })?;
    let lower = factor.L();
    let entry = |i: usize, j: usize| if j <= i { lower[(i, j)] } else { T::of(0.0) };
    let factor = Mat::from_fn(n, n, entry);
    let is_positive = |i: &usize| factor[(*i, *i)] > T::of(0.0);
    // A NaN is not positive.
    match (0..n).find(|i| !is_positive(i)) {
        Some(i) => Err(i + 1),
        None => Ok(row_major(factor.as_ref())),
    }
}

/// `Q` and `R`, row by row: of `min(rows, cols)` columns and rows, or complete.
pub(crate) fn qr<T: Real>(a: MatRef<'_, T>, complete: bool) -> (Vec<T>, Vec<T>) {
    let (rows, cols) = a.shape();
    let inner = if complete { rows } else { rows.min(cols) };
    if rows == 0 || cols == 0 {
        let q = identity::<T>(rows, inner);
        return (row_major(q.as_ref()), vec![T::of(0.0); inner * cols]);
    }
    let qr = Qr::new(a);
    let q = if complete { qr.compute_Q() } else { qr.compute_thin_Q() };
    let upper = qr.R();
    let entry = |i: usize, j: usize| if i <= j && i < upper.nrows() { upper[(i, j)] } else { T::of(0.0) };
    let r = Mat::from_fn(inner, cols, entry);
    (row_major(q.as_ref()), row_major(r.as_ref()))
}

/// `U`, the singular values and the transpose of `V`, row by row; `None` where the iteration does not converge.
pub(crate) fn svd<T: Real>(a: MatRef<'_, T>, full: bool) -> Option<(Vec<T>, Vec<T>, Vec<T>)> {
    let (rows, cols) = a.shape();
    let rank = rows.min(cols);
    if rank == 0 {
        let side = |n: usize| row_major(identity::<T>(n, if full { n } else { 0 }).as_ref());
        return Some((side(rows), Vec::new(), if full { side(cols) } else { Vec::new() }));
    }
    let svd = if full { Svd::new(a) } else { Svd::new_thin(a) }.ok()?;
    let values = svd.S();
    let values = (0..rank).map(|i| values[i]).collect();
    Some((row_major(svd.U()), values, row_major(svd.V().transpose())))
}

/// The singular values alone; `None` where the iteration does not converge.
pub(crate) fn singular_values<T: Real>(a: MatRef<'_, T>) -> Option<Vec<T>> {
    if a.nrows() == 0 || a.ncols() == 0 { Some(Vec::new()) } else { a.singular_values().ok() }
}

/// The parts of a singular value decomposition of `min(rows, cols)` values, as matrices.
pub(crate) struct Thin<T: Real> {
    /// `[rows, k]`.
    pub(crate) u: Mat<T>,
    /// The singular values, the greatest first.
    pub(crate) values: Vec<f64>,
    /// `[cols, k]`.
    pub(crate) v: Mat<T>,
}

/// The thin singular value decomposition; `None` where the iteration does not converge.
pub(crate) fn thin<T: Real>(a: MatRef<'_, T>) -> Option<Thin<T>> {
    if a.nrows() == 0 || a.ncols() == 0 {
        return Some(Thin { u: Mat::zeros(a.nrows(), 0), values: Vec::new(), v: Mat::zeros(a.ncols(), 0) });
    }
    let svd = Svd::new_thin(a).ok()?;
    let values = svd.S();
    let values = (0..a.nrows().min(a.ncols())).map(|i| values[i].into()).collect();
    Some(Thin { u: svd.U().to_owned(), values, v: svd.V().to_owned() })
}
