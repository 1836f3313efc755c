//! The convolution kernel without packing: a strip of adjacent positions times some channels.
//!
//! The lanes of a vector are adjacent positions, loaded from the source in place. The rows of a tile are channels of
//! the result, whose weights are broadcast from the user's tensor. Nothing is packed or transposed, and results are
//! written in their own layout.

use crate::contraction::simd::{Float, Kernel, Simd};

/// Vectors of a full strip.
pub(super) const VECTORS: usize = 3;

/// Vectors of a full strip of one or two channels, whose few accumulators would otherwise be latency-bound.
pub(super) const WIDE: usize = 6;

/// `target[r][p] = Σ_k weights[r][k] * source[offsets[k] + p]`.
pub(super) struct Strip<'a, T> {
    /// The source pointer of position 0 for an offset of 0.
    pub(super) source: *const T,
    pub(super) offsets: &'a [usize],
    /// `[rows, offsets.len()]`, with this row stride.
    pub(super) weights: *const T,
    pub(super) weight_row: usize,
    /// The number of channels.
    pub(super) rows: usize,
    /// The masked store of each vector, up to [`VECTORS`] vectors; up to [`WIDE`] with at most two channels.
    pub(super) places: &'a [MaskedStore],
    /// The result, with this channel stride.
    pub(super) target: *mut T,
    pub(super) target_row: usize,
}

/// The lanes of a vector that are elements of the result, and the offset of the first of them within a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MaskedStore {
    pub(super) lanes: u32,
    pub(super) start: usize,
}

impl<T: Float> Kernel<T> for Strip<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        // SAFETY: the caller upholds the conditions.
        unsafe {
            match self.places.len() {
                0 => {}
                1 => self.channels::<S, 1>(),
                2 => self.channels::<S, 2>(),
                VECTORS => self.channels::<S, VECTORS>(),
                4 => self.few::<S, 4>(),
                5 => self.few::<S, 5>(),
                _ => self.few::<S, WIDE>(),
            }
        }
    }
}

impl<T: Float> Strip<'_, T> {
    #[inline(always)]
    unsafe fn channels<S: Simd<T>, const V: usize>(&self) {
        let mut row = 0;
        // SAFETY: rows of the weight and of the result.
        unsafe {
            // The sums of eight rows need 24 registers.
            while S::REGISTERS == 32 && row + 8 <= self.rows {
                self.tile::<S, 8, V>(row);
                row += 8;
            }
            while row + 4 <= self.rows {
                self.tile::<S, 4, V>(row);
                row += 4;
            }
            if row + 2 <= self.rows {
                self.tile::<S, 2, V>(row);
                row += 2;
            }
            if row < self.rows {
                self.tile::<S, 1, V>(row);
            }
        }
    }

    /// Computes one or two channels.
    #[inline(always)]
    unsafe fn few<S: Simd<T>, const V: usize>(&self) {
        // SAFETY: as many rows.
        unsafe {
            if self.rows == 2 {
                self.tile::<S, 2, V>(0);
            } else {
                self.tile::<S, 1, V>(0);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<S: Simd<T>, const R: usize, const V: usize>(&self, row: usize) {
        // SAFETY: every offset plus the strip is within the source; weights and result have the sizes that their fields
        // state.
        unsafe {
            let mut weights = [self.weights; R];
            for r in 0..R {
                weights[r] = self.weights.add((row + r) * self.weight_row);
            }
            let mut acc = [[S::splat(T::ZERO); V]; R];
            for (k, &offset) in self.offsets.iter().enumerate() {
                let source = self.source.add(offset);
                let mut x = [S::splat(T::ZERO); V];
                for v in 0..V {
                    x[v] = S::load(source.add(v * S::LANES));
                }
                for r in 0..R {
                    let weight = S::splat(*weights[r].add(k));
                    for v in 0..V {
                        acc[r][v] = S::mul_add(x[v], weight, acc[r][v]);
                    }
                }
            }
            let all = (1u32 << S::LANES) - 1;
            for v in 0..V {
                let MaskedStore { lanes, start } = self.places[v];
                let target = self.target.add(row * self.target_row + start);
                for r in 0..R {
                    if lanes == all {
                        S::store(target.add(r * self.target_row), acc[r][v]);
                    } else {
                        S::store_lanes(target.add(r * self.target_row), acc[r][v], lanes);
                    }
                }
            }
        }
    }
}
