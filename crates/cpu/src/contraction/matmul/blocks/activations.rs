//! Rounding of activations to integers of one or two bytes.

use super::format::CHUNK;
use crate::contraction::scratch::Scratch;
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

/// Units of the second byte of an activation in a scale: half a scale is 127 of them.
const RESIDUALS: f32 = 254.0;

/// The unit of the second byte of an activation, in scales.
pub(super) const RESIDUAL: f32 = 1.0 / RESIDUALS;

/// Rows of activations as integers, with a scale for each chunk of 32 elements.
pub(super) struct Activations {
    rows: usize,
    depth: usize,
    /// Floats of a row of scales or sums: one for each group of the weights, padded with zeros to whole vectors.
    stride: usize,
    layout: Integers,
    bytes: Scratch<u8>,
    scales: Scratch<f32>,
    sums: Scratch<f32>,
}

/// The precision of activations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Precision {
    /// A signed byte.
    OneByte,
    /// A signed byte, and a second one: the rest in units of [`RESIDUAL`].
    TwoBytes,
}

/// The integers of activations in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Integers {
    /// The first bytes, `[rows, depth]`.
    Bytes,
    /// First and second bytes, `[2, rows, depth]`.
    TwoBytes,
    /// Both bytes as one 16-bit integer in units of [`RESIDUAL`], `[rows, depth]`: an operand of products of pairs.
    Pairs,
}

/// The addresses of [`Activations`], for kernels.
#[derive(Clone, Copy)]
pub(super) struct Rounded {
    pub(super) rows: usize,
    pub(super) depth: usize,
    pub(super) stride: usize,
    /// The integers, and their layout.
    pub(super) integers: Shared<u8>,
    pub(super) layout: Integers,
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
        (precision, layout): (Precision, Integers),
    ) -> Activations {
        let stride = (depth / group).next_multiple_of(8);
        let bytes = if layout == Integers::Bytes { rows * depth } else { 2 * rows * depth };
        let (scales, sums) = (Scratch::new(rows * stride), Scratch::new(rows * stride));
        let bytes = Scratch::new(bytes);
        let mut activations = Activations { rows, depth, stride, layout, bytes, scales, sums };
        let to = activations.rounded();
        let x = Shared::new(x.cast_mut());
        pool.parallel_for(rows, GRAIN.div_ceil(depth.max(1)), |range| {
            for row in range {
                // SAFETY: each row is written once.
                unsafe {
                    let from = core::slice::from_raw_parts(x.get().cast_const().add(row * depth), depth);
                    let scales = core::slice::from_raw_parts_mut(to.scales.get().add(row * stride), stride);
                    let sums = core::slice::from_raw_parts_mut(to.sums.get().add(row * stride), stride);
                    let chunks = depth / CHUNK;
                    let bytes = |first: usize| {
                        let start = to.integers.get().add((first + row) * depth).cast::<[i8; CHUNK]>();
                        core::slice::from_raw_parts_mut(start, chunks)
                    };
                    let to = match layout {
                        Integers::Bytes => Row::Bytes(bytes(0)),
                        Integers::TwoBytes => Row::TwoBytes(bytes(0), bytes(rows)),
                        Integers::Pairs => {
                            let start = to.integers.get().add(2 * row * depth).cast::<[i16; CHUNK]>();
                            Row::Pairs(core::slice::from_raw_parts_mut(start, chunks))
                        }
                    };
                    round_row(level, from, precision, to, group, scales, sums);
                }
            }
        });
        activations
    }

    /// The addresses, which are valid as long as the value lives.
    pub(super) fn rounded(&mut self) -> Rounded {
        Rounded {
            rows: self.rows,
            depth: self.depth,
            stride: self.stride,
            integers: Shared::new(self.bytes.as_mut_ptr()),
            layout: self.layout,
            scales: Shared::new(self.scales.as_mut_ptr()),
            sums: Shared::new(self.sums.as_mut_ptr()),
        }
    }
}

/// The integers of a row, by chunks: see [`Integers`].
enum Row<'a> {
    Bytes(&'a mut [[i8; CHUNK]]),
    TwoBytes(&'a mut [[i8; CHUNK]], &'a mut [[i8; CHUNK]]),
    Pairs(&'a mut [[i16; CHUNK]]),
}

impl Row<'_> {
    /// Writes the bytes of a chunk.
    #[inline(always)]
    fn write(&mut self, chunk: usize, first: &[i8; CHUNK], second: &[i8; CHUNK]) {
        match self {
            Row::Bytes(to) => to[chunk] = *first,
            Row::TwoBytes(to, rest) => (to[chunk], rest[chunk]) = (*first, *second),
            Row::Pairs(to) => {
                for i in 0..CHUNK {
                    to[chunk][i] = i16::from(first[i]) * RESIDUALS as i16 + i16::from(second[i]);
                }
            }
        }
    }
}

/// The scale of a chunk, and its reciprocal.
#[inline(always)]
fn scale_of(chunk: &[f32; CHUNK]) -> [f32; 2] {
    // The order of magnitudes is that of their bits, with infinities and NaN above all numbers.
    let mut largest = 0;
    for x in chunk {
        largest = (x.to_bits() & 0x7fff_ffff).max(largest);
    }
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        [f32::NAN, 0.0]
    } else if largest < TINY {
        [0.0, 0.0]
    } else {
        [largest / LARGEST, LARGEST / largest]
    }
}

/// Writes the scale and the sum of each group of a chunk, from the sums of its halves in units of the scale.
#[inline(always)]
fn write_groups(scale: f32, halves: [f32; 2], scales: &mut [f32], sums: &mut [f32]) {
    scales.fill(scale);
    if let [first, second] = sums {
        *first = scale * halves[0];
        *second = scale * halves[1];
    } else {
        sums[0] = scale * (halves[0] + halves[1]);
    }
}

multiversion! {
    /// Rounds a row, and writes the scale and the sum of each group.
    fn round_row[]<> in { Widest::Avx512 } (
        from: &[f32],
        precision: Precision,
        to: Row<'_>,
        group: usize,
        scales: &mut [f32],
        sums: &mut [f32],
    ) {
        let mut to = to;
        let per_chunk = CHUNK / group;
        let residuals = if precision == Precision::TwoBytes { RESIDUALS } else { 0.0 };
        let mut at = 0;
        for (chunk, from) in from.as_chunks::<CHUNK>().0.iter().enumerate() {
            let [scale, inverse] = scale_of(from);
            let (mut first, mut second) = ([0i8; CHUNK], [0i8; CHUNK]);
            let mut halves = [[0i32; 2]; 2];
            for half in 0..2 {
                for i in 16 * half..16 * half + 16 {
                    let x = from[i] * inverse;
                    let nearest = x + ROUNDS;
                    let rest = (x - (nearest - ROUNDS)) * residuals + ROUNDS;
                    first[i] = nearest.to_bits() as i8;
                    second[i] = rest.to_bits() as i8;
                    halves[half][0] += i32::from(first[i]);
                    halves[half][1] += i32::from(second[i]);
                }
            }
            to.write(chunk, &first, &second);
            let halves = halves.map(|[first, second]| first as f32 + second as f32 * RESIDUAL);
            let range = at..at + per_chunk;
            write_groups(scale, halves, &mut scales[range.clone()], &mut sums[range]);
            at += per_chunk;
        }
        scales[at..].fill(0.0);
        sums[at..].fill(0.0);
    }
}
