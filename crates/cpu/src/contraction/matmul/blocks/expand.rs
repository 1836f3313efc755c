//! Expansion of blocks to floats.

use super::BlockRows;
use super::format::{CHUNK, Format};
use super::unit::{BlockWork, Machine, Tile, Unpack};
use crate::contraction::scratch::Scratch;
use crate::copy::Shared;
use crate::half_float::HalfFloat;
use crate::isa::{Level, Widest, multiversion};
use crate::threads::Pool;
use half::{bf16, f16};

/// The minimum weights per task.
const GRAIN: usize = 1 << 16;

/// A float type to which `f32` numbers are rounded.
pub(super) trait FromSingle: Copy {
    /// Rounds the numbers of a row.
    fn round(level: Level, from: &[f32], to: &mut [Self]);
}

/// Expands `rows` of `columns` weights to a contiguous row-major matrix. Numbers are exact before they are rounded to
/// the type. `columns` is a multiple of the format's block length.
///
/// # Safety
/// Blocks and result have these sizes and no other users meanwhile, and do not overlap.
pub(super) unsafe fn dequantize_blocks<T: FromSingle>(
    level: Level,
    pool: &Pool,
    [rows, columns]: [usize; 2],
    weights: BlockRows,
    to: *mut T,
) {
    debug_assert!(columns.is_multiple_of(weights.format.len()));
    let to = Shared::new(to);
    pool.parallel_for(rows, GRAIN.div_ceil(columns.max(1)), |range| {
        let mut line = Scratch::<f32>::new(columns);
        for row in range {
            // SAFETY: as the caller promises; each row is written once.
            unsafe {
                let expand = Expand { weights, row, columns, to: line.as_mut_ptr() };
                Machine::of(level).run_blocks(weights.format, expand);
                let to = core::slice::from_raw_parts_mut(to.get().add(row * columns), columns);
                T::round(level, line.as_mut_slice(), to);
            }
        }
    });
}

/// Expands a row.
struct Expand {
    weights: BlockRows,
    row: usize,
    columns: usize,
    to: *mut f32,
}

impl BlockWork for Expand {
    #[inline(always)]
    unsafe fn run<U: Unpack + Tile, F: Format>(self) {
        let mut scales = [0.0f32; 16];
        let mut minima = [0.0f32; 16];
        let row = self.weights.row(self.row);
        for block in 0..self.columns / F::FORMAT.len() {
            // SAFETY: as the caller promises; a block has at most 16 groups.
            unsafe {
                let block_start = row.add(block * F::BYTES);
                F::scales::<U>(block_start, 1, scales.as_mut_ptr(), minima.as_mut_ptr());
                for chunk in 0..F::CHUNKS {
                    let mut bytes = [0u8; CHUNK];
                    U::store(bytes.as_mut_ptr(), F::integers::<U>(block_start, chunk));
                    let to = self.to.add((block * F::CHUNKS + chunk) * CHUNK);
                    for part in 0..CHUNK / F::GROUP {
                        let group = chunk * (CHUNK / F::GROUP) + part;
                        for i in part * F::GROUP..(part + 1) * F::GROUP {
                            let integer = if F::CLASS.signed() {
                                f32::from(bytes[i] as i8)
                            } else {
                                f32::from(bytes[i])
                            };
                            let product = integer * scales[group];
                            *to.add(i) = if F::MINIMA { product + minima[group] } else { product };
                        }
                    }
                }
            }
        }
    }
}

impl FromSingle for f32 {
    fn round(_level: Level, from: &[f32], to: &mut [f32]) {
        to.copy_from_slice(from);
    }
}

impl FromSingle for f64 {
    fn round(_level: Level, from: &[f32], to: &mut [f64]) {
        for (to, &x) in to.iter_mut().zip(from) {
            *to = f64::from(x);
        }
    }
}

impl FromSingle for f16 {
    fn round(level: Level, from: &[f32], to: &mut [f16]) {
        narrow(level, from, to);
    }
}

impl FromSingle for bf16 {
    fn round(level: Level, from: &[f32], to: &mut [bf16]) {
        narrow(level, from, to);
    }
}

multiversion! {
    fn narrow[N: HalfFloat]<N> in { Widest::Avx2 } (from: &[f32], to: &mut [N]) {
        for (to, &x) in to.iter_mut().zip(from) {
            *to = N::narrow(x);
        }
    }
}
