//! A few rows of activations times blocks of weights, which are unpacked in registers: bound by memory bandwidth.

use super::BlockRows;
use super::activations::{Activations, Rounded};
use super::format::{CHUNK, Format};
use super::unit::{BlockWork, Machine, Tile, Unpack};
use crate::contraction::scratch::Scratch;
use crate::copy::Shared;
use crate::threads::Pool;
use core::ops::Range;

/// The minimum weights per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 17;

/// Rows of activations that are multiplied together.
const ROWS: usize = 4;

/// Chunks per step: those of a block of 256 elements.
const STEP: usize = 8;

/// The distance in bytes of the weights that are asked for ahead.
const AHEAD: usize = 1024;

/// `c = x · weightsᵀ` for `n` rows of weights.
///
/// # Safety
/// As [`super::matmul_blocks`]; the activations are bytes.
pub(super) unsafe fn multiply(
    machine: Machine,
    pool: &Pool,
    x: &mut Activations,
    weights: BlockRows,
    n: usize,
    c: *mut f32,
) {
    let (x, c) = (x.rounded(), Shared::new(c));
    pool.parallel_for(n, GRAIN.div_ceil(x.depth.max(1)), |columns| {
        // SAFETY: as the caller promises; each column is computed once.
        unsafe { machine.run_blocks(weights.format, Gemv { x, weights, columns, n, c }) };
    });
}

/// Computes some columns of the result.
struct Gemv {
    x: Rounded,
    weights: BlockRows,
    columns: Range<usize>,
    n: usize,
    c: Shared<f32>,
}

/// A row of weights, with unpacked scales and minima.
#[derive(Clone, Copy)]
struct Row {
    start: *const u8,
    scales: *const f32,
    minima: *const f32,
    /// Memory for the products of the scales of both sides: a row of groups for each row of activations.
    products: *mut f32,
}

impl BlockWork for Gemv {
    #[inline(always)]
    unsafe fn run<U: Unpack + Tile, F: Format>(self) {
        let Rounded { rows, depth, stride, .. } = self.x;
        let mut scratch = Scratch::<f32>::new(stride * (2 + ROWS));
        // The padding is added to sums.
        scratch.as_mut_slice()[..2 * stride].fill(0.0);
        let scales = scratch.as_mut_ptr();
        // SAFETY: as the caller promises; the scratch memory has room for all groups.
        unsafe {
            let (minima, products) = (scales.add(stride), scales.add(2 * stride));
            for column in self.columns.clone() {
                let start = self.weights.row(column);
                F::scales::<U>(start, depth / F::FORMAT.len(), scales, minima);
                let row = Row { start, scales, minima, products };
                let mut first = 0;
                while first + 4 <= rows {
                    self.dot::<U, F, 4, 1>(row, column, first);
                    first += 4;
                }
                if first + 2 <= rows {
                    self.dot::<U, F, 2, 2>(row, column, first);
                    first += 2;
                }
                if first < rows {
                    self.dot::<U, F, 1, 4>(row, column, first);
                }
            }
        }
    }
}

/// Repeats statements for each chunk of a step, with a constant.
macro_rules! for_step {
    ($chunk:ident, $body:block) => {
        for_step!($chunk, $body, 0, 1, 2, 3, 4, 5, 6, 7)
    };
    ($chunk:ident, $body:block, $($value:literal),*) => {$({
        let $chunk: usize = $value;
        $body
    })*};
}

impl Gemv {
    /// The dot products of a row of weights and `R` rows of activations, with `A` sums of each.
    ///
    /// # Safety
    /// As [`Machine::run_blocks`].
    #[inline(always)]
    unsafe fn dot<U: Unpack, F: Format, const R: usize, const A: usize>(
        &self,
        row: Row,
        column: usize,
        first: usize,
    ) {
        let Rounded { depth, stride, .. } = self.x;
        let chunks = depth / CHUNK;
        // SAFETY: as the caller promises.
        unsafe {
            let x = self.x.integers.get().cast_const().add(first * depth);
            let mut sums = [[U::splat(0.0); R]; A];
            self.start::<U, F, R>(row, first, &mut sums[0]);
            for step in 0..chunks / STEP {
                for_step!(i, {
                    let chunk = step * STEP + i;
                    let (block, within) =
                        if F::CHUNKS == 1 { (chunk, 0) } else { (step * (STEP / F::CHUNKS), i) };
                    let block = row.start.add(block * F::BYTES);
                    if i.is_multiple_of(2) {
                        U::prefetch(block.wrapping_add(AHEAD + within * F::BYTES / F::CHUNKS));
                    }
                    let integers = F::integers::<U>(block, within);
                    self.add_chunk::<U, F, R>(integers, x, chunk, row.products, &mut sums[i % A]);
                });
            }
            // Only formats with a chunk per block have chunks beyond whole steps.
            for chunk in chunks / STEP * STEP..chunks {
                let integers = F::integers::<U>(row.start.add(chunk * F::BYTES), 0);
                self.add_chunk::<U, F, R>(integers, x, chunk, row.products, &mut sums[0]);
            }
            for r in 0..R {
                let mut total = sums[0][r];
                for a in 1..A {
                    total = U::add(total, sums[a][r]);
                }
                *self.c.get().add((first + r) * self.n + column) = U::sum(total);
            }
        }
        debug_assert!(stride >= depth / F::GROUP);
    }

    /// Multiplies the scales of both sides, and adds the minima times the sums of activations.
    ///
    /// # Safety
    /// As [`dot`](Gemv::dot).
    #[inline(always)]
    unsafe fn start<U: Unpack, F: Format, const R: usize>(
        &self,
        row: Row,
        first: usize,
        sums: &mut [U::Floats; R],
    ) {
        let stride = self.x.stride;
        for at in (0..stride).step_by(8) {
            // SAFETY: as the caller promises; rows of groups are padded to whole vectors.
            unsafe {
                let scale = U::floats(row.scales.add(at));
                for r in 0..R {
                    let from = (first + r) * stride + at;
                    let product = U::mul(scale, U::floats(self.x.scales.get().add(from)));
                    U::store_floats(row.products.add(r * stride + at), product);
                    if F::MINIMA {
                        let sum = U::floats(self.x.sums.get().add(from));
                        sums[r] = U::mul_add(U::floats(row.minima.add(at)), sum, sums[r]);
                    }
                }
            }
        }
    }

    /// Adds the products of a chunk.
    ///
    /// # Safety
    /// As [`dot`](Gemv::dot).
    #[inline(always)]
    unsafe fn add_chunk<U: Unpack, F: Format, const R: usize>(
        &self,
        integers: U::Bytes,
        x: *const u8,
        chunk: usize,
        products: *const f32,
        sums: &mut [U::Floats; R],
    ) {
        let Rounded { depth, stride, .. } = self.x;
        for r in 0..R {
            // SAFETY: as the caller promises.
            unsafe {
                let x = U::load(x.add(r * depth + chunk * CHUNK));
                let product =
                    if F::CLASS.signed() { U::dot_signed(integers, x) } else { U::dot(integers, x) };
                let scale = if F::GROUP == CHUNK {
                    U::splat(*products.add(r * stride + chunk))
                } else {
                    U::pair(products.add(r * stride + 2 * chunk))
                };
                sums[r] = U::mul_add(product, scale, sums[r]);
            }
        }
    }
}
