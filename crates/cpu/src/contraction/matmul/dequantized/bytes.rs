//! One or two vectors times 8-bit weights, which are converted in registers and added to the sums: bound by memory
//! bandwidth.

use super::{DequantizedGemv, MAX_GEMV_ROWS, STRETCH, Values};
use crate::contraction::matmul::matrix::Matrix;
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::{Simd, Widen};

/// The maximum number of rows whose sums fit the registers.
const ROWS: usize = 2;

/// Rows of weights that are added between two updates of the sums.
const STEPS: usize = 8;

/// Columns of weights that are summed together.
const COLUMNS: usize = 4;

impl DequantizedGemv<'_> {
    /// Computes the product without writing converted weights to memory; `false` if that is not possible.
    ///
    /// # Safety
    /// As [`super::matmul_dequantized`].
    #[inline(always)]
    pub(super) unsafe fn direct<S: Simd<f32>>(&self) -> bool {
        // SAFETY: as the caller promises.
        unsafe {
            match self.weights.values {
                Values::I8(values) => self.direct_from::<S, i8>(values),
                Values::U8(values) => self.direct_from::<S, u8>(values),
                Values::I4(_) => false,
            }
        }
    }

    #[inline(always)]
    unsafe fn direct_from<S: Simd<f32>, N: Widen>(&self, values: Matrix<N>) -> bool {
        let across = values.column == 1;
        // SAFETY: as the caller promises.
        unsafe {
            match self.rows {
                1 if across => self.rows_of_weights::<S, N, 1>(values),
                ROWS if across => self.rows_of_weights::<S, N, ROWS>(values),
                1 if values.row == 1 => self.columns_of_weights::<S, N, 1>(values),
                ROWS if values.row == 1 => self.columns_of_weights::<S, N, ROWS>(values),
                _ => return false,
            }
        }
        true
    }

    /// Weights contiguous along `n`: rows of weights times elements of `x`, block by block.
    #[inline(always)]
    unsafe fn rows_of_weights<S: Simd<f32>, N: Widen, const R: usize>(&self, values: Matrix<N>) {
        let (start, len) = (self.columns.start, self.columns.len());
        let whole = len / S::LANES * S::LANES;
        let block = self.weights.block[0];
        let mut blocks = [[0.0f32; STRETCH]; 2];
        let mut sums = [[0.0f32; STRETCH]; R];
        let mut totals = [[0.0f32; STRETCH]; R];
        // SAFETY: as the caller promises; sums and scales have room for a range of columns.
        unsafe {
            for first in (0..self.depth).step_by(block) {
                let end = (first + block).min(self.depth);
                self.weights.lines(first / block, self.columns.clone(), &mut blocks);
                sums.iter_mut().for_each(|row| row[..len].fill(0.0));
                let mut p = first;
                while p + STEPS <= end {
                    self.add::<S, N, R, STEPS>(values, p, whole, &blocks[1], &mut sums);
                    p += STEPS;
                }
                while p < end {
                    self.add::<S, N, R, 1>(values, p, whole, &blocks[1], &mut sums);
                    p += 1;
                }
                for i in 0..R {
                    for j in 0..len {
                        totals[i][j] += sums[i][j] * blocks[0][j];
                    }
                }
            }
            for i in 0..R {
                self.c.at(i, start).start.copy_from_nonoverlapping(totals[i].as_ptr(), len);
            }
        }
    }

    /// Adds some rows of weights to the sums; those past the last whole vector one by one.
    #[inline(always)]
    unsafe fn add<S: Simd<f32>, N: Widen, const R: usize, const P: usize>(
        &self,
        values: Matrix<N>,
        p: usize,
        whole: usize,
        zeros: &[f32; STRETCH],
        sums: &mut [[f32; STRETCH]; R],
    ) {
        let start = self.columns.start;
        let from: [*const N; P] = core::array::from_fn(|step| values.at(p + step, start).start.cast_const());
        let ahead: [*const N; P] =
            core::array::from_fn(|step| values.at(p + P + step, start).start.cast_const());
        // SAFETY: as the caller promises.
        unsafe {
            let mut x = [[0.0f32; P]; R];
            for i in 0..R {
                for step in 0..P {
                    x[i][step] = *self.x.at(i, p + step).start;
                }
            }
            let shifted = self.weights.zero.is_some();
            for j in (0..whole).step_by(S::LANES) {
                if j % 64 == 0 {
                    (0..P).for_each(|step| S::prefetch(ahead[step].wrapping_add(j).cast()));
                }
                let mut y = [S::splat(0.0); P];
                for step in 0..P {
                    y[step] = S::load_narrow(from[step].add(j));
                }
                if shifted {
                    let zero = S::load(zeros.as_ptr().add(j));
                    y.iter_mut().for_each(|y| *y = S::sub(*y, zero));
                }
                for i in 0..R {
                    // Two accumulators, to hide the latency of the multiplication.
                    let mut sum = [S::load(sums[i].as_ptr().add(j)), S::splat(0.0)];
                    for step in 0..P {
                        sum[step % 2] = S::mul_add(S::splat(x[i][step]), y[step], sum[step % 2]);
                    }
                    S::store(sums[i].as_mut_ptr().add(j), S::add(sum[0], sum[1]));
                }
            }
            for j in whole..self.columns.len() {
                for i in 0..R {
                    for step in 0..P {
                        sums[i][j] += x[i][step] * ((*from[step].add(j)).widen() - zeros[j]);
                    }
                }
            }
        }
    }

    /// Weights contiguous along `k`: dot products of some columns at a time, block by block.
    #[inline(always)]
    unsafe fn columns_of_weights<S: Simd<f32>, N: Widen, const R: usize>(&self, values: Matrix<N>) {
        let mut copy = Scratch::<f32>::new(R * self.depth);
        let x = copy.as_mut_ptr();
        let block = self.weights.block[0];
        debug_assert!(R <= MAX_GEMV_ROWS);
        // SAFETY: as the caller promises. Past the last column, the last one is computed again, into the same place.
        unsafe {
            for i in 0..R {
                for p in 0..self.depth {
                    *x.add(i * self.depth + p) = *self.x.at(i, p).start;
                }
            }
            for j in self.columns.clone().step_by(COLUMNS) {
                let columns: [usize; COLUMNS] = core::array::from_fn(|c| (j + c).min(self.columns.end - 1));
                let from = columns.map(|j| values.at(0, j).start.cast_const());
                let mut totals = [[S::splat(0.0); COLUMNS]; R];
                let mut rest = [[0.0f32; COLUMNS]; R];
                for first in (0..self.depth).step_by(block) {
                    let end = (first + block).min(self.depth);
                    let whole = first + (end - first) / S::LANES * S::LANES;
                    let mut scales = [0.0f32; COLUMNS];
                    let mut zeros = [0.0f32; COLUMNS];
                    for c in 0..COLUMNS {
                        (scales[c], zeros[c]) = self.weights.scale_at(first, columns[c]);
                    }
                    let mut sums = [[S::splat(0.0); COLUMNS]; R];
                    for p in (first..whole).step_by(S::LANES) {
                        let mut y = [S::splat(0.0); COLUMNS];
                        for c in 0..COLUMNS {
                            y[c] = S::sub(S::load_narrow(from[c].add(p)), S::splat(zeros[c]));
                        }
                        for i in 0..R {
                            let x = S::load(x.add(i * self.depth + p));
                            for c in 0..COLUMNS {
                                sums[i][c] = S::mul_add(x, y[c], sums[i][c]);
                            }
                        }
                    }
                    for i in 0..R {
                        for c in 0..COLUMNS {
                            totals[i][c] = S::mul_add(sums[i][c], S::splat(scales[c]), totals[i][c]);
                            for p in whole..end {
                                let y = (*from[c].add(p)).widen() - zeros[c];
                                rest[i][c] += scales[c] * (*x.add(i * self.depth + p) * y);
                            }
                        }
                    }
                }
                for i in 0..R {
                    for c in 0..COLUMNS {
                        *self.c.at(i, columns[c]).start = S::sum(totals[i][c]) + rest[i][c];
                    }
                }
            }
        }
    }
}
