//! LU decomposition by Gaussian elimination with partial pivoting.
//!
//! It is implemented here because a zero pivot must leave its column unchanged, as in LAPACK's `getrf`. Singular
//! matrices then have factors and a determinant of exactly 0.

use crate::host::Scalar;
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::{solve_unit_lower_triangular_in_place, solve_upper_triangular_in_place};
use faer::traits::math_utils::{abs, abs1};
use faer::{Accum, Mat, MatRef, Par};

/// Block size: the number of columns to eliminate before one matrix product updates the rest.
const BLOCK: usize = 32;

/// `P A = L U`.
pub(crate) struct Lu<T: Scalar> {
    /// `U` on and above the diagonal, `L` below it without its unit diagonal.
    pub(crate) factors: Mat<T>,
    /// Row `i` was exchanged with row `swaps[i]`, in sequence.
    pub(crate) swaps: Vec<usize>,
}

/// Factorises a matrix of any shape.
pub(crate) fn factor<T: Scalar>(a: MatRef<'_, T>) -> Lu<T> {
    let mut factors = a.to_owned();
    let (rows, cols) = a.shape();
    let rank = rows.min(cols);
    let mut swaps = Vec::with_capacity(rank);
    for start in (0..rank).step_by(BLOCK) {
        let end = (start + BLOCK).min(rank);
        for column in start..end {
            swaps.push(exchange(&mut factors, column));
            eliminate(&mut factors, column, end);
        }
        let rest = factors.as_mut().submatrix_mut(start, start, rows - start, cols - start);
        let (lower, mut right, below, mut corner) = rest.split_at_mut(end - start, end - start);
        solve_unit_lower_triangular_in_place(lower.as_ref(), right.as_mut(), Par::Seq);
        let minus_one = T::of(-1.0);
        matmul(corner.as_mut(), Accum::Add, below.as_ref(), right.as_ref(), minus_one, Par::Seq);
    }
    Lu { factors, swaps }
}

/// Moves the largest element of a column, from the diagonal down, to the diagonal. Returns the row where it was.
fn exchange<T: Scalar>(factors: &mut Mat<T>, column: usize) -> usize {
    let magnitude = |x: T| Into::<f64>::into(abs1(&x));
    let mut pivot = column;
    for row in column + 1..factors.nrows() {
        if magnitude(factors[(row, column)]) > magnitude(factors[(pivot, column)]) {
            pivot = row;
        }
    }
    if pivot != column {
        for j in 0..factors.ncols() {
            let upper = factors[(column, j)];
            factors[(column, j)] = factors[(pivot, j)];
            factors[(pivot, j)] = upper;
        }
    }
    pivot
}

/// Eliminates below the diagonal of a column, in the columns before `end`.
fn eliminate<T: Scalar>(factors: &mut Mat<T>, column: usize, end: usize) {
    let pivot = factors[(column, column)];
    if pivot == T::of(0.0) {
        return;
    }
    let rows = factors.nrows();
    for row in column + 1..rows {
        let quotient = factors[(row, column)].over(pivot);
        factors[(row, column)] = quotient;
    }
    for j in column + 1..end {
        let top = factors[(column, j)];
        for row in column + 1..rows {
            let less = factors[(row, j)] - factors[(row, column)] * top;
            factors[(row, j)] = less;
        }
    }
}

impl<T: Scalar> Lu<T> {
    /// Returns the first index of a zero on the diagonal of `U`: the matrix is then singular.
    pub(crate) fn zero_pivot(&self) -> Option<usize> {
        (0..self.swaps.len()).find(|&i| self.factors[(i, i)] == T::of(0.0))
    }

    /// Solves `A X = B` for a square matrix.
    pub(crate) fn solve(&self, b: MatRef<'_, T>) -> Mat<T> {
        let order = order(&self.swaps, b.nrows());
        let mut x = Mat::from_fn(b.nrows(), b.ncols(), |i, j| b[(order[i], j)]);
        solve_unit_lower_triangular_in_place(self.factors.as_ref(), x.as_mut(), Par::Seq);
        solve_upper_triangular_in_place(self.factors.as_ref(), x.as_mut(), Par::Seq);
        x
    }

    /// Returns the determinant divided by its magnitude (0 for 0), and the logarithm of its magnitude.
    pub(crate) fn sign_and_log(&self) -> (T, f64) {
        let mut sign = T::of(self.parity());
        let mut log = 0.0;
        for i in 0..self.swaps.len() {
            let pivot = self.factors[(i, i)];
            sign *= pivot.sign();
            log += Into::<f64>::into(abs(&pivot)).ln();
        }
        (sign, log)
    }

    /// Returns the determinant of a square matrix.
    pub(crate) fn determinant(&self) -> T {
        (0..self.swaps.len()).fold(T::of(self.parity()), |product, i| product * self.factors[(i, i)])
    }

    /// Returns 1 after an even number of exchanges, -1 after an odd number.
    fn parity(&self) -> f64 {
        let odd = self.swaps.iter().enumerate().filter(|&(i, &row)| i != row).count() % 2 == 1;
        if odd { -1.0 } else { 1.0 }
    }
}

/// The row of the matrix for each row of the factors: `A[order[i]] = (L U)[i]`.
pub(crate) fn order(swaps: &[usize], rows: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    for (i, &row) in swaps.iter().enumerate() {
        order.swap(i, row);
    }
    order
}
