//! Narrow products, which read an operand once: copying it first would double the time.

use super::matrix::Matrix;
use crate::contraction::simd::{Float, Kernel, Simd};

/// A narrow product whose operands both run along `k`: every element of the result is a dot product. The general
/// algorithm would spend its time on transposing the larger operand.
pub(super) struct Dots<T> {
    pub(super) sizes: [usize; 3],
    pub(super) a: Matrix<T>,
    pub(super) b: Matrix<T>,
    pub(super) c: Matrix<T>,
}

impl<T> Dots<T> {
    pub(super) fn suit([m, k, n]: [usize; 3], a: Matrix<T>, b: Matrix<T>) -> bool {
        a.column == 1 && b.row == 1 && (2..=24).contains(&m.min(n)) && m * n > 256 && k >= 32
    }
}

impl<T: Float> Kernel<T> for Dots<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let [m, _, n] = self.sizes;
        // SAFETY: the matrices have these sizes.
        unsafe {
            if m <= n {
                for j in (0..n).step_by(4) {
                    (0..m).step_by(4).for_each(|i| self.block::<S>(i, j));
                }
            } else {
                for i in (0..m).step_by(4) {
                    (0..n).step_by(4).for_each(|j| self.block::<S>(i, j));
                }
            }
        }
    }
}

impl<T: Float> Dots<T> {
    /// Four rows by four columns of the result; at the edges some are computed twice, into the same place.
    ///
    /// # Safety
    /// As [`product`](super::product); `i` and `j` lie in the result.
    #[inline(always)]
    unsafe fn block<S: Simd<T>>(&self, i: usize, j: usize) {
        let [m, k, n] = self.sizes;
        let rows: [usize; 4] = core::array::from_fn(|r| (i + r).min(m - 1));
        let columns: [usize; 4] = core::array::from_fn(|c| (j + c).min(n - 1));
        let a = rows.map(|row| self.a.at(row, 0).start);
        let b = columns.map(|column| self.b.at(0, column).start);
        // SAFETY: rows of `a` and columns of `b` run along `k` without gaps; elements of `c`.
        unsafe {
            let mut acc = [[S::splat(T::ZERO); 4]; 4];
            let mut from = 0;
            while from + S::LANES <= k {
                let mut y = [S::splat(T::ZERO); 4];
                for c in 0..4 {
                    y[c] = S::load(b[c].add(from));
                }
                for r in 0..4 {
                    let x = S::load(a[r].add(from));
                    for c in 0..4 {
                        acc[r][c] = S::mul_add(x, y[c], acc[r][c]);
                    }
                }
                from += S::LANES;
            }
            for r in 0..4 {
                for c in 0..4 {
                    let mut sum = S::sum(acc[r][c]);
                    for place in from..k {
                        sum += *a[r].add(place) * *b[c].add(place);
                    }
                    *self.c.at(rows[r], columns[c]).start = sum;
                }
            }
        }
    }
}
