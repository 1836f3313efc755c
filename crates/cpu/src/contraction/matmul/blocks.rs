//! Matmul with blocks of quantised weights, and their expansion to floats.
//!
//! Activations are rounded to integers, with an `f32` scale for each 32 elements of a row. Products are then sums of
//! products of small integers, times the scales of both sides; everything else is exact, up to rounding of `f32` sums.
//!
//! An integer has two bytes: one moves the logits of a small language model by more than the margin between two tokens.
//! One byte is an option, [`Cpu::with_int8_activations`](crate::Cpu::with_int8_activations). The numbers that are
//! multiplied do not depend on the number of rows, so a row has the same result beside other rows, up to rounding of
//! `f32` sums.
//!
//! With a few rows each weight is unpacked for a few products: [`gemv`] does that row by row. With many rows [`gemm`] packs
//! panels of weights in the L1 cache, as integers in the order of a register tile. Both multiply first and second bytes one
//! after the other, or the 16-bit integers of both where a machine multiplies those.
//!
//! A row of activations that contains a NaN or an infinity gives NaN in all its results, since the rounding of 32
//! elements has one scale.

mod activations;
mod expand;
mod format;
mod gemm;
mod gemv;
mod machine;
mod operands;
#[cfg(test)]
mod tests;
mod unit;

pub(in crate::contraction) use operands::{doubles, expanded, singles};

use crate::isa::Level;
use crate::threads::Pool;
use activations::{Activations, Integers, Precision};
use expand::dequantize_blocks;
use kiln_ir::BlockFormat;
use machine::Machine;

/// Rows of blocks: weights `[n, k]`.
#[derive(Clone, Copy)]
struct BlockRows {
    /// The first block of the first row, at any address.
    start: *const u8,
    /// Bytes between the starts of rows.
    row_bytes: usize,
    /// The format.
    format: BlockFormat,
}

// SAFETY: an address and a number; accesses through it are unsafe.
unsafe impl Send for BlockRows {}
// SAFETY: as above.
unsafe impl Sync for BlockRows {}

impl BlockRows {
    /// The block of a row that starts with this element.
    #[inline(always)]
    fn block(&self, row: usize, element: usize) -> *const u8 {
        let within = element / self.format.len() * self.format.bytes();
        self.start.wrapping_add(row * self.row_bytes + within)
    }
}

/// The maximum number of rows that are multiplied with one row of weights at a time.
const MAX_GEMV_ROWS: usize = 8;

/// `c = x · weightsᵀ` for contiguous row-major matrices, `[m, k] x [n, k] -> [m, n]`, multithreaded if worthwhile. `k` is
/// a multiple of the format's block length. Results do not depend on the number of threads.
///
/// # Safety
/// Operands and result have these sizes and no other users meanwhile; the result overlaps no operand.
unsafe fn matmul_blocks(
    level: Level,
    pool: &Pool,
    precision: Precision,
    [m, k, n]: [usize; 3],
    x: *const f32,
    weights: BlockRows,
    c: *mut f32,
) {
    debug_assert!(k.is_multiple_of(weights.format.len()));
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        // SAFETY: as the caller promises.
        return unsafe { core::slice::from_raw_parts_mut(c, m * n) }.fill(0.0);
    }
    let class = format::class_of(weights.format);
    let machine = Machine::of(level);
    // SAFETY: as the caller promises.
    unsafe {
        let has_pairs = m > MAX_GEMV_ROWS && machine.pairs(class.signed());
        let integers = match (has_pairs, precision) {
            (true, Precision::OneByte | Precision::TwoBytes) => Integers::Pairs,
            (false, Precision::OneByte) => Integers::Bytes,
            (false, Precision::TwoBytes) => Integers::TwoBytes,
        };
        let mut x = Activations::new(level, pool, [m, k], x, class.group(), (precision, integers));
        if m > MAX_GEMV_ROWS {
            gemm::multiply(machine, pool, &mut x, weights, n, c);
        } else {
            gemv::multiply(machine, pool, &mut x, weights, n, c);
        }
    }
}
