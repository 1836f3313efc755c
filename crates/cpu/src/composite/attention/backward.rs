//! The gradients of attention.

use super::kernel::{LANES, Product, Score, ScoreGradients, dot};
use super::problem::{Block, Heads, KEYS, Problem, QUERIES, one_after_another, transpose_back};
use crate::Cpu;
use crate::array::Array;
use crate::contraction::scratch::Scratch;
use crate::copy::Shared;
use kiln_ir::{AttentionSpec, Result, TensorType};

/// The minimum number of work units, into which heads are split if they are fewer.
const UNITS: usize = 16;

/// The maximum number of parts of the queries or keys of one head; each part has its own gradient buffers.
const MAX_CUT: usize = 8;

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 18;

/// Gradient elements that one task adds up.
const PART: usize = 1 << 14;

/// The gradients of attention for queries, keys and values.
///
/// # Errors
/// When there is not enough memory.
pub(in crate::composite) fn backward<T: Score>(
    cpu: &Cpu,
    spec: &AttentionSpec,
    qkv: [(&Array, &TensorType); 3],
    mask: Option<(&Array, &TensorType)>,
    [grad, y, lse]: [(&Array, &TensorType); 3],
    results: &[TensorType],
) -> Result<[Array; 3]> {
    let contiguous = |operand: (&Array, &TensorType)| cpu.contiguous(operand.0, operand.1);
    let operands = [contiguous(grad)?, contiguous(y)?, contiguous(lse)?];
    let problem = Problem::<T>::new(spec, qkv, mask);
    let partition = Partition::of(&problem);
    let mut partial = [
        Partial::new(&results[0], partition.keys)?,
        Partial::new(&results[1], partition.queries)?,
        Partial::new(&results[2], partition.queries)?,
    ];
    let backward = Backward {
        cpu,
        grad: Heads::new(&operands[0]),
        y: Heads::new(&operands[1]),
        lse: Shared::new(operands[2].as_mut_ptr()),
        gradients: [0, 1, 2].map(|i| Shared::new(partial[i].array.as_mut_ptr())),
        partition,
        problem,
    };
    backward.run();
    for (partial, ty) in partial.iter_mut().zip(results) {
        partial.join::<T>(cpu, ty)?;
    }
    Ok(partial.map(|partial| partial.array))
}

/// The number of parts of the work on one key head, along its queries and along its keys. It depends on the sizes only,
/// so the order of summation does not depend on the number of threads.
#[derive(Clone, Copy)]
struct Partition {
    queries: usize,
    keys: usize,
}

impl Partition {
    fn of<T: Score>(problem: &Problem<T>) -> Partition {
        let heads = (problem.batch * problem.kv_heads).max(1);
        let most = |units: usize, parts: usize| UNITS.div_ceil(units).min(parts).clamp(1, MAX_CUT);
        let keys = most(heads, problem.keys.div_ceil(2 * KEYS));
        Partition { keys, queries: most(heads * keys, problem.blocks()) }
    }
}

/// The range of part `part` of `parts` parts of `0..n`.
fn part_of(n: usize, part: usize, parts: usize) -> core::ops::Range<usize> {
    n * part / parts..n * (part + 1) / parts
}

/// A gradient, or several partial gradients to be added up, one after the other.
struct Partial {
    array: Array,
    count: usize,
}

impl Partial {
    fn new(ty: &TensorType, count: usize) -> Result<Partial> {
        let all = if count == 1 { *ty } else { ty.with_shape([count, ty.num_elements()]) };
        Ok(Partial { array: Array::uninit(&all)?, count })
    }

    /// Adds up the partial gradients, in order.
    fn join<T: Score>(&mut self, cpu: &Cpu, ty: &TensorType) -> Result<()> {
        if self.count == 1 {
            return Ok(());
        }
        let (len, count) = (ty.num_elements(), self.count);
        let sum = Array::uninit(ty)?;
        let (from, to) = (Shared::new(self.array.as_mut_ptr::<T>()), Shared::new(sum.as_mut_ptr::<T>()));
        cpu.pool.parallel_for(len, PART, |range| {
            // SAFETY: parts of all gradients and of the sum, which only this task uses.
            unsafe {
                let to = core::slice::from_raw_parts_mut(to.get().add(range.start), range.len());
                to.as_mut_ptr().copy_from_nonoverlapping(from.get().add(range.start), range.len());
                for part in 1..count {
                    let from = from.get().add(part * len + range.start);
                    let from = core::slice::from_raw_parts(from, range.len());
                    to.iter_mut().zip(from).for_each(|(sum, &x)| *sum += x);
                }
            }
        });
        self.array = sum;
        Ok(())
    }
}

/// Inputs and outputs of the backward pass.
struct Backward<'a, T> {
    cpu: &'a Cpu,
    problem: Problem<T>,
    grad: Heads<T>,
    y: Heads<T>,
    /// `[batch, heads, queries]`.
    lse: Shared<T>,
    /// For queries, one per part of the keys; for keys and for values, one per part of the queries.
    gradients: [Shared<T>; 3],
    partition: Partition,
}

/// The scratch memory of a task: blocks of queries and of output gradients, both plain and transposed. Also tiles of
/// scores and of their gradients, transposed gradients of queries, and gradients of all keys and values of the task.
struct Workspace<T> {
    transposed: [*mut T; 2],
    straight: [*mut T; 2],
    tiles: [*mut T; 2],
    dq: *mut T,
    dk: *mut T,
    dv: *mut T,
}

impl<T: Score> Backward<'_, T> {
    /// Head dims, rounded up to whole vectors.
    fn padded(&self) -> [usize; 2] {
        [self.problem.dim, self.problem.dim_v].map(|dim| dim.next_multiple_of(LANES))
    }

    fn run(&self) {
        let Problem { batch, kv_heads, queries, keys, dim, dim_v, .. } = self.problem;
        let units = self.partition.queries * self.partition.keys;
        let work = queries * keys * (dim + dim_v) * self.problem.shared_by() / units;
        self.cpu.pool.parallel_for(batch * kv_heads * units, GRAIN.div_ceil(work.max(1)), |tasks| {
            let longest = self.problem.keys.div_ceil(KEYS).div_ceil(self.partition.keys) * KEYS;
            let [wide, wide_v] = self.padded();
            let sizes = [
                dim * QUERIES,
                dim_v * QUERIES,
                wide * QUERIES,
                wide_v * QUERIES,
                KEYS * QUERIES,
                KEYS * QUERIES,
                dim * QUERIES,
                wide * longest,
                wide_v * longest,
            ];
            let mut scratch = Scratch::<T>::new(sizes.iter().sum());
            let [qt, gt, q, g, scores, slopes, dq, dk, dv] = one_after_another(scratch.as_mut_ptr(), sizes);
            let workspace =
                Workspace { transposed: [qt, gt], straight: [q, g], tiles: [scores, slopes], dq, dk, dv };
            for task in tasks {
                let (head, unit) = (task / units, task % units);
                // SAFETY: the room is large enough; tasks write gradients of their own.
                unsafe { self.unit([head / kv_heads, head % kv_heads], unit, &workspace) };
            }
        });
    }

    /// Computes some queries of all heads that share a key head, against some of these keys.
    ///
    /// # Safety
    /// There is room for everything, and nothing else writes the gradients of this unit.
    unsafe fn unit(&self, [batch, kv_head]: [usize; 2], unit: usize, workspace: &Workspace<T>) {
        let Problem { keys, kv_heads, dim, dim_v, .. } = self.problem;
        let (query_part, key_part) = (unit / self.partition.keys, unit % self.partition.keys);
        let tiles = part_of(keys.div_ceil(KEYS), key_part, self.partition.keys);
        let range = tiles.start * KEYS..(tiles.end * KEYS).min(keys);
        let [wide, wide_v] = self.padded();
        // SAFETY: as the caller promises.
        unsafe {
            workspace.dk.write_bytes(0, range.len() * wide);
            workspace.dv.write_bytes(0, range.len() * wide_v);
            for number in part_of(self.problem.blocks(), query_part, self.partition.queries) {
                let block = self.problem.block(batch, kv_head, number);
                self.block(block, range.clone(), key_part, workspace);
            }
            let row = ((query_part * self.problem.batch + batch) * kv_heads + kv_head) * keys + range.start;
            for key in 0..range.len() {
                let dk = self.gradients[1].get().add((row + key) * dim);
                dk.copy_from_nonoverlapping(workspace.dk.add(key * wide), dim);
                let dv = self.gradients[2].get().add((row + key) * dim_v);
                dv.copy_from_nonoverlapping(workspace.dv.add(key * wide_v), dim_v);
            }
        }
    }

    /// With weights `p = exp(s - lse)` and `d = Σ grad · y` of each query: `dv += pᵀ grad`, `ds = p (grad vᵀ - d) scale`,
    /// `dq = ds k`, `dk += dsᵀ q`.
    ///
    /// # Safety
    /// As [`unit`](Self::unit).
    unsafe fn block(
        &self,
        block: Block,
        range: core::ops::Range<usize>,
        key_part: usize,
        workspace: &Workspace<T>,
    ) {
        let problem = &self.problem;
        let Problem { batch, heads, queries, dim, dim_v, .. } = *problem;
        let (width, [wide, wide_v]) = (block.width(), self.padded());
        let (mut lse, mut mean) = ([T::INFINITY; QUERIES], [T::ZERO; QUERIES]);
        let q = problem.rows(&problem.q, block);
        let grad = problem.rows(&self.grad, block);
        let y = problem.rows(&self.y, block);
        // SAFETY: rows of the operands, and room for them.
        unsafe {
            q.transposed(dim, problem.scale * T::LOG2_E, workspace.transposed[0], width);
            grad.transposed(dim_v, T::ONE, workspace.transposed[1], width);
            q.straight(dim, workspace.straight[0], wide, width);
            grad.straight(dim_v, workspace.straight[1], wide_v, width);
            let logs = core::slice::from_raw_parts(self.lse.get().add(problem.row(block)), block.len);
            for (i, &log) in logs.iter().enumerate() {
                // A fully masked query has zero weights, as if the log-sum-exp were infinite.
                lse[i] = if log == T::NEG_INFINITY { T::INFINITY } else { log * T::LOG2_E };
                let row = |start: *const T| core::slice::from_raw_parts(start, dim_v);
                mean[i] = dot(row(grad.start(i)), row(y.start(i)));
            }
        }
        let visible = problem.visible(block);
        let end = problem.reach(block, &visible).clamp(range.start, range.end);
        for key in (range.start..end).step_by(KEYS) {
            let keys = (end - key).min(KEYS);
            // SAFETY: as the caller promises.
            unsafe {
                let scores = core::slice::from_raw_parts_mut(workspace.tiles[0], keys * width);
                let slopes = core::slice::from_raw_parts_mut(workspace.tiles[1], keys * width);
                let operand =
                    |heads: &Heads<T>| (heads.row(block.batch, problem.kv_head(block), key), heads.steps());
                let (k, [k_row, k_column]) = operand(&problem.k);
                let (v, v_strides) = operand(&problem.v);
                let tile = [keys, dim, width];
                self.product(
                    tile,
                    (k, [k_row, k_column]),
                    workspace.transposed[0],
                    scores.as_mut_ptr(),
                    false,
                );
                problem.mask(block, &visible, key, scores, slopes.as_mut_ptr());
                let tile = [keys, dim_v, width];
                self.product(tile, (v, v_strides), workspace.transposed[1], slopes.as_mut_ptr(), false);
                let (lse, mean) = (&lse[..width], &mean[..width]);
                let scale = problem.scale;
                T::dispatch(self.cpu.level, ScoreGradients { scores, slopes, width, lse, mean, scale });
                let row = width as isize;
                let (scores, slopes) = (workspace.tiles[0].cast_const(), workspace.tiles[1].cast_const());
                let dv = workspace.dv.add((key - range.start) * wide_v);
                self.product([keys, width, wide_v], (scores, [row, 1]), workspace.straight[1], dv, true);
                let dk = workspace.dk.add((key - range.start) * wide);
                self.product([keys, width, wide], (slopes, [row, 1]), workspace.straight[0], dk, true);
                let is_later = key > range.start;
                self.product([dim, keys, width], (k, [k_column, k_row]), slopes, workspace.dq, is_later);
            }
        }
        // SAFETY: rows of the gradient that only this task writes.
        unsafe {
            if end == range.start {
                workspace.dq.write_bytes(0, dim * width);
            }
            let row = key_part * batch * heads * queries + problem.row(block);
            transpose_back(workspace.dq, [dim, width], block.len, self.gradients[0].get().add(row * dim));
        }
    }

    /// `c = a · b` or `c += a · b`, `[m, depth] x [depth, n]`; `b` and `c` are contiguous.
    ///
    /// # Safety
    /// The matrices have these sizes, and nothing else uses the result.
    unsafe fn product(
        &self,
        sizes: [usize; 3],
        (a, a_strides): (*const T, [isize; 2]),
        b: *const T,
        c: *mut T,
        accumulate: bool,
    ) {
        let [_, _, n] = sizes;
        // SAFETY: as the caller promises.
        unsafe {
            let product = Product { sizes, a, a_strides, b, b_row: n, c, c_row: n, accumulate };
            T::dispatch(self.cpu.level, product);
        }
    }
}
