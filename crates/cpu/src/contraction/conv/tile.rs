//! The register tile of convolutions by channels.
//!
//! The lanes of a vector are channels of the result; the rows of a tile are positions, each with its own source
//! pointer. Each step broadcasts one element per row and multiplies it by one or a few vectors of weights. The source
//! is read in place: there is no im2col copy.

use crate::contraction::simd::{Float, Kernel, Simd};

/// The maximum number of rows of a tile.
pub(super) const MAX_ROWS: usize = 12;

/// The sums of a block: `sums[r][l] = Σ_k source[rows[r] + steps[k]] · weights[k][l]`, for `l` in the lanes of
/// `vectors` vectors. With `accumulate`, adds to the contents of `sums`.
pub(super) struct Tiles<'a, T> {
    pub(super) source: *const T,
    pub(super) rows: &'a [usize],
    pub(super) steps: &'a [usize],
    /// `[steps, vectors * lanes]`.
    pub(super) weights: *const T,
    pub(super) vectors: usize,
    /// `[rows, vectors * lanes]`, with room for the number of rows rounded up to whole tiles.
    pub(super) sums: *mut T,
    pub(super) accumulate: bool,
}

/// The maximum number of vectors per row.
pub(super) const MAX_VECTORS: usize = 4;

impl<T: Float> Kernel<T> for Tiles<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        // SAFETY: the caller upholds the conditions. The number of rows is limited by vector registers for sums and by
        // general registers for pointers.
        unsafe {
            match (S::REGISTERS, self.vectors) {
                (32, 1) => self.all::<S, 12, 1>(),
                (32, 2) => self.all::<S, 8, 2>(),
                (32, 3) => self.all::<S, 8, 3>(),
                (32, _) => self.all::<S, 6, 4>(),
                (_, 1) => self.all::<S, 6, 1>(),
                (_, 2) => self.all::<S, 6, 2>(),
                (_, 3) => self.all::<S, 4, 3>(),
                (_, _) => self.all::<S, 3, 4>(),
            }
        }
    }
}

impl<T: Float> Tiles<'_, T> {
    #[inline(always)]
    unsafe fn all<S: Simd<T>, const ROWS: usize, const VECTORS: usize>(self) {
        let width = VECTORS * S::LANES;
        for (tile, rows) in self.rows.chunks(ROWS).enumerate() {
            // The last tile repeats its last row; the caller's buffer has room for these sums.
            let last = rows.len() - 1;
            let mut sources = [self.source; ROWS];
            for r in 0..ROWS {
                sources[r] = self.source.wrapping_add(rows[r.min(last)]);
            }
            // SAFETY: the caller upholds the conditions.
            unsafe {
                let sums = self.sums.add(tile * ROWS * width);
                self.tile::<S, ROWS, VECTORS>(sources, sums);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<S: Simd<T>, const ROWS: usize, const VECTORS: usize>(
        &self,
        sources: [*const T; ROWS],
        sums: *mut T,
    ) {
        // SAFETY: every source plus every step is within the padded source; weights and sums have the sizes that their
        // fields state.
        unsafe {
            let mut acc = [[S::splat(T::ZERO); VECTORS]; ROWS];
            if self.accumulate {
                for r in 0..ROWS {
                    for v in 0..VECTORS {
                        acc[r][v] = S::load(sums.add((r * VECTORS + v) * S::LANES));
                    }
                }
            }
            let mut weights = self.weights;
            for &step in self.steps {
                let mut w = [S::splat(T::ZERO); VECTORS];
                for v in 0..VECTORS {
                    w[v] = S::load(weights.add(v * S::LANES));
                }
                for r in 0..ROWS {
                    let x = S::splat(*sources[r].add(step));
                    for v in 0..VECTORS {
                        acc[r][v] = S::mul_add(x, w[v], acc[r][v]);
                    }
                }
                weights = weights.add(VECTORS * S::LANES);
            }
            for r in 0..ROWS {
                for v in 0..VECTORS {
                    S::store(sums.add((r * VECTORS + v) * S::LANES), acc[r][v]);
                }
            }
        }
    }
}

/// The shape of the vector unit of a level: lanes and registers.
pub(super) struct Unit;

impl<T: Float> Kernel<T> for Unit {
    type Output = (usize, usize);

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) -> (usize, usize) {
        (S::LANES, S::REGISTERS)
    }
}
