//! Rounding of activations to signed bytes.

use super::format::CHUNK;
use crate::contraction::scratch::{Plain, Scratch};
use crate::copy::Shared;
use crate::isa::{Level, Widest, multiversion};
use crate::threads::Pool;

/// The largest magnitude of an integer.
const LARGEST: f32 = 127.0;

/// Chunks whose elements are all below this magnitude are rounded to 0: the reciprocal of their scale would be infinite.
const TINY: f32 = 128.0 * f32::MIN_POSITIVE;

/// Adding this rounds to an integer, to nearest with ties to even: it is then in the low bits.
const ROUNDS: f32 = 12_582_912.0;

/// The minimum elements per task.
const GRAIN: usize = 1 << 15;

/// Rows of activations as integers, with a scale for each chunk of 32 elements.
pub(super) struct Activations {
    rows: usize,
    depth: usize,
    /// Floats of a row of scales or sums: one for each group of the weights, padded with zeros to whole vectors.
    stride: usize,
    integers: Integers,
    scales: Scratch<f32>,
    sums: Scratch<f32>,
}

enum Integers {
    Bytes(Scratch<i8>),
    /// The same numbers, as the operands of products of 16-bit integers.
    Pairs(Scratch<i16>),
}

/// The addresses of [`Activations`], for kernels.
#[derive(Clone, Copy)]
pub(super) struct Rounded {
    pub(super) rows: usize,
    pub(super) depth: usize,
    pub(super) stride: usize,
    /// `[rows, depth]`: bytes, or 16-bit integers.
    pub(super) integers: Shared<u8>,
    /// `[rows, stride]`: the scale of the chunk of each group.
    pub(super) scales: Shared<f32>,
    /// `[rows, stride]`: the sum of the rounded activations of each group.
    pub(super) sums: Shared<f32>,
}

impl Activations {
    /// Rounds `[rows, depth]` floats. Groups of weights have `group` elements, 16 or 32.
    ///
    /// # Safety
    /// The floats may be read.
    pub(super) unsafe fn new(
        level: Level,
        pool: &Pool,
        [rows, depth]: [usize; 2],
        x: *const f32,
        group: usize,
        pairs: bool,
    ) -> Activations {
        let stride = (depth / group).next_multiple_of(8);
        let integers = if pairs {
            Integers::Pairs(Scratch::new(rows * depth))
        } else {
            Integers::Bytes(Scratch::new(rows * depth))
        };
        let (scales, sums) = (Scratch::new(rows * stride), Scratch::new(rows * stride));
        let mut activations = Activations { rows, depth, stride, integers, scales, sums };
        let to = activations.rounded();
        let x = Shared::new(x.cast_mut());
        pool.parallel_for(rows, GRAIN.div_ceil(depth.max(1)), |range| {
            for row in range {
                // SAFETY: each row is written once.
                unsafe {
                    let from = core::slice::from_raw_parts(x.get().cast_const().add(row * depth), depth);
                    let scales = core::slice::from_raw_parts_mut(to.scales.get().add(row * stride), stride);
                    let sums = core::slice::from_raw_parts_mut(to.sums.get().add(row * stride), stride);
                    if pairs {
                        let to = to.integers.get().cast::<i16>().add(row * depth);
                        round_row(
                            level,
                            from,
                            core::slice::from_raw_parts_mut(to, depth),
                            group,
                            scales,
                            sums,
                        );
                    } else {
                        let to = to.integers.get().cast::<i8>().add(row * depth);
                        round_row(
                            level,
                            from,
                            core::slice::from_raw_parts_mut(to, depth),
                            group,
                            scales,
                            sums,
                        );
                    }
                }
            }
        });
        activations
    }

    /// The addresses, which are valid as long as the value lives.
    pub(super) fn rounded(&mut self) -> Rounded {
        let integers = match &mut self.integers {
            Integers::Bytes(bytes) => bytes.as_mut_ptr().cast(),
            Integers::Pairs(pairs) => pairs.as_mut_ptr().cast(),
        };
        Rounded {
            rows: self.rows,
            depth: self.depth,
            stride: self.stride,
            integers: Shared::new(integers),
            scales: Shared::new(self.scales.as_mut_ptr()),
            sums: Shared::new(self.sums.as_mut_ptr()),
        }
    }
}

/// An integer type that holds signed bytes.
trait Holds: Plain {
    fn from_byte(byte: i8) -> Self;
}

impl Holds for i8 {
    #[inline(always)]
    fn from_byte(byte: i8) -> i8 {
        byte
    }
}

impl Holds for i16 {
    #[inline(always)]
    fn from_byte(byte: i8) -> i16 {
        i16::from(byte)
    }
}

multiversion! {
    /// Rounds a row, and writes the scale and the sum of each group.
    fn round_row[N: Holds]<N> in { Widest::Avx512 } (
        from: &[f32],
        to: &mut [N],
        group: usize,
        scales: &mut [f32],
        sums: &mut [f32],
    ) {
        let per_chunk = CHUNK / group;
        let mut at = 0;
        for (from, to) in from.as_chunks::<CHUNK>().0.iter().zip(to.as_chunks_mut::<CHUNK>().0) {
            // The order of magnitudes is that of their bits, with infinities and NaN above all numbers.
            let mut largest = 0;
            for x in from {
                largest = (x.to_bits() & 0x7fff_ffff).max(largest);
            }
            let largest = f32::from_bits(largest);
            let (scale, inverse) = if !largest.is_finite() {
                (f32::NAN, 0.0)
            } else if largest < TINY {
                (0.0, 0.0)
            } else {
                (largest / LARGEST, LARGEST / largest)
            };
            let mut halves = [0i32; 2];
            for half in 0..2 {
                for i in 16 * half..16 * half + 16 {
                    let byte = (from[i] * inverse + ROUNDS).to_bits() as i8;
                    to[i] = N::from_byte(byte);
                    halves[half] += i32::from(byte);
                }
            }
            if per_chunk == 1 {
                scales[at] = scale;
                sums[at] = scale * (halves[0] + halves[1]) as f32;
            } else {
                scales[at..at + 2].fill(scale);
                sums[at] = scale * halves[0] as f32;
                sums[at + 1] = scale * halves[1] as f32;
            }
            at += per_chunk;
        }
        scales[at..].fill(0.0);
        sums[at..].fill(0.0);
    }
}
