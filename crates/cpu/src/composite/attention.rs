//! Tiled attention (FlashAttention): the scores of some queries and some keys at a time, never all of them ([Dao et al.
//! 2022](https://arxiv.org/abs/2205.14135)).
//!
//! Tiles are `[keys, queries]`: the queries of a block are adjacent lanes of vectors. Maxima and sums per query
//! therefore need no cross-lane operations. Keys and values are read in place; only the queries are transposed.

mod backward;
mod few;
mod kernel;
mod problem;

pub(super) use backward::backward;

use crate::Cpu;
use crate::array::Array;
use crate::contraction::scratch::Scratch;
use crate::copy::Shared;
use kernel::{Product, Rescale, Score, SoftmaxState, SoftmaxWeights};
use kiln_ir::{AttentionSpec, Result, TensorType};
use problem::{Block, KEYS, Problem, QUERIES, one_after_another, transpose_back};

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 18;

/// Computes attention and the log-sum-exp of its scores.
///
/// # Errors
/// When there is not enough memory.
pub(super) fn forward<T: Score>(
    cpu: &Cpu,
    spec: &AttentionSpec,
    qkv: [(&Array, &TensorType); 3],
    mask: Option<(&Array, &TensorType)>,
    results: &[TensorType],
) -> Result<[Array; 2]> {
    let outputs = [Array::uninit(&results[0])?, Array::uninit(&results[1])?];
    let problem = Problem::<T>::new(spec, qkv, mask);
    let Problem { batch, kv_heads, keys, dim, dim_v, .. } = problem;
    let blocks = problem.blocks();
    let (y, lse) = (Shared::new(outputs[0].as_mut_ptr::<T>()), Shared::new(outputs[1].as_mut_ptr::<T>()));
    let work = QUERIES * keys * (dim + dim_v);
    cpu.pool.parallel_for(batch * kv_heads * blocks, GRAIN.div_ceil(work.max(1)), |tasks| {
        let sizes = [dim * QUERIES, KEYS * QUERIES, KEYS * QUERIES, dim_v * QUERIES];
        let mut scratch = Scratch::<T>::new(sizes.iter().sum());
        let [queries, tile, spare, sums] = one_after_another(scratch.as_mut_ptr(), sizes);
        let workspace = Workspace { queries, tile, spare, sums };
        for task in tasks {
            let head = task / blocks;
            let block = problem.block(head / kv_heads, head % kv_heads, task % blocks);
            let row = problem.row(block);
            // SAFETY: rows of both results, which only this task writes.
            unsafe {
                let (y, lse) = (y.get().add(row * dim_v), lse.get().add(row));
                if few::suits(&problem, block) {
                    few::attend(cpu, &problem, block, &workspace, y, lse);
                } else {
                    attend(cpu, &problem, block, &workspace, y, lse);
                }
            }
        }
    });
    Ok(outputs)
}

/// The scratch memory of a task: a transposed block of queries, a tile of scores, a tile of the mask, and the
/// transposed partial weighted sums of values.
struct Workspace<T> {
    queries: *mut T,
    tile: *mut T,
    spare: *mut T,
    sums: *mut T,
}

/// Computes one block of queries against all keys.
///
/// # Safety
/// There is room for everything; `y` and `lse` have room for the rows of the block.
unsafe fn attend<T: Score>(
    cpu: &Cpu,
    problem: &Problem<T>,
    block: Block,
    workspace: &Workspace<T>,
    y: *mut T,
    lse: *mut T,
) {
    let (dim, dim_v, width) = (problem.dim, problem.dim_v, block.width());
    let mut greatest = [T::NEG_INFINITY; QUERIES];
    let (mut total, mut factor) = ([T::ZERO; QUERIES], [T::ONE; QUERIES]);
    let visible = problem.visible(block);
    let reach = problem.reach(block, &visible);
    // SAFETY: as the caller promises.
    let sums = unsafe {
        problem.rows(&problem.q, block).transposed(dim, problem.scale * T::LOG2_E, workspace.queries, width);
        if reach == 0 {
            workspace.sums.write_bytes(0, dim_v * width);
        }
        core::slice::from_raw_parts_mut(workspace.sums, dim_v * width)
    };
    for key in (0..reach).step_by(KEYS) {
        let keys = (reach - key).min(KEYS);
        let row = |heads: &problem::Heads<T>| heads.row(block.batch, problem.kv_head(block), key);
        let product = |sizes, a, a_strides, b, c, accumulate| Product {
            sizes,
            a,
            a_strides,
            b,
            b_row: width,
            c,
            c_row: width,
            accumulate,
        };
        // SAFETY: as the caller promises.
        unsafe {
            let scores = product(
                [keys, dim, width],
                row(&problem.k),
                problem.k.steps(),
                workspace.queries,
                workspace.tile,
                false,
            );
            T::dispatch(cpu.level, scores);
            let tile = core::slice::from_raw_parts_mut(workspace.tile, keys * width);
            problem.mask(block, &visible, key, tile, workspace.spare);
            let seen = SoftmaxState {
                greatest: &mut greatest[..width],
                total: &mut total[..width],
                factor: &mut factor[..width],
            };
            if T::dispatch(cpu.level, SoftmaxWeights { tile, width, seen }) && key > 0 {
                T::dispatch(cpu.level, Rescale { rows: &mut *sums, factor: &factor[..width] });
            }
            let [v_row, v_column] = problem.v.steps();
            let (sizes, strides) = ([dim_v, keys, width], [v_column, v_row]);
            T::dispatch(
                cpu.level,
                product(sizes, row(&problem.v), strides, workspace.tile, sums.as_mut_ptr(), key > 0),
            );
        }
    }
    for i in 0..width {
        let masked = total[i] == T::ZERO;
        factor[i] = if masked { T::ZERO } else { T::ONE / total[i] };
        if i < block.len {
            let log = greatest[i] * T::LN_2 + total[i].ln();
            // SAFETY: a row of the block.
            unsafe { *lse.add(i) = if masked { T::NEG_INFINITY } else { log } };
        }
    }
    // SAFETY: as the caller promises.
    unsafe {
        T::dispatch(cpu.level, Rescale { rows: &mut *sums, factor: &factor[..width] });
        transpose_back(workspace.sums, [dim_v, width], block.len, y);
    }
}
