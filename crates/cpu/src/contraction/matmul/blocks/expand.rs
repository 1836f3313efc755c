//! Expansion of blocks to floats.

use super::BlockRows;
use super::format::{CHUNK, Class, LINE, Line, class_of};
use super::machine::Machine;
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
        let (mut line, mut floats) = (Line::new(LINE), Scratch::<f32>::new(LINE));
        for row in range {
            for first in (0..columns).step_by(LINE) {
                let floats = &mut floats.as_mut_slice()[..LINE.min(columns - first)];
                // SAFETY: as the caller promises; each part is written once.
                unsafe {
                    expand(level, weights, [row, first], &mut line, floats);
                    let to = to.get().add(row * columns + first);
                    T::round(level, floats, core::slice::from_raw_parts_mut(to, floats.len()));
                }
            }
        }
    });
}

/// Expands the elements of a row from `first` on.
///
/// # Safety
/// The blocks may be read.
unsafe fn expand(
    level: Level,
    weights: BlockRows,
    [row, first]: [usize; 2],
    line: &mut Line,
    to: &mut [f32],
) {
    let class = class_of(weights.format);
    let (count, groups) = (to.len() / weights.format.len(), to.len() / class.group());
    let from = line.unpacked();
    // SAFETY: as the caller promises; unpacking writes an integer for each element, and the floats of each group.
    unsafe {
        Machine::of(level).unpack(weights.format, weights.block(row, first), count, from);
        let integers = core::slice::from_raw_parts(from.integers, to.len());
        let scales = core::slice::from_raw_parts(from.scales, groups);
        if class.signed() {
            scale_signed(level, integers, scales, to);
        } else {
            let minima = core::slice::from_raw_parts(from.minima, groups);
            scale_unsigned(level, integers, scales, minima, class, to);
        }
    }
}

multiversion! {
    /// Signed integers times the scales of their groups.
    fn scale_signed[]<> in { Widest::Avx2 } (integers: &[u8], scales: &[f32], to: &mut [f32]) {
        let integers = integers.as_chunks::<CHUNK>().0;
        for ((to, integers), scale) in to.as_chunks_mut::<CHUNK>().0.iter_mut().zip(integers).zip(scales) {
            for i in 0..CHUNK {
                to[i] = f32::from(integers[i] as i8) * scale;
            }
        }
    }

    /// Integers times the scales of their groups, plus the minima.
    fn scale_unsigned[]<> in { Widest::Avx2 } (
        integers: &[u8],
        scales: &[f32],
        minima: &[f32],
        class: Class,
        to: &mut [f32],
    ) {
        let group = class.group();
        let lines = to.chunks_exact_mut(group).zip(integers.chunks_exact(group));
        for ((to, integers), (scale, minimum)) in lines.zip(scales.iter().zip(minima)) {
            for (to, &integer) in to.iter_mut().zip(integers) {
                // Two roundings, as the format is defined.
                let product = f32::from(integer) * scale;
                *to = product + minimum;
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
