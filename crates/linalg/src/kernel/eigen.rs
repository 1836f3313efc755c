//! Eigenvalue decompositions by `faer`.

use super::factor::hermitian_from_lower;
use crate::host::{Scalar, row_major};
use faer::linalg::solvers::SelfAdjointEigen;
use faer::traits::math_utils::{from_f64, real};
use faer::{Mat, MatRef, Side};

/// Eigenvalues in ascending order and eigenvectors (columns, in row-major order) of a symmetric or Hermitian matrix.
/// Reads the lower triangle. Returns `None` if the iteration does not converge.
pub(crate) fn symmetric<T: Scalar>(a: MatRef<'_, T>) -> Option<(Vec<T::Real>, Vec<T>)> {
    let n = a.nrows();
    if n == 0 {
        return Some((Vec::new(), Vec::new()));
    }
    let symmetric = hermitian_from_lower(a);
    let eigen = SelfAdjointEigen::new(symmetric.as_ref(), Side::Lower).ok()?;
    let values = eigen.S();
    Some(((0..n).map(|i| real(&values[i])).collect(), row_major(eigen.U())))
}

/// Eigenvalues in ascending order of a symmetric or Hermitian matrix. Reads the lower triangle.
pub(crate) fn symmetric_values<T: Scalar>(a: MatRef<'_, T>) -> Option<Vec<T::Real>> {
    if a.nrows() == 0 {
        return Some(Vec::new());
    }
    hermitian_from_lower(a).as_ref().self_adjoint_eigenvalues(Side::Lower).ok()
}

/// Eigenvalues and eigenvectors of a general matrix, each as real and imaginary parts.
pub(crate) struct General<T> {
    pub(crate) values: (Vec<T>, Vec<T>),
    /// Columns of norm 1 whose largest element is real, in row-major order.
    pub(crate) vectors: (Vec<T>, Vec<T>),
}

/// Computes the decomposition. Returns `None` if the iteration does not converge.
pub(crate) fn general<T: Scalar>(a: MatRef<'_, T>) -> Option<General<T::Real>> {
    let n = a.nrows();
    if n == 0 {
        return Some(General { values: Default::default(), vectors: Default::default() });
    }
    let eigen = a.eigen().ok()?;
    let (values, vectors) = (eigen.S(), eigen.U());
    let mut re = Mat::<T::Real>::zeros(n, n);
    let mut im = Mat::<T::Real>::zeros(n, n);
    for j in 0..n {
        let column: Vec<(f64, f64)> =
            (0..n).map(|i| (vectors[(i, j)].re.into(), vectors[(i, j)].im.into())).collect();
        for (i, (x, y)) in normalised(&column).into_iter().enumerate() {
            re[(i, j)] = from_f64(x);
            im[(i, j)] = from_f64(y);
        }
    }
    Some(General {
        values: ((0..n).map(|i| values[i].re).collect(), (0..n).map(|i| values[i].im).collect()),
        vectors: (row_major(re.as_ref()), row_major(im.as_ref())),
    })
}

/// Normalises a vector to norm 1. A complex vector gets the phase that makes its largest element real and positive; a
/// real vector keeps its sign.
fn normalised(column: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let square = |&(x, y): &(f64, f64)| x * x + y * y;
    let norm = column.iter().map(square).sum::<f64>().sqrt();
    let greatest =
        column.iter().copied().fold((0.0, 0.0), |a, b| if square(&b) > square(&a) { b } else { a });
    let is_real = column.iter().all(|&(_, y)| y == 0.0);
    let magnitude = square(&greatest).sqrt();
    let (c, s) = if is_real || magnitude == 0.0 {
        (1.0, 0.0)
    } else {
        (greatest.0 / magnitude, greatest.1 / magnitude)
    };
    column.iter().map(|&(x, y)| ((x * c + y * s) / norm, (y * c - x * s) / norm)).collect()
}
