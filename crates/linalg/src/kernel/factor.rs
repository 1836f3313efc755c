//! Cholesky, QR and singular value decompositions, by `faer`.

use crate::host::{Scalar, adjoint_row_major, identity, row_major};
use faer::linalg::solvers::{Llt, Qr, Svd};
use faer::traits::ComplexField;
use faer::traits::math_utils::{abs, as_real, conj, from_real, real};
use faer::{Mat, MatRef, Side};
use std::cmp::Ordering;

/// The lower Cholesky factor in row-major order. Reads only the lower triangle. The error is the order of the leading
/// minor that is not positive.
pub(crate) fn cholesky<T: Scalar>(a: MatRef<'_, T>) -> Result<Vec<T>, usize> {
    let n = a.nrows();
    let factor = Llt::new(hermitian_from_lower(a).as_ref(), Side::Lower).map_err(|error| match error {
        faer::linalg::cholesky::llt::factor::LltError::NonPositivePivot { index } => index + 1,
    })?;
    let lower = factor.L();
    let entry = |i: usize, j: usize| if j <= i { lower[(i, j)] } else { T::of(0.0) };
    let factor = Mat::from_fn(n, n, entry);
    let is_positive = |i: &usize| real(&factor[(*i, *i)]).into() > 0.0;
    // NaN is not positive.
    match (0..n).find(|i| !is_positive(i)) {
        Some(i) => Err(i + 1),
        None => Ok(row_major(factor.as_ref())),
    }
}

/// The symmetric or Hermitian matrix with this lower triangle and the real part of its diagonal.
pub(crate) fn hermitian_from_lower<T: Scalar>(a: MatRef<'_, T>) -> Mat<T> {
    Mat::from_fn(a.nrows(), a.nrows(), |i, j| match i.cmp(&j) {
        Ordering::Greater => a[(i, j)],
        Ordering::Equal => as_real(&a[(i, i)]),
        Ordering::Less => conj(&a[(j, i)]),
    })
}

/// `Q` and `R` in row-major order: reduced to `min(rows, cols)` columns and rows, or complete. The diagonal of a
/// complex `R` is real and not negative.
pub(crate) fn qr<T: Scalar>(a: MatRef<'_, T>, complete: bool) -> (Vec<T>, Vec<T>) {
    let (rows, cols) = a.shape();
    let inner = if complete { rows } else { rows.min(cols) };
    if rows == 0 || cols == 0 {
        let q = identity::<T>(rows, inner);
        return (row_major(q.as_ref()), vec![T::of(0.0); inner * cols]);
    }
    let qr = Qr::new(a);
    let mut q = if complete { qr.compute_Q() } else { qr.compute_thin_Q() };
    let upper = qr.R();
    let entry = |i: usize, j: usize| if i <= j && i < upper.nrows() { upper[(i, j)] } else { T::of(0.0) };
    let mut r = Mat::from_fn(inner, cols, entry);
    if !T::IS_REAL {
        make_diagonal_positive(&mut q, &mut r);
    }
    (row_major(q.as_ref()), row_major(r.as_ref()))
}

/// Moves the phases of the diagonal of `R` to the columns of `Q`.
fn make_diagonal_positive<T: Scalar>(q: &mut Mat<T>, r: &mut Mat<T>) {
    for i in 0..r.nrows().min(r.ncols()) {
        let magnitude = from_real(&abs(&r[(i, i)]));
        let phase = r[(i, i)].sign();
        if phase == T::of(0.0) {
            continue;
        }
        for row in 0..q.nrows() {
            let turned = q[(row, i)] * phase;
            q[(row, i)] = turned;
        }
        for col in i + 1..r.ncols() {
            let turned = r[(i, col)] * conj(&phase);
            r[(i, col)] = turned;
        }
        r[(i, i)] = magnitude;
    }
}

/// `U`, the singular values and the adjoint of `V` in row-major order. Returns `None` if the iteration does not
/// converge.
pub(crate) fn svd<T: Scalar>(a: MatRef<'_, T>, full: bool) -> Option<Factors<T>> {
    let (rows, cols) = a.shape();
    let rank = rows.min(cols);
    if rank == 0 {
        let side = |n: usize| row_major(identity::<T>(n, if full { n } else { 0 }).as_ref());
        return Some((side(rows), Vec::new(), if full { side(cols) } else { Vec::new() }));
    }
    let svd = if full { Svd::new(a) } else { Svd::new_thin(a) }.ok()?;
    let values = svd.S();
    let values = (0..rank).map(|i| real(&values[i])).collect();
    Some((row_major(svd.U()), values, adjoint_row_major(svd.V())))
}

/// A singular value decomposition: left vectors, values, right vectors.
pub(crate) type Factors<T> = (Vec<T>, Vec<<T as ComplexField>::Real>, Vec<T>);

/// The singular values only. Returns `None` if the iteration does not converge.
pub(crate) fn singular_values<T: Scalar>(a: MatRef<'_, T>) -> Option<Vec<T::Real>> {
    if a.nrows() == 0 || a.ncols() == 0 { Some(Vec::new()) } else { a.singular_values().ok() }
}

/// A thin singular value decomposition as matrices, with `k = min(rows, cols)`.
pub(crate) struct Thin<T: Scalar> {
    /// `[rows, k]`.
    pub(crate) u: Mat<T>,
    /// The singular values in descending order.
    pub(crate) values: Vec<f64>,
    /// `[cols, k]`.
    pub(crate) v: Mat<T>,
}

/// Computes the thin singular value decomposition. Returns `None` if the iteration does not converge.
pub(crate) fn thin<T: Scalar>(a: MatRef<'_, T>) -> Option<Thin<T>> {
    if a.nrows() == 0 || a.ncols() == 0 {
        return Some(Thin { u: Mat::zeros(a.nrows(), 0), values: Vec::new(), v: Mat::zeros(a.ncols(), 0) });
    }
    let svd = Svd::new_thin(a).ok()?;
    let values = svd.S();
    let values = (0..a.nrows().min(a.ncols())).map(|i| real(&values[i]).into()).collect();
    Some(Thin { u: svd.U().to_owned(), values, v: svd.V().to_owned() })
}
