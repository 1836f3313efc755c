//! Packing: copies of operands in the order in which the tiles read them.

use super::matrix::Matrix;
use crate::contraction::simd::{Float, Kernel, Simd, Source};

/// Packs rows of `a`: `to[i][p]`.
pub(super) struct PackRows<T, N> {
    pub(super) from: Matrix<N>,
    pub(super) rows: usize,
    pub(super) depth: usize,
    pub(super) to: *mut T,
    /// The row stride of the packed block.
    pub(super) stride: usize,
}

/// Packs panels of `b`: `to[panel][p][j]`, with the columns of one tile per panel.
pub(super) struct PackPanels<T, N> {
    pub(super) from: Matrix<N>,
    pub(super) depth: usize,
    pub(super) columns: usize,
    pub(super) to: *mut T,
    /// The distance between panels.
    pub(super) panel: usize,
}

/// The number of rows of `b` that are prefetched ahead.
const AHEAD: isize = 8;

impl<T: Float, N: Source<T>> Kernel<T> for PackRows<T, N> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let stride = self.stride;
        // SAFETY: a block of the matrix and the block that it is packed into.
        unsafe {
            if self.from.column == 1 {
                for i in 0..self.rows {
                    let from = self.from.at(i, 0).start.cast_const();
                    let ahead = self.from.at(i + 2, 0).start;
                    for p in (0..self.depth).step_by(64 / size_of::<N>()) {
                        S::prefetch(ahead.wrapping_add(p).cast_const().cast());
                    }
                    copy::<T, N, S>(from, self.to.add(i * stride), self.depth);
                }
            } else if self.from.row == 1 {
                transpose::<T, N, S>(self.from.transposed(), self.depth, self.rows, self.to, stride);
            } else {
                for i in 0..self.rows {
                    for p in 0..self.depth {
                        *self.to.add(i * stride + p) = (*self.from.at(i, p).start).widen();
                    }
                }
            }
        }
    }
}

impl<T: Float, N: Source<T>> Kernel<T> for PackPanels<T, N> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let width = 2 * S::LANES;
        // SAFETY: rows of the matrix and the panels that they are packed into.
        unsafe {
            if self.from.column == 1 {
                for p in 0..self.depth {
                    let from = self.from.at(p, 0).start.cast_const();
                    let whole = self.columns / width;
                    for panel in 0..whole {
                        let to = self.to.add(panel * self.panel + p * width);
                        let from = from.add(panel * width);
                        let ahead = from.wrapping_offset(AHEAD * self.from.row);
                        S::prefetch(ahead.cast());
                        S::prefetch(ahead.wrapping_add(S::LANES).cast());
                        S::store(to, N::load::<S>(from));
                        S::store(to.add(S::LANES), N::load::<S>(from.add(S::LANES)));
                    }
                    let to = self.to.wrapping_add(whole * self.panel + p * width);
                    copy::<T, N, S>(from.add(whole * width), to, self.columns % width);
                }
                return;
            }
            for start in (0..self.columns).step_by(width) {
                let columns = (self.columns - start).min(width);
                let from = self.from.at(0, start);
                let to = self.to.add(start / width * self.panel);
                if from.row == 1 {
                    transpose::<T, N, S>(from.transposed(), columns, self.depth, to, width);
                } else {
                    for p in 0..self.depth {
                        for j in 0..columns {
                            *to.add(p * width + j) = (*from.at(p, j).start).widen();
                        }
                    }
                }
            }
        }
    }
}

/// Copies contiguous elements, converting them.
///
/// # Safety
/// As the pointers and the length say.
#[inline(always)]
unsafe fn copy<T: Float, N: Source<T>, S: Simd<T>>(from: *const N, to: *mut T, len: usize) {
    let mut i = 0;
    // SAFETY: elements of both.
    unsafe {
        while i + S::LANES <= len {
            S::store(to.add(i), N::load::<S>(from.add(i)));
            i += S::LANES;
        }
        while i < len {
            *to.add(i) = (*from.add(i)).widen();
            i += 1;
        }
    }
}

/// Transposes: `to[j][i] = from[i][j]` for contiguous rows of `from`, in squares where possible.
///
/// # Safety
/// As the matrix, its sizes and the stride say.
#[inline(always)]
unsafe fn transpose<T: Float, N: Source<T>, S: Simd<T>>(
    from: Matrix<N>,
    rows: usize,
    columns: usize,
    to: *mut T,
    stride: usize,
) {
    let lanes = S::LANES;
    let (whole_rows, whole_columns) = (rows / lanes * lanes, columns / lanes * lanes);
    // SAFETY: squares and elements of both.
    unsafe {
        for i in (0..whole_rows).step_by(lanes) {
            for j in (0..whole_columns).step_by(lanes) {
                let from = from.at(i, j);
                let to = to.add(j * stride + i);
                match N::as_is(from.start) {
                    Some(plain) => S::transpose(plain, from.row, to, stride as isize),
                    None => {
                        let mut wide = [T::ZERO; 256];
                        for r in 0..lanes {
                            let row = N::load::<S>(from.at(r, 0).start.cast_const());
                            S::store(wide.as_mut_ptr().add(r * lanes), row);
                        }
                        S::transpose(wide.as_ptr(), lanes as isize, to, stride as isize);
                    }
                }
            }
        }
        for i in 0..rows {
            let first = if i < whole_rows { whole_columns } else { 0 };
            for j in first..columns {
                *to.add(j * stride + i) = (*from.at(i, j).start).widen();
            }
        }
    }
}
