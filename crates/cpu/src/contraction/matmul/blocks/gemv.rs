//! A few rows of activations times blocks of weights.
//!
//! Blocks are unpacked to a line in the L1 cache, and multiplied with all rows of activations, whose bytes are multiplied
//! one after the other.

use super::activations::{Activations, Integers, RESIDUAL, Rounded};
use super::format::{CHUNK, Class, LINE, Line, Unpacked, class_of};
use super::machine::{Machine, RowWork};
use super::unit::Unpack;
use super::{BlockRows, MAX_GEMV_ROWS};
use crate::contraction::scratch::Scratch;
use crate::copy::Shared;
use crate::threads::Pool;
use core::ops::Range;

/// The minimum weights per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 17;

/// Rows of activations that are multiplied together.
const ROWS: usize = 4;

/// `c = x · weightsᵀ` for `n` rows of weights.
///
/// # Safety
/// As [`super::matmul_blocks`]; the activations are bytes, and have at most [`MAX_GEMV_ROWS`] rows.
pub(super) unsafe fn multiply(
    machine: Machine,
    pool: &Pool,
    x: &mut Activations,
    weights: BlockRows,
    n: usize,
    c: *mut f32,
) {
    let gemv =
        Gemv { machine, class: class_of(weights.format), x: x.rounded(), weights, n, c: Shared::new(c) };
    pool.parallel_for(n, GRAIN.div_ceil(gemv.x.depth.max(1)), |columns| {
        // SAFETY: as the caller promises; each column is computed once.
        unsafe { gemv.columns(columns) };
    });
}

/// The operands and the result.
struct Gemv {
    machine: Machine,
    class: Class,
    x: Rounded,
    weights: BlockRows,
    n: usize,
    c: Shared<f32>,
}

impl Gemv {
    /// Computes some columns of the result.
    ///
    /// # Safety
    /// As [`multiply`]; nothing else uses these columns.
    unsafe fn columns(&self, columns: Range<usize>) {
        let (depth, rows) = (self.x.depth, self.x.rows);
        let mut line = Line::new(LINE);
        let mut products = Scratch::<f32>::new(ROWS * LINE / self.class.group());
        for column in columns {
            let mut totals = [0.0; MAX_GEMV_ROWS];
            for first in (0..depth).step_by(LINE) {
                let elements = LINE.min(depth - first);
                let line = line.unpacked();
                // SAFETY: as the caller promises; the line has room for whole blocks.
                unsafe {
                    let blocks = self.weights.block(column, first);
                    let count = elements / self.weights.format.len();
                    self.machine.unpack(self.weights.format, blocks, count, line);
                    self.pad(line, elements);
                    let products = products.as_mut_ptr();
                    let dots = Dots { x: self.x, line, first, elements, products, totals: &mut totals };
                    self.machine.run_rows(self.class, dots);
                }
            }
            for row in 0..rows {
                // SAFETY: as the caller promises.
                unsafe { *self.c.get().add(row * self.n + column) = totals[row] };
            }
        }
    }

    /// Clears the scales and minima after those of the elements, up to a whole vector.
    ///
    /// # Safety
    /// The memory is that of a [`Line`].
    unsafe fn pad(&self, line: Unpacked, elements: usize) {
        let groups = elements / self.class.group();
        for group in groups..groups.next_multiple_of(8) {
            // SAFETY: a line is padded to whole vectors.
            unsafe {
                *line.scales.add(group) = 0.0;
                *line.minima.add(group) = 0.0;
            }
        }
    }
}

/// Adds the products of a line and all rows of activations.
struct Dots<'a> {
    x: Rounded,
    line: Unpacked,
    /// The first element of the line in its row.
    first: usize,
    elements: usize,
    /// Memory for the products of the scales of both sides: a row of groups for each row of activations.
    products: *mut f32,
    totals: &'a mut [f32; MAX_GEMV_ROWS],
}

impl RowWork for Dots<'_> {
    #[inline(always)]
    unsafe fn run<U: Unpack, const GROUP: usize, const SIGNED: bool>(mut self) {
        let mut row = 0;
        // SAFETY: as the caller promises.
        unsafe {
            while row + ROWS <= self.x.rows {
                self.dot::<U, GROUP, SIGNED, ROWS, 1>(row);
                row += ROWS;
            }
            if row + 2 <= self.x.rows {
                self.dot::<U, GROUP, SIGNED, 2, 2>(row);
                row += 2;
            }
            if row < self.x.rows {
                self.dot::<U, GROUP, SIGNED, 1, 4>(row);
            }
        }
    }
}

impl Dots<'_> {
    /// Adds the dot products of `R` rows of activations, with `A` sums of each.
    ///
    /// # Safety
    /// As [`Machine::run_rows`].
    #[inline(always)]
    unsafe fn dot<U: Unpack, const GROUP: usize, const SIGNED: bool, const R: usize, const A: usize>(
        &mut self,
        row: usize,
    ) {
        let chunks = self.elements / CHUNK;
        // SAFETY: as the caller promises.
        unsafe {
            let mut sums = [[U::splat(0.0); R]; A];
            self.start::<U, GROUP, SIGNED, R>(row, &mut sums[0]);
            let mut chunk = 0;
            while chunk + A <= chunks {
                for a in 0..A {
                    self.add_chunk::<U, GROUP, SIGNED, R>(row, chunk + a, &mut sums[a]);
                }
                chunk += A;
            }
            for chunk in chunk..chunks {
                self.add_chunk::<U, GROUP, SIGNED, R>(row, chunk, &mut sums[0]);
            }
            for r in 0..R {
                let mut total = sums[0][r];
                for a in 1..A {
                    total = U::add(total, sums[a][r]);
                }
                self.totals[row + r] += U::sum(total);
            }
        }
    }

    /// Multiplies the scales of both sides, and adds the minima times the sums of activations.
    ///
    /// # Safety
    /// As [`dot`](Dots::dot).
    #[inline(always)]
    unsafe fn start<U: Unpack, const GROUP: usize, const SIGNED: bool, const R: usize>(
        &self,
        row: usize,
        sums: &mut [U::Floats; R],
    ) {
        let first = self.first / GROUP;
        for at in (0..self.elements / GROUP).step_by(8) {
            // SAFETY: as the caller promises; rows of groups are padded to whole vectors.
            unsafe {
                let scale = U::floats(self.line.scales.add(at));
                for r in 0..R {
                    let from = (row + r) * self.x.stride + first + at;
                    let product = U::mul(scale, U::floats(self.x.scales.get().add(from)));
                    U::store_floats(self.products.add(r * (LINE / GROUP) + at), product);
                    if !SIGNED {
                        let sum = U::floats(self.x.sums.get().add(from));
                        sums[r] = U::mul_add(U::floats(self.line.minima.add(at)), sum, sums[r]);
                    }
                }
            }
        }
    }

    /// Adds the products of a chunk.
    ///
    /// # Safety
    /// As [`dot`](Dots::dot).
    #[inline(always)]
    unsafe fn add_chunk<U: Unpack, const GROUP: usize, const SIGNED: bool, const R: usize>(
        &self,
        row: usize,
        chunk: usize,
        sums: &mut [U::Floats; R],
    ) {
        let Rounded { rows, depth, layout, integers, .. } = self.x;
        // SAFETY: as the caller promises.
        unsafe {
            let weights = U::load(self.line.integers.add(chunk * CHUNK));
            let x = integers.get().cast_const().add(self.first + chunk * CHUNK);
            for r in 0..R {
                let mut product = dot::<U, SIGNED>(weights, U::load(x.add((row + r) * depth)));
                if layout == Integers::TwoBytes {
                    let low = dot::<U, SIGNED>(weights, U::load(x.add((rows + row + r) * depth)));
                    product = U::mul_add(low, U::splat(RESIDUAL), product);
                }
                let scales = self.products.add(r * (LINE / GROUP));
                let scale = if GROUP == CHUNK {
                    U::splat(*scales.add(chunk))
                } else {
                    U::pair(scales.add(2 * chunk))
                };
                sums[r] = U::mul_add(product, scale, sums[r]);
            }
        }
    }
}

/// Sums of four products of weights and signed bytes. A function, since closures do not have the unit's instructions.
///
/// # Safety
/// The machine has the unit.
#[inline(always)]
unsafe fn dot<U: Unpack, const SIGNED: bool>(weights: U::Bytes, x: U::Bytes) -> U::Floats {
    // SAFETY: as the caller promises.
    unsafe { if SIGNED { U::dot_signed(weights, x) } else { U::dot(weights, x) } }
}
