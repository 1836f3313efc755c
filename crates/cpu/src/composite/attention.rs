//! Attention by tiles: the scores of some queries and some keys at a time, never all of them
//! ([Dao et al. 2022](https://arxiv.org/abs/2205.14135)).

use super::rows::{greatest, sum_of};
use crate::Cpu;
use crate::array::Array;
use crate::contraction::matmul::{Matrix, product};
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::Float;
use crate::copy::Shared;
use crate::isa::{Widest, multiversion};
use kiln_ir::{AttentionSpec, DType, Result, TensorType};

/// Queries and keys of a tile: its scores stay in the first cache but for a few, its operands in the second.
const QUERIES: usize = 64;
const KEYS: usize = 128;

/// An operand with four axes, `[batch, heads, length, dim]`, as its strides say.
#[derive(Clone, Copy)]
struct Heads<T> {
    start: Shared<T>,
    strides: [isize; 4],
}

impl<T: Copy> Heads<T> {
    fn new(array: &Array) -> Heads<T> {
        let mut strides = [0; 4];
        strides[..array.strides().len()].copy_from_slice(array.strides());
        Heads { start: Shared::new(array.as_mut_ptr()), strides }
    }

    /// The rows of one head from the given one on.
    fn rows(&self, batch: usize, head: usize, row: usize) -> Matrix<T> {
        let [b, h, r, c] = self.strides;
        let offset = batch as isize * b + head as isize * h + row as isize * r;
        Matrix::new(self.start.get().wrapping_offset(offset), r, c)
    }
}

/// What hides keys or adds to scores.
#[derive(Clone, Copy)]
enum Mask<T> {
    None,
    /// Elements are 0 or 1; 1 is visible.
    Visible(Heads<u8>),
    Added(Heads<T>),
}

impl<T: Copy> Mask<T> {
    /// Axes of length 1 repeat.
    fn new(mask: Option<(&Array, &TensorType)>) -> Mask<T> {
        fn repeated<U: Copy>((array, ty): (&Array, &TensorType)) -> Heads<U> {
            let mut heads = Heads::new(array);
            for axis in 0..4 {
                if ty.shape[axis] == 1 {
                    heads.strides[axis] = 0;
                }
            }
            heads
        }
        match mask {
            None => Mask::None,
            Some(mask) if mask.1.dtype == DType::Bool => Mask::Visible(repeated(mask)),
            Some(mask) => Mask::Added(repeated(mask)),
        }
    }
}

/// Sizes and operands that both directions share.
struct Problem<T> {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    dim: usize,
    dim_v: usize,
    scale: T,
    causal: Option<i64>,
    q: Heads<T>,
    k: Heads<T>,
    v: Heads<T>,
    mask: Mask<T>,
}

/// Some queries of one head.
#[derive(Clone, Copy)]
struct Block {
    batch: usize,
    head: usize,
    first: usize,
    len: usize,
}

impl<T: Float> Problem<T> {
    fn new(
        spec: &AttentionSpec,
        [q, k, v]: [(&Array, &TensorType); 3],
        mask: Option<(&Array, &TensorType)>,
    ) -> Problem<T> {
        let (qs, ks) = (q.1.shape, k.1.shape);
        Problem {
            batch: qs[0],
            heads: qs[1],
            kv_heads: ks[1],
            queries: qs[2],
            keys: ks[2],
            dim: qs[3],
            dim_v: v.1.shape[3],
            scale: T::from_f64(spec.scale.0),
            causal: spec.causal,
            q: Heads::new(q.0),
            k: Heads::new(k.0),
            v: Heads::new(v.0),
            mask: Mask::new(mask),
        }
    }

    /// How many heads of queries share one of keys.
    fn shared_by(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }

    /// How many keys the last query of a block can see; those after are hidden from all of it.
    fn reach(&self, block: Block) -> usize {
        match self.causal {
            None => self.keys,
            Some(offset) => {
                let end = (block.first + block.len) as i128 + i128::from(offset);
                end.clamp(0, self.keys as i128) as usize
            }
        }
    }

    /// The scores of a block of queries and keys, `[block.len, keys]` with rows of [`KEYS`]; hidden ones are `-inf`.
    ///
    /// # Safety
    /// `scores` has room for a tile.
    unsafe fn scores(&self, cpu: &Cpu, block: Block, key: usize, keys: usize, scores: *mut T) {
        let q = self.q.rows(block.batch, block.head, block.first);
        let k = self.k.rows(block.batch, block.head / self.shared_by(), key);
        let to = Matrix::new(scores, KEYS as isize, 1);
        // SAFETY: rows of queries and keys; the caller vouches for the scores.
        unsafe { product(cpu.level, [block.len, self.dim, keys], q, k.transposed(), to, false, self.scale) };
        for i in 0..block.len {
            let query = block.first + i;
            // SAFETY: a row of the tile.
            let row = unsafe { core::slice::from_raw_parts_mut(scores.add(i * KEYS), keys) };
            match self.mask {
                Mask::None => {}
                Mask::Visible(mask) => {
                    let m = mask.rows(block.batch, block.head, query);
                    for (j, score) in row.iter_mut().enumerate() {
                        // SAFETY: the mask repeats to the shape of the scores.
                        if unsafe { *m.start.offset((key + j) as isize * m.column) } == 0 {
                            *score = T::NEG_INFINITY;
                        }
                    }
                }
                Mask::Added(mask) => {
                    let m = mask.rows(block.batch, block.head, query);
                    for (j, score) in row.iter_mut().enumerate() {
                        // SAFETY: as above.
                        *score += unsafe { *m.start.offset((key + j) as isize * m.column) };
                    }
                }
            }
            let visible = self.reach(Block { first: query, len: 1, ..block }).saturating_sub(key).min(keys);
            row[visible..].fill(T::NEG_INFINITY);
        }
    }
}

/// Attention and the log-sum-exp of its scores.
///
/// # Errors
/// When there is not enough memory.
pub(super) fn forward<T: Float>(
    cpu: &Cpu,
    spec: &AttentionSpec,
    qkv: [(&Array, &TensorType); 3],
    mask: Option<(&Array, &TensorType)>,
    results: &[TensorType],
) -> Result<[Array; 2]> {
    let outputs = [Array::uninit(&results[0])?, Array::uninit(&results[1])?];
    let problem = Problem::<T>::new(spec, qkv, mask);
    let blocks = problem.queries.div_ceil(QUERIES);
    let (y, lse) = (Shared::new(outputs[0].as_mut_ptr::<T>()), Shared::new(outputs[1].as_mut_ptr::<T>()));
    let work = QUERIES.min(problem.queries) * problem.keys * (problem.dim + problem.dim_v);
    let grain = (1usize << 18).div_ceil(work.max(1));
    cpu.pool.parallel_for(problem.batch * problem.heads * blocks, grain, |tasks| {
        let mut scores = Scratch::<T>::new(QUERIES * KEYS);
        for task in tasks {
            let (batch, head) = (task / blocks / problem.heads, task / blocks % problem.heads);
            let first = task % blocks * QUERIES;
            let block = Block { batch, head, first, len: (problem.queries - first).min(QUERIES) };
            let row = (batch * problem.heads + head) * problem.queries + first;
            // SAFETY: rows of both results, which only this task writes.
            unsafe {
                let y = y.get().add(row * problem.dim_v);
                attend(cpu, &problem, block, scores.as_mut_ptr(), y, lse.get().add(row));
            }
        }
    });
    Ok(outputs)
}

/// One block of queries against all keys.
///
/// # Safety
/// `scores` has room for a tile, `y` and `lse` for the rows of the block.
unsafe fn attend<T: Float>(
    cpu: &Cpu,
    problem: &Problem<T>,
    block: Block,
    scores: *mut T,
    y: *mut T,
    lse: *mut T,
) {
    let mut greatest = [T::NEG_INFINITY; QUERIES];
    let mut total = [T::ZERO; QUERIES];
    let dim_v = problem.dim_v;
    // SAFETY: the rows of the block.
    let rows = unsafe { core::slice::from_raw_parts_mut(y, block.len * dim_v) };
    rows.fill(T::ZERO);
    let reach = problem.reach(block);
    for key in (0..reach).step_by(KEYS) {
        let keys = (reach - key).min(KEYS);
        // SAFETY: as the caller promises.
        unsafe {
            problem.scores(cpu, block, key, keys, scores);
            for i in 0..block.len {
                let row = core::slice::from_raw_parts_mut(scores.add(i * KEYS), keys);
                let factor = weights(cpu.level, row, &mut greatest[i], &mut total[i]);
                if factor != T::ONE {
                    rows[i * dim_v..(i + 1) * dim_v].iter_mut().for_each(|y| *y *= factor);
                }
            }
            let p = Matrix::new(scores, KEYS as isize, 1);
            let v = problem.v.rows(block.batch, block.head / problem.shared_by(), key);
            let to = Matrix::new(rows.as_mut_ptr(), dim_v as isize, 1);
            product(cpu.level, [block.len, keys, dim_v], p, v, to, true, T::ONE);
        }
    }
    for i in 0..block.len {
        let blind = total[i] == T::ZERO;
        let factor = if blind { T::ZERO } else { T::ONE / total[i] };
        rows[i * dim_v..(i + 1) * dim_v].iter_mut().for_each(|y| *y *= factor);
        // SAFETY: a row of the block.
        unsafe { *lse.add(i) = if blind { T::NEG_INFINITY } else { greatest[i] + total[i].ln() } };
    }
}

multiversion! {
    /// Turns scores into weights relative to the greatest so far, adds them to the total, and returns the factor by
    /// which everything before must be multiplied.
    fn weights[T: Float]<T> in { Widest::Avx512 } (row: &mut [T], best: &mut T, total: &mut T) -> T {
        let here = greatest(row);
        let new = if here > *best { here } else { *best };
        // While nothing is visible any finite number will do.
        let shift = if new == T::NEG_INFINITY { T::ZERO } else { new };
        let factor = if *best == new { T::ONE } else { (*best - shift).exp() };
        row.iter_mut().for_each(|x| *x = (*x - shift).exp());
        *total = *total * factor + sum_of(row, |x| x);
        *best = new;
        factor
    }

    /// `dp` becomes `p (dp - d) scale`, and scores become weights `p = exp(s - lse)`.
    fn score_gradients[T: Float]<T> in { Widest::Avx512 } (scores: &mut [T], dp: &mut [T], lse: T, d: T, scale: T) {
        // A query that sees nothing has no weights.
        let lse = if lse == T::NEG_INFINITY { T::from_f64(f64::INFINITY) } else { lse };
        for (s, dp) in scores.iter_mut().zip(dp) {
            let p = (*s - lse).exp();
            *dp = p * (*dp - d) * scale;
            *s = p;
        }
    }
}

/// The gradients of attention for queries, keys and values.
///
/// # Errors
/// When there is not enough memory.
pub(super) fn backward<T: Float>(
    cpu: &Cpu,
    spec: &AttentionSpec,
    qkv: [(&Array, &TensorType); 3],
    mask: Option<(&Array, &TensorType)>,
    [grad, y, lse]: [(&Array, &TensorType); 3],
    results: &[TensorType],
) -> Result<[Array; 3]> {
    let outputs = [Array::zeros(&results[0])?, Array::zeros(&results[1])?, Array::zeros(&results[2])?];
    let contiguous = |operand: (&Array, &TensorType)| cpu.contiguous(operand.0, operand.1);
    let operands = [contiguous(grad)?, contiguous(y)?, contiguous(lse)?];
    let problem = Problem::<T>::new(spec, qkv, mask);
    let backward = Backward {
        grad: Heads::new(&operands[0]),
        y: Heads::new(&operands[1]),
        lse: Heads::new(&operands[2]),
        dq: Heads::new(&outputs[0]),
        dk: Heads::new(&outputs[1]),
        dv: Heads::new(&outputs[2]),
    };
    let work = problem.queries * problem.keys * (problem.dim + problem.dim_v) * problem.shared_by();
    let grain = (1usize << 17).div_ceil(work.max(1));
    // One head of keys with all its heads of queries: the gradients of different tasks never meet.
    cpu.pool.parallel_for(problem.batch * problem.kv_heads, grain, |tasks| {
        let mut scratch = Scratch::<T>::new(2 * QUERIES * KEYS);
        for task in tasks {
            let (batch, kv_head) = (task / problem.kv_heads, task % problem.kv_heads);
            for head in kv_head * problem.shared_by()..(kv_head + 1) * problem.shared_by() {
                for first in (0..problem.queries).step_by(QUERIES) {
                    let block = Block { batch, head, first, len: (problem.queries - first).min(QUERIES) };
                    // SAFETY: the scratch holds two tiles; only this task writes these heads.
                    unsafe { backward.block(cpu, &problem, block, scratch.as_mut_ptr()) };
                }
            }
        }
    });
    Ok(outputs)
}

/// What else the backward direction reads and writes.
struct Backward<T> {
    grad: Heads<T>,
    y: Heads<T>,
    /// `[batch, heads, queries]`.
    lse: Heads<T>,
    dq: Heads<T>,
    dk: Heads<T>,
    dv: Heads<T>,
}

impl<T: Float> Backward<T> {
    /// With weights `p = exp(s - lse)` and `d = Σ grad · y` of each query: `dv += pᵀ grad`, `ds = p (grad vᵀ - d) scale`,
    /// `dq += ds k`, `dk += dsᵀ q`.
    ///
    /// # Safety
    /// `scratch` has room for two tiles, and nobody else writes these heads' gradients.
    unsafe fn block(&self, cpu: &Cpu, problem: &Problem<T>, block: Block, scratch: *mut T) {
        let Block { batch, head, first, len } = block;
        let kv_head = head / problem.shared_by();
        let (dim, dim_v) = (problem.dim, problem.dim_v);
        let grad = self.grad.rows(batch, head, first);
        let y = self.y.rows(batch, head, first);
        let lse = self.lse.rows(batch, head, first);
        let (scores, dp) = (scratch, scratch.wrapping_add(QUERIES * KEYS));
        let mut d = [T::ZERO; QUERIES];
        for i in 0..len {
            for c in 0..dim_v {
                // SAFETY: contiguous rows of the block.
                unsafe { d[i] += *grad.start.add(i * dim_v + c) * *y.start.add(i * dim_v + c) };
            }
        }
        let reach = problem.reach(block);
        for key in (0..reach).step_by(KEYS) {
            let keys = (reach - key).min(KEYS);
            let v = problem.v.rows(batch, kv_head, key);
            let (tile_s, tile_dp) =
                (Matrix::new(scores, KEYS as isize, 1), Matrix::new(dp, KEYS as isize, 1));
            // SAFETY: rows of operands and gradients; tiles as the caller promises.
            unsafe {
                problem.scores(cpu, block, key, keys, scores);
                product(cpu.level, [len, dim_v, keys], grad, v.transposed(), tile_dp, false, T::ONE);
                for i in 0..len {
                    let row = core::slice::from_raw_parts_mut(scores.add(i * KEYS), keys);
                    let dp = core::slice::from_raw_parts_mut(dp.add(i * KEYS), keys);
                    score_gradients(cpu.level, row, dp, *lse.start.add(i), d[i], problem.scale);
                }
                let dv = self.dv.rows(batch, kv_head, key);
                product(cpu.level, [keys, len, dim_v], tile_s.transposed(), grad, dv, true, T::ONE);
                let dq = self.dq.rows(batch, head, first);
                product(
                    cpu.level,
                    [len, keys, dim],
                    tile_dp,
                    problem.k.rows(batch, kv_head, key),
                    dq,
                    true,
                    T::ONE,
                );
                let dk = self.dk.rows(batch, kv_head, key);
                product(
                    cpu.level,
                    [keys, len, dim],
                    tile_dp.transposed(),
                    problem.q.rows(batch, head, first),
                    dk,
                    true,
                    T::ONE,
                );
            }
        }
    }
}
