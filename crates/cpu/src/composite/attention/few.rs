//! Attention of a few queries against many keys, as in token-by-token decoding: every key and value is read once,
//! contiguously.

use super::Workspace;
use super::kernel::{LANES, Score, is_fused};
use super::problem::{Block, Heads, KEYS, Problem};
use crate::Cpu;
use crate::contraction::simd::{Kernel, Simd};

/// The maximum number of queries; more queries fill vectors better as lanes.
const MAX_QUERIES: usize = 4;

/// Keys whose dot products with a query are computed together.
const TOGETHER: usize = 4;

/// Whether the block is small, and the elements of each key and value are contiguous.
pub(super) fn suits<T: Score>(problem: &Problem<T>, block: Block) -> bool {
    block.len <= MAX_QUERIES && problem.k.steps()[1] == 1 && problem.v.steps()[1] == 1
}

/// Computes one block of queries against all keys.
///
/// # Safety
/// The block [`suits`]; there is room for everything, and `y` and `lse` have room for its rows.
pub(super) unsafe fn attend<T: Score>(
    cpu: &Cpu,
    problem: &Problem<T>,
    block: Block,
    workspace: &Workspace<T>,
    y: *mut T,
    lse: *mut T,
) {
    let (dim, dim_v, width) = (problem.dim, problem.dim_v, block.width());
    let visible = problem.visible(block);
    let reach = problem.reach(block, &visible);
    // SAFETY: as the caller promises.
    let (queries, y, lse) = unsafe {
        problem.rows(&problem.q, block).straight(dim, workspace.queries, dim, block.len);
        (
            core::slice::from_raw_parts_mut(workspace.queries, block.len * dim),
            core::slice::from_raw_parts_mut(y, block.len * dim_v),
            core::slice::from_raw_parts_mut(lse, block.len),
        )
    };
    let scale = problem.scale * T::LOG2_E;
    queries.iter_mut().for_each(|x| *x *= scale);
    y.fill(T::ZERO);
    let (mut greatest, mut total) = ([T::NEG_INFINITY; MAX_QUERIES], [T::ZERO; MAX_QUERIES]);
    for key in (0..reach).step_by(KEYS) {
        let keys = (reach - key).min(KEYS);
        let row = |heads: &Heads<T>| heads.row(block.batch, problem.kv_head(block), key);
        // SAFETY: as the caller promises.
        unsafe {
            let tile = core::slice::from_raw_parts_mut(workspace.tile, keys * width);
            let (k, k_row) = (row(&problem.k), problem.k.steps()[0]);
            T::dispatch(cpu.level, Dots { queries, dim, k, k_row, tile: &mut *tile, width });
            problem.mask(block, &visible, key, tile, workspace.spare);
            let (v, v_row) = (row(&problem.v), problem.v.steps()[0]);
            let (greatest, total) = (&mut greatest[..block.len], &mut total[..block.len]);
            T::dispatch(cpu.level, Sums { tile, width, v, v_row, y: &mut *y, greatest, total });
        }
    }
    for (i, row) in y.chunks_exact_mut(dim_v.max(1)).enumerate() {
        let masked = total[i] == T::ZERO;
        let factor = if masked { T::ZERO } else { T::ONE / total[i] };
        row.iter_mut().for_each(|y| *y *= factor);
    }
    for (i, lse) in lse.iter_mut().enumerate() {
        let log = greatest[i] * T::LN_2 + total[i].ln();
        *lse = if total[i] == T::ZERO { T::NEG_INFINITY } else { log };
    }
}

/// Computes the scores of each query and each key of a tile, `[keys, width]`.
struct Dots<'a, T> {
    /// `[queries, dim]`.
    queries: &'a [T],
    dim: usize,
    k: *const T,
    k_row: isize,
    tile: &'a mut [T],
    width: usize,
}

impl<T: Score> Kernel<T> for Dots<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let keys = self.tile.len() / self.width;
        let whole = self.dim / S::LANES * S::LANES;
        for (i, query) in self.queries.chunks_exact(self.dim.max(1)).enumerate() {
            for first in (0..keys).step_by(TOGETHER) {
                // At the end some keys are computed twice.
                let keys: [usize; TOGETHER] = core::array::from_fn(|k| (first + k).min(keys - 1));
                let rows = keys.map(|key| self.k.wrapping_offset(key as isize * self.k_row));
                // SAFETY: keys of the tile, with neighbouring elements.
                unsafe {
                    let mut sums = [S::splat(T::ZERO); TOGETHER];
                    for at in (0..whole).step_by(S::LANES) {
                        let x = S::load(query.as_ptr().add(at));
                        for k in 0..TOGETHER {
                            sums[k] = S::mul_add(x, S::load(rows[k].add(at)), sums[k]);
                        }
                    }
                    for k in 0..TOGETHER {
                        let mut score = S::sum(sums[k]);
                        for at in whole..self.dim {
                            score += query[at] * *rows[k].add(at);
                        }
                        self.tile[keys[k] * self.width + i] = score;
                    }
                }
            }
        }
        if self.dim == 0 {
            self.tile.fill(T::ZERO);
        }
    }
}

/// Converts the scores of a tile to weights and adds the weighted values to `y`, `[queries, dim_v]`.
struct Sums<'a, T> {
    tile: &'a [T],
    width: usize,
    v: *const T,
    v_row: isize,
    y: &'a mut [T],
    greatest: &'a mut [T],
    total: &'a mut [T],
}

impl<T: Score> Kernel<T> for Sums<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let fused = is_fused::<T, S>();
        let keys = self.tile.len() / self.width;
        let dim_v = self.y.len() / self.greatest.len();
        for i in 0..self.greatest.len() {
            let mut weights = [T::NEG_INFINITY; KEYS];
            let mut new = self.greatest[i];
            for (weight, row) in weights.iter_mut().zip(self.tile.chunks_exact(self.width)) {
                *weight = row[i];
                new = if row[i] > new { row[i] } else { new };
            }
            // While no key is visible, any finite shift works.
            let shift = if new == T::NEG_INFINITY { T::ZERO } else { new };
            let changed = (self.greatest[i] - shift).two_to(fused);
            let factor = if self.greatest[i] == new { T::ONE } else { changed };
            let mut sums = [T::ZERO; LANES];
            for weights in weights.as_chunks_mut::<LANES>().0 {
                for lane in 0..LANES {
                    weights[lane] = (weights[lane] - shift).two_to(fused);
                    sums[lane] += weights[lane];
                }
            }
            self.total[i] = sums.iter().fold(self.total[i] * factor, |total, &sum| total + sum);
            self.greatest[i] = new;
            let y = &mut self.y[i * dim_v..(i + 1) * dim_v];
            y.iter_mut().for_each(|y| *y *= factor);
            for (key, &weight) in weights[..keys].iter().enumerate() {
                // SAFETY: a value of the tile, with neighbouring elements.
                let v = unsafe {
                    core::slice::from_raw_parts(self.v.wrapping_offset(key as isize * self.v_row), dim_v)
                };
                for (y, &v) in y.iter_mut().zip(v) {
                    *y += weight * v;
                }
            }
        }
    }
}
