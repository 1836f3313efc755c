//! Matmul with quantized weights, which are never expanded to floats in memory.
//!
//! With a few rows the matmul is bound by reading the weights, whose integers take a quarter or an eighth of the bytes
//! of floats. Each weight is converted in a register and summed with the others of its block, and the block's scale is
//! applied to the sum. With many rows the weights are dequantized when the general GEMM packs its panels, one panel at
//! a time.

mod bytes;

use super::gemm::{Gemm, Operand};
use super::matrix::Matrix;
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::{Float, Kernel, Simd};
use crate::isa::Level;
use crate::threads::Pool;
use core::ops::Range;

/// Quantized weights `[k, n]`: element `(p, j)` represents `(q - zero) · scale`, with the scale and zero point of its
/// block. As [`Op::Dequantize`](kiln_ir::Op::Dequantize), with explicit block shapes.
#[derive(Clone, Copy)]
pub(crate) struct Weights {
    pub(crate) values: Values,
    /// `[k / block[0], n / block[1]]`, with any strides; 0 where all share one.
    pub(crate) scale: Matrix<f32>,
    /// Zero points with the shape of `scale`, integers as floats; `None` for zeros.
    pub(crate) zero: Option<Matrix<f32>>,
    /// Rows and columns per block, which divide `k` and `n`.
    pub(crate) block: [usize; 2],
}

/// The integers of quantized weights.
#[derive(Clone, Copy)]
pub(crate) enum Values {
    /// Signed bytes.
    I8(Matrix<i8>),
    /// Bytes.
    U8(Matrix<u8>),
    /// 4-bit integers, two per byte. No dtype of programs stores them yet.
    #[cfg_attr(not(test), allow(dead_code, reason = "programs have no dtype of 4 bits"))]
    I4(Nibbles),
}

/// A matrix of 4-bit integers, two per byte. Integer `i`, counted along memory, is the low half of byte `i / 2` if `i`
/// is even, else the high half.
#[derive(Clone, Copy)]
pub(crate) struct Nibbles {
    /// Strides are counted in 4-bit integers; both are at least 0.
    pub(crate) bytes: Matrix<u8>,
    /// -8 to 7 in two's complement, else 0 to 15.
    pub(crate) signed: bool,
}

/// The maximum number of rows for which weights are converted in registers.
const MAX_GEMV_ROWS: usize = 8;

/// The minimum weights per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 17;

/// Columns of the result per step: their sums and converted weights stay in the L1 cache.
const STRETCH: usize = 1024;

/// Rows of weights that are converted together.
const STEPS: usize = 8;

/// `c = x · weights` for `f32` operands, `[m, k] x [k, n] -> [m, n]`, multithreaded if worthwhile. The columns of `c`
/// are contiguous.
///
/// # Safety
/// Operands and result have these sizes and no other users meanwhile; the result overlaps no operand.
pub(crate) unsafe fn matmul_dequantized(
    level: Level,
    pool: &Pool,
    [m, k, n]: [usize; 3],
    x: Matrix<f32>,
    weights: &Weights,
    c: Matrix<f32>,
) {
    if m == 0 || n == 0 {
        return;
    }
    let write = |rows: Range<usize>, columns: Range<usize>, to: *mut f32, stride: usize| {
        // SAFETY: this call owns the block.
        unsafe { f32::dispatch(level, Expand { weights, rows, columns, to, stride }) };
    };
    if m > MAX_GEMV_ROWS {
        let plain = Gemm::new([m, k, n], Operand::Matrix(x), Operand::Computed(&write), Some(c));
        // SAFETY: as the caller promises.
        return unsafe { plain.run(level, pool) };
    }
    let grain = GRAIN.div_ceil(k.max(1)).next_multiple_of(STRETCH);
    pool.parallel_for(n, grain, |columns| {
        for start in columns.clone().step_by(STRETCH) {
            let columns = start..(start + STRETCH).min(columns.end);
            let gemv = DequantizedGemv { weights, depth: k, rows: m, columns: columns.clone(), x, c };
            // SAFETY: as the caller promises; each column is computed once.
            unsafe { f32::dispatch(level, gemv) };
        }
    });
}

impl Weights {
    /// The scale and zero point of the block that contains this element.
    #[inline(always)]
    unsafe fn scale_at(&self, p: usize, j: usize) -> (f32, f32) {
        let (row, column) = (p / self.block[0], j / self.block[1]);
        // SAFETY: the caller guarantees the element.
        unsafe {
            let zero = self.zero.map_or(0.0, |zero| *zero.at(row, column).start);
            (*self.scale.at(row, column).start, zero)
        }
    }

    /// The scales and zero points of a range of columns, in a row of blocks.
    ///
    /// # Safety
    /// The columns are the weights'.
    #[inline(always)]
    unsafe fn lines(&self, row: usize, columns: Range<usize>, lines: &mut [[f32; STRETCH]; 2]) {
        let fill = |from: Matrix<f32>, line: &mut [f32]| {
            // SAFETY: blocks of these columns.
            unsafe {
                if self.block[1] == 1 {
                    let from = from.at(row, columns.start);
                    for (j, to) in line.iter_mut().enumerate() {
                        *to = *from.start.offset(j as isize * from.column);
                    }
                    return;
                }
                let mut start = columns.start;
                while start < columns.end {
                    let block = start / self.block[1];
                    let end = ((block + 1) * self.block[1]).min(columns.end);
                    line[start - columns.start..end - columns.start].fill(*from.at(row, block).start);
                    start = end;
                }
            }
        };
        let [scales, zeros] = lines;
        fill(self.scale, &mut scales[..columns.len()]);
        match self.zero {
            Some(zero) => fill(zero, &mut zeros[..columns.len()]),
            None => zeros[..columns.len()].fill(0.0),
        }
    }

    /// Prefetches some columns of a row, which need not exist.
    ///
    /// # Safety
    /// The machine has the unit.
    #[inline(always)]
    unsafe fn prefetch<S: Simd<f32>>(&self, p: usize, j: usize, count: usize) {
        let (start, bytes) = match self.values {
            Values::I8(values) => (values.at(p, j).start.cast_const().cast::<u8>(), count),
            Values::U8(values) => (values.at(p, j).start.cast_const(), count),
            Values::I4(Nibbles { bytes, .. }) => {
                let first = p * bytes.row as usize + j * bytes.column as usize;
                (bytes.start.cast_const().wrapping_add(first / 2), count / 2)
            }
        };
        for at in (0..bytes).step_by(64) {
            // SAFETY: the caller guarantees the unit.
            unsafe { S::prefetch(start.wrapping_add(at).cast()) };
        }
    }

    /// Whether the weights are contiguous along `k`.
    fn along_depth(&self) -> bool {
        let strides = match self.values {
            Values::I8(values) => [values.row, values.column],
            Values::U8(values) => [values.row, values.column],
            Values::I4(nibbles) => [nibbles.bytes.row, nibbles.bytes.column],
        };
        strides[0] == 1 && strides[1] != 1
    }

    /// Converts `count` integers from `(p, j)` on, along `k` (`down`) or along `n`.
    ///
    /// # Safety
    /// The machine has the unit; the elements are the weights', and `to` has room for them.
    #[inline(always)]
    unsafe fn convert<S: Simd<f32>>(&self, p: usize, j: usize, down: bool, count: usize, to: *mut f32) {
        let along = |row: isize, column: isize| if down { row } else { column };
        // SAFETY: as the caller promises.
        unsafe {
            match self.values {
                Values::I8(values) => {
                    let (from, step) = (values.at(p, j).start, along(values.row, values.column));
                    let whole = if step == 1 { count / S::LANES * S::LANES } else { 0 };
                    for i in (0..whole).step_by(S::LANES) {
                        S::store(to.add(i), S::load_narrow(from.add(i).cast_const()));
                    }
                    for i in whole..count {
                        *to.add(i) = f32::from(*from.offset(i as isize * step));
                    }
                }
                Values::U8(values) => {
                    let (from, step) = (values.at(p, j).start, along(values.row, values.column));
                    let whole = if step == 1 { count / S::LANES * S::LANES } else { 0 };
                    for i in (0..whole).step_by(S::LANES) {
                        S::store(to.add(i), S::load_narrow(from.add(i).cast_const()));
                    }
                    for i in whole..count {
                        *to.add(i) = f32::from(*from.offset(i as isize * step));
                    }
                }
                Values::I4(Nibbles { bytes, signed }) => {
                    let first = p * bytes.row as usize + j * bytes.column as usize;
                    let step = along(bytes.row, bytes.column) as usize;
                    let sign = if signed { 8 } else { 0 };
                    // Sign extension: flips the sign bit and subtracts it again.
                    let value = |nibble: u8| f32::from(((nibble & 15) ^ sign) as i8 - sign as i8);
                    if step == 1 && first.is_multiple_of(2) {
                        let from = bytes.start.add(first / 2);
                        for i in 0..count / 2 {
                            let byte = *from.add(i);
                            *to.add(2 * i) = value(byte);
                            *to.add(2 * i + 1) = value(byte >> 4);
                        }
                        if count % 2 == 1 {
                            *to.add(count - 1) = value(*from.add(count / 2));
                        }
                    } else {
                        for i in 0..count {
                            let place = first + i * step;
                            *to.add(i) = value(*bytes.start.add(place / 2) >> (place % 2 * 4));
                        }
                    }
                }
            }
        }
    }
}

/// Dequantizes a block of weights, for the panels of the general GEMM.
struct Expand<'a> {
    weights: &'a Weights,
    rows: Range<usize>,
    columns: Range<usize>,
    to: *mut f32,
    stride: usize,
}

impl Kernel<f32> for Expand<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<f32>>(self) {
        let Expand { weights, rows, columns, to, stride } = self;
        let mut line = [0.0f32; STRETCH];
        // SAFETY: the caller guarantees the block; lines are no longer than a block of `k` or a panel.
        unsafe {
            if weights.along_depth() {
                for (column, j) in columns.enumerate() {
                    for first in (rows.start..rows.end).step_by(STRETCH) {
                        let count = (rows.end - first).min(STRETCH);
                        weights.convert::<S>(first, j, true, count, line.as_mut_ptr());
                        let mut start = 0;
                        while start < count {
                            let block = weights.block[0];
                            let end = (start + block - (first + start) % block).min(count);
                            let (scale, zero) = weights.scale_at(first + start, j);
                            let to = to.add((first - rows.start) * stride + column);
                            for i in start..end {
                                *to.add(i * stride) = (line[i] - zero) * scale;
                            }
                            start = end;
                        }
                    }
                }
                return;
            }
            let mut lines = [[0.0f32; STRETCH]; 2];
            for first in columns.clone().step_by(STRETCH) {
                let stretch = first..(first + STRETCH).min(columns.end);
                for p in rows.clone() {
                    if p == rows.start || p.is_multiple_of(weights.block[0]) {
                        weights.lines(p / weights.block[0], stretch.clone(), &mut lines);
                    }
                    weights.convert::<S>(p, first, false, stretch.len(), line.as_mut_ptr());
                    let to = to.add((p - rows.start) * stride + first - columns.start);
                    let [scales, zeros] = &lines;
                    for i in 0..stretch.len() {
                        *to.add(i) = (line[i] - zeros[i]) * scales[i];
                    }
                }
            }
        }
    }
}

/// Some columns of a matmul with few rows.
struct DequantizedGemv<'a> {
    weights: &'a Weights,
    depth: usize,
    rows: usize,
    columns: Range<usize>,
    x: Matrix<f32>,
    c: Matrix<f32>,
}

impl Kernel<f32> for DequantizedGemv<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<f32>>(self) {
        // SAFETY: the caller upholds the conditions.
        unsafe {
            if self.direct::<S>() {
                return;
            }
            if self.weights.along_depth() {
                self.dots::<S>();
            } else {
                self.add_rows::<S>();
            }
        }
    }
}

impl DequantizedGemv<'_> {
    /// Weights contiguous along `k`: dot products, block by block.
    ///
    /// # Safety
    /// As [`matmul_dequantized`].
    #[inline(always)]
    unsafe fn dots<S: Simd<f32>>(&self) {
        let mut x = Scratch::<f32>::new(self.rows * self.depth);
        let x = x.as_mut_ptr();
        let mut line = [0.0f32; STRETCH];
        // SAFETY: as the caller promises.
        unsafe {
            for i in 0..self.rows {
                for p in 0..self.depth {
                    *x.add(i * self.depth + p) = *self.x.at(i, p).start;
                }
            }
            let block = self.weights.block[0];
            let one = S::splat(1.0);
            for j in self.columns.clone() {
                let mut sums = [S::splat(0.0); MAX_GEMV_ROWS];
                let mut rest = [0.0f32; MAX_GEMV_ROWS];
                // The start of the next block; scale and zero point belong to the previous one.
                let (mut next, mut scale, mut zero) = (0, 0.0, 0.0);
                for first in (0..self.depth).step_by(STRETCH) {
                    let count = (self.depth - first).min(STRETCH);
                    self.weights.convert::<S>(first, j, true, count, line.as_mut_ptr());
                    let mut start = 0;
                    while start < count {
                        if first + start == next {
                            (scale, zero) = self.weights.scale_at(next, j);
                            next += block;
                        }
                        let end = (next - first).min(count);
                        let whole = start + (end - start) / S::LANES * S::LANES;
                        let shift = S::splat(-zero);
                        for i in 0..self.rows {
                            let row = x.add(i * self.depth + first);
                            let mut sum = S::splat(0.0);
                            for p in (start..whole).step_by(S::LANES) {
                                let q = S::mul_add(S::load(line.as_ptr().add(p)), one, shift);
                                sum = S::mul_add(S::load(row.add(p)), q, sum);
                            }
                            sums[i] = S::mul_add(sum, S::splat(scale), sums[i]);
                            for p in whole..end {
                                rest[i] += scale * (*row.add(p) * (line[p] - zero));
                            }
                        }
                        start = end;
                    }
                }
                for i in 0..self.rows {
                    *self.c.at(i, j).start = S::sum(sums[i]) + rest[i];
                }
            }
        }
    }

    /// Weights contiguous along `n`: rows of weights times elements of `x`, block by block.
    ///
    /// # Safety
    /// As [`matmul_dequantized`].
    #[inline(always)]
    unsafe fn add_rows<S: Simd<f32>>(&self) {
        let len = self.columns.len();
        let start = self.columns.start;
        let block = self.weights.block[0];
        let mut lines = [[0.0f32; STRETCH]; STEPS];
        let mut blocks = [[0.0f32; STRETCH]; 2];
        let mut sums = [[0.0f32; STRETCH]; MAX_GEMV_ROWS];
        let mut totals = [[0.0f32; STRETCH]; MAX_GEMV_ROWS];
        // SAFETY: as the caller promises. Lines are processed in whole vectors; lanes beyond the columns are never
        // written to the result.
        unsafe {
            for first in (0..self.depth).step_by(block) {
                let end = (first + block).min(self.depth);
                self.weights.lines(first / block, self.columns.clone(), &mut blocks);
                let [scales, zeros] = [blocks[0].as_ptr(), blocks[1].as_ptr()];
                sums[..self.rows].iter_mut().for_each(|row| row[..len].fill(0.0));
                for p in (first..end).step_by(STEPS) {
                    let steps = (end - p).min(STEPS);
                    let mut x = [[0.0f32; STEPS]; MAX_GEMV_ROWS];
                    for step in 0..steps {
                        let line = lines[step].as_mut_ptr();
                        self.weights.prefetch::<S>(p + step + STEPS, start, len);
                        self.weights.convert::<S>(p + step, start, false, len, line);
                        if self.weights.zero.is_some() {
                            for j in (0..len).step_by(S::LANES) {
                                let minus = S::splat(-1.0);
                                let shifted = S::mul_add(S::load(zeros.add(j)), minus, S::load(line.add(j)));
                                S::store(line.add(j), shifted);
                            }
                        }
                        for i in 0..self.rows {
                            x[i][step] = *self.x.at(i, p + step).start;
                        }
                    }
                    lines[steps..].iter_mut().for_each(|line| line[..len].fill(0.0));
                    for i in 0..self.rows {
                        let row = sums[i].as_mut_ptr();
                        for j in (0..len).step_by(S::LANES) {
                            let mut sum = S::load(row.add(j));
                            for step in 0..STEPS {
                                let line = S::load(lines[step].as_ptr().add(j));
                                sum = S::mul_add(S::splat(x[i][step]), line, sum);
                            }
                            S::store(row.add(j), sum);
                        }
                    }
                }
                for i in 0..self.rows {
                    let (from, to) = (sums[i].as_ptr(), totals[i].as_mut_ptr());
                    for j in (0..len).step_by(S::LANES) {
                        let scale = S::load(scales.add(j));
                        let total = S::mul_add(S::load(from.add(j)), scale, S::load(to.add(j)));
                        S::store(to.add(j), total);
                    }
                }
            }
            for i in 0..self.rows {
                let to = self.c.at(i, start).start;
                to.copy_from_nonoverlapping(totals[i].as_ptr(), len);
            }
        }
    }
}

#[cfg(test)]
mod tests;
