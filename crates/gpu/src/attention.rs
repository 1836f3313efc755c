//! Attention and its gradients: by cuDNN, or by our own flash-attention kernels, which support all sizes, layouts and
//! masks. Neither stores the scores in memory. Block kernels compute both passes on all devices; where there are few
//! rows, hand-written kernels split the keys. Attention without elements, or with rows longer than [`MAX_COLUMNS`], is
//! expanded.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::block::BlockKey;
use crate::block::attention::{
    Form, ROW_TILE, Tile as BlockTile, attention, key_gradients, query_gradients, row_numbers,
};
use crate::driver::{Argument, Arguments, Attend, Attention, AttentionPass, DevicePtr, Driver};
use crate::memory::Block;
use crate::native::{Native, length};
use crate::strided::{ALIGNMENT, begins_aligned};
use crate::view::tensor;
use kiln_ir::{AttentionSpec, Axes, DType, Layout, Op, Operands, Result, Shape, TensorType, Values};
use kiln_kernel::print::held_type;
use std::sync::Arc;

const SOURCE: &str = include_str!("native/attention.cu");

/// The index of the log-sum-exp among the operands of the gradients: output gradient, queries, keys, values, output,
/// log-sum-exp.
const LOG_SUM_EXP: usize = 5;

/// The maximum head dim of our kernels, which hold a row in registers.
const MAX_COLUMNS: usize = 1024;

/// The minimum number of keys per part where few queries split the keys.
const LEAST_KEYS: usize = 32;

/// Split-key attention for few queries: rows per block, the maximum number of rows, and the maximum number of parts.
const FEW: usize = 8;
const MOST_FEW: usize = 32;
const MOST_SPLITS: usize = 64;

/// The minimum number of queries for which rewriting a mask for the library is worthwhile.
const LEAST_MASKED: usize = 16;

/// The score of a masked key in library calls: below any real score, but finite, since `-inf - -inf` is NaN.
const HIDDEN: &str = "-1e30";

/// Rows and columns of a hand-written kernel's tile per thread, along each side of a 16 × 16 block.
#[derive(Clone, Copy)]
struct Tile {
    tall: usize,
    wide: usize,
}

impl Tile {
    /// For kernels without tiles.
    const ANY: Tile = Tile { tall: 1, wide: 1 };
}

/// Operands or results, each with its type.
type Typed<D> = Vec<(Array<D>, TensorType)>;

/// An attention with its operands.
struct Call<D: Driver> {
    spec: AttentionSpec,
    sizes: Sizes,
    dtype: DType,
    /// The operands before the mask.
    given: Typed<D>,
    mask: Option<(Array<D>, TensorType)>,
}

/// The sizes of an attention problem.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    dim: usize,
    dim_v: usize,
}

impl Sizes {
    fn of(q: &Shape, k: &Shape, v: &Shape) -> Sizes {
        let ([batch, heads, queries, dim], [kv_heads, keys, dim_v]) =
            ([q[0], q[1], q[2], q[3]], [k[1], k[2], v[3]]);
        Sizes { batch, heads, kv_heads, queries, keys, dim, dim_v }
    }
}

impl<D: Driver> Gpu<D> {
    /// [`Op::Attention`] and [`Op::AttentionGrad`].
    pub(crate) fn attention(
        &self,
        op: &Op,
        spec: AttentionSpec,
        inputs: Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let (pass, tensors) = match results.len() {
            2 => (AttentionPass::Forward, 3),
            _ => (AttentionPass::Backward, LOG_SUM_EXP + 1),
        };
        let all = (0..inputs.len()).map(|place| tensor::<D>(&inputs, place).map(|(x, ty)| (x.clone(), *ty)));
        let mut given = all.collect::<Result<Typed<D>>>()?;
        let mask = given.drain(tensors..).next();
        let first = given.len() - if pass == AttentionPass::Forward { 3 } else { 5 };
        let [q, k, v] = [0, 1, 2].map(|place| given[first + place].1.shape);
        let call = Call { spec, sizes: Sizes::of(&q, &k, &v), dtype: results[0].dtype, given, mask };
        if let Some(found) = self.attention_by_kernels(&call, pass, results)? {
            let all = suspicions::<D>(&inputs);
            let value = |(array, ty): (Array<D>, &TensorType)| {
                Array { suspicions: all.clone(), ..array }.into_value(*ty)
            };
            return Ok(found.into_iter().zip(results).map(value).collect());
        }
        drop(call);
        self.expanded(op, inputs, results)
    }

    /// Attention that is not expanded; `None` if no kernel supports it.
    fn attention_by_kernels(
        &self,
        call: &Call<D>,
        pass: AttentionPass,
        results: &[TensorType],
    ) -> Result<Option<Vec<Array<D>>>> {
        if !call.sizes.is_for_kernels() {
            return Ok(None);
        }
        if self.has_native() {
            if let Some(found) = self.attention_by_library(call, pass, results)? {
                return Ok(Some(found));
            }
            if pass == AttentionPass::Forward
                && let Some(found) = self.attention_by_split_keys(call, results)?
            {
                return Ok(Some(found));
            }
        }
        match pass {
            AttentionPass::Forward => self.attention_by_block(call, results),
            AttentionPass::Backward => self.gradients_by_blocks(call, results),
        }
    }

    /// Attention by the vendor's library; `None` if the library does not support it.
    fn attention_by_library(
        &self,
        call: &Call<D>,
        pass: AttentionPass,
        results: &[TensorType],
    ) -> Result<Option<Vec<Array<D>>>> {
        let Sizes { batch, heads, kv_heads, queries, keys, dim, dim_v } = call.sizes;
        let bias = match &call.mask {
            None => None,
            Some((_, ty)) if ty.dtype.is_bool() && queries >= LEAST_MASKED => {
                Some([0, 1, 2, 3].map(|axis| ty.shape[axis]))
            }
            Some(_) => return Ok(None),
        };
        if call.dtype.size() != 2 || self.driver.library().is_none() {
            return Ok(None);
        }
        let mut all = Vec::with_capacity(call.given.len() + results.len());
        for (place, (array, ty)) in call.given.iter().enumerate() {
            let lies = place != LOG_SUM_EXP && aligned(array, ty.dtype);
            all.push(if lies { array.clone() } else { self.contiguous_aligned(array, ty.dtype)? });
        }
        let found = self.attention_results(call, results)?;
        let steps = all.iter().chain(&found).filter(|array| array.layout.rank() == 4);
        let steps = steps.map(|array| steps_of(&array.layout)).collect();
        let (scale, causal, dtype) = (call.spec.scale, call.spec.causal, call.dtype);
        let attention = Attention {
            pass,
            dtype,
            batch,
            heads,
            kv_heads,
            queries,
            keys,
            dim,
            dim_v,
            scale,
            causal,
            bias,
            steps,
        };
        let Some(library) = self.driver.library() else { return Ok(None) };
        let Some(workspace) = library.attention_workspace(&attention)? else { return Ok(None) };
        let workspace = self.block(workspace)?;
        if bias.is_some() && pass == AttentionPass::Backward {
            all[LOG_SUM_EXP] = self.finite_log_sum_exp(call, &all[LOG_SUM_EXP])?;
        }
        let size =
            |array: &Array<D>| if array.layout.rank() == 4 { dtype } else { dtype.accumulator() }.size();
        let mut tensors: Vec<DevicePtr<D::Memory>> = all.iter().map(|array| array.at(size(array))).collect();
        let added = self.attention_bias(call)?;
        tensors.extend(added.as_ref().map(|added| added.at(0)));
        tensors.extend(found.iter().map(|array| array.at(size(array))));
        self.attend(Attend { attention: Arc::new(attention), tensors, workspace: workspace.at(0) })?;
        if bias.is_some() && pass == AttentionPass::Forward {
            self.zero_masked_rows(call, &found)?;
        }
        Ok(Some(found))
    }

    /// Computes the additive bias that replaces the mask in library calls.
    fn attention_bias(&self, call: &Call<D>) -> Result<Option<Block<D>>> {
        let Some((mask, ty)) = &call.mask else { return Ok(None) };
        let total = ty.num_elements();
        let bias = self.block(total * size_of::<f32>())?;
        let native = call.native("kiln_attention_bias", 2, Tile::ANY).name("HIDDEN", HIDDEN);
        let mut arguments = Arguments::<D::Memory>::new();
        arguments.extend([mask.place(ty.dtype), Argument::Pointer(bias.at(0))]);
        push_steps(&mut arguments, mask.layout.strides());
        arguments.extend([ty.shape[1], ty.shape[2], ty.shape[3], total].map(length));
        self.native(native, total, arguments)?;
        Ok(Some(bias))
    }

    /// Zeroes the output rows whose keys are all masked.
    fn zero_masked_rows(&self, call: &Call<D>, found: &[Array<D>]) -> Result<()> {
        let Sizes { batch, heads, queries, .. } = call.sizes;
        let native = call.native("kiln_attention_zero_masked_rows", 4, Tile::ANY).name("HIDDEN", HIDDEN);
        let mut arguments = Arguments::<D::Memory>::new();
        arguments.extend([found[0].place(call.dtype), found[1].place(call.dtype.accumulator())]);
        push_steps(&mut arguments, found[0].layout.strides());
        arguments.extend([heads, queries, batch * heads * queries].map(length));
        self.native(native, batch * heads * queries, arguments)
    }

    /// Returns log-sum-exps under which fully masked rows get zero weights.
    fn finite_log_sum_exp(&self, call: &Call<D>, lse: &Array<D>) -> Result<Array<D>> {
        let wide = call.dtype.accumulator();
        let finite = self.uninit(&TensorType { shape: lse.layout.shape, dtype: wide })?;
        let native = call.native("kiln_attention_finite_log_sum_exp", 5, Tile::ANY);
        let total = lse.layout.shape.num_elements();
        let arguments = [lse.place(wide), finite.place(wide), length(total)].into_iter().collect();
        self.native(native, total, arguments)?;
        Ok(finite)
    }

    /// Allocates results. A result takes the memory order of its operand, for example with heads interleaved in each
    /// row.
    fn attention_results(&self, call: &Call<D>, results: &[TensorType]) -> Result<Vec<Array<D>>> {
        let first = usize::from(results.len() == 3);
        let like = |place: usize| &call.given[first + place].0.layout;
        results
            .iter()
            .enumerate()
            .map(
                |(place, ty)| {
                    if ty.rank() == 4 { self.uninit_like(ty, like(place)) } else { self.uninit(ty) }
                },
            )
            .collect()
    }

    /// Attention by a block kernel; `None` if its tiles do not fit shared memory.
    fn attention_by_block(&self, call: &Call<D>, results: &[TensorType]) -> Result<Option<Vec<Array<D>>>> {
        let Sizes { keys, dim_v, .. } = call.sizes;
        let Some(form) = self.block_form(call, [call.sizes.rows(), keys], dim_v) else { return Ok(None) };
        let found = self.attention_results(call, results)?;
        let [q, k, v] = [0, 1, 2].map(|place| &call.given[place].0);
        let mut arguments = Arguments::<D::Memory>::new();
        arguments.extend([q, k, v].map(|array| array.place(call.dtype)));
        arguments.extend(call.mask.as_ref().map(|_| call.mask_place()));
        arguments.extend([found[0].place(call.dtype), found[1].place(call.dtype.accumulator())]);
        call.push_sizes(&mut arguments);
        call.push_block_steps(&mut arguments, &[q, k, v, &found[0]]);
        let blocks = form.tile.blocks(call.sizes.matrices(), call.sizes.rows());
        self.run_blocks(form.key("attention"), || attention(form), blocks, arguments)?;
        Ok(Some(found))
    }

    /// The gradients by block kernels; `None` if their tiles do not fit shared memory.
    fn gradients_by_blocks(&self, call: &Call<D>, results: &[TensorType]) -> Result<Option<Vec<Array<D>>>> {
        let Sizes { keys, queries, dim, dim_v, .. } = call.sizes;
        let (rows, matrices) = (call.sizes.rows(), call.sizes.matrices());
        let of_queries = self.block_form(call, [rows, keys], dim);
        let of_keys = self.block_form(call, [keys, queries], dim + dim_v);
        let (Some(of_queries), Some(of_keys)) = (of_queries, of_keys) else { return Ok(None) };
        let found = self.attention_results(call, results)?;
        let numbers = self.row_numbers(call)?;
        let operands = [0, 1, 2, 3].map(|place| &call.given[place].0);
        let arguments = |results: &[Array<D>]| {
            let mut arguments = Arguments::<D::Memory>::new();
            arguments.extend(operands.map(|array| array.place(call.dtype)));
            arguments.extend(call.mask.as_ref().map(|_| call.mask_place()));
            arguments.push(Argument::Pointer(numbers.at(0)));
            arguments.extend(results.iter().map(|array| array.place(call.dtype)));
            call.push_sizes(&mut arguments);
            let arrays: Vec<&Array<D>> = operands.into_iter().chain(results).collect();
            call.push_block_steps(&mut arguments, &arrays);
            arguments.push(length(matrices * rows));
            arguments
        };
        let blocks = of_queries.tile.blocks(matrices, rows);
        let key = of_queries.key("attention_queries");
        self.run_blocks(key, || query_gradients(of_queries), blocks, arguments(&found[..1]))?;
        let blocks = of_keys.tile.blocks(matrices, keys);
        let key = of_keys.key("attention_keys");
        self.run_blocks(key, || key_gradients(of_keys), blocks, arguments(&found[1..]))?;
        Ok(Some(found))
    }

    /// The two numbers of each query that the block kernels of gradients read.
    fn row_numbers(&self, call: &Call<D>) -> Result<Block<D>> {
        let (rows, matrices, wide) = (call.sizes.rows(), call.sizes.matrices(), call.dtype.accumulator());
        let [grad, y] = [0, LOG_SUM_EXP - 1].map(|place| &call.given[place].0);
        let log_sum_exp = self.contiguous(&call.given[LOG_SUM_EXP].0, wide)?;
        let numbers = self.block(2 * matrices * rows * wide.size())?;
        let mut arguments = Arguments::<D::Memory>::new();
        arguments.extend([grad, y].map(|array| array.place(call.dtype)));
        arguments.extend([log_sum_exp.place(wide), Argument::Pointer(numbers.at(0))]);
        call.push_sizes(&mut arguments);
        for array in [grad, y] {
            push_steps(&mut arguments, array.layout.strides());
        }
        arguments.push(length(matrices * rows));
        let (dtype, dim_v) = (call.dtype, call.sizes.dim_v);
        let key = BlockKey::new("attention_rows").dtype(dtype).with(dim_v);
        self.run_blocks(key, || row_numbers(dtype, dim_v), ROW_TILE.blocks(matrices, rows), arguments)?;
        Ok(numbers)
    }

    /// The form of a block kernel that computes that many rows of `columns` elements from as many `others`; `None` if
    /// its tiles do not fit shared memory.
    fn block_form(&self, call: &Call<D>, [rows, others]: [usize; 2], columns: usize) -> Option<Form> {
        let (info, sums) = (self.driver.info(), call.dtype.accumulator());
        let matrices = call.sizes.matrices();
        let tile = BlockTile::of(sums, matrices, [rows, others], columns, info.multiprocessors);
        let mask = call.mask.as_ref().map(|(_, ty)| ty.dtype);
        let Sizes { dim, dim_v, .. } = call.sizes;
        Some(Form { dtype: call.dtype, mask, dim, dim_v, tile }).filter(|form| form.fits(info.shared_bytes))
    }

    /// Attention with the keys in parts; `None` where the rows alone occupy the device.
    fn attention_by_split_keys(
        &self,
        call: &Call<D>,
        results: &[TensorType],
    ) -> Result<Option<Vec<Array<D>>>> {
        if call.is_of_few() {
            return self.attention_of_few(call, results).map(Some);
        }
        let Sizes { batch, heads, kv_heads, queries, keys, dim_v, .. } = call.sizes;
        let (wide, rows) = (call.dtype.accumulator(), call.sizes.rows());
        let tile = call.sizes.tile(wide, rows);
        let blocks = batch * kv_heads * rows.div_ceil(16 * tile.tall);
        let splits = (2 * self.driver.info().multiprocessors).div_ceil(blocks).min(keys.div_ceil(LEAST_KEYS));
        if splits <= 1 {
            return Ok(None);
        }
        let found = self.attention_results(call, results)?;
        let lines = batch * heads * queries;
        let parts = self.attention_parts(call, splits * lines)?;
        let parts = || parts.iter().map(|part| Argument::Pointer(part.at(0)));
        let [q, k, v] = [0, 1, 2].map(|place| &call.given[place].0);
        let mut arguments = Arguments::<D::Memory>::new();
        arguments.extend([q, k, v].map(|array| array.place(call.dtype)));
        arguments.push(call.mask_place());
        arguments.extend(parts());
        for array in [q, k, v] {
            push_steps(&mut arguments, array.layout.strides());
        }
        push_steps(&mut arguments, &call.mask_steps());
        call.push_sizes(&mut arguments);
        arguments.extend([length(splits), length(lines)]);
        self.native_blocks(call.native("kiln_attention", 0, tile), blocks * splits, arguments)?;
        let mut arguments: Arguments<D::Memory> = parts().collect();
        arguments.extend([found[0].place(call.dtype), found[1].place(wide)]);
        push_steps(&mut arguments, found[0].layout.strides());
        arguments.extend([heads, queries, splits, lines].map(length));
        self.native(call.native("kiln_attention_combine", 1, tile), lines * dim_v, arguments)?;
        Ok(Some(found))
    }

    /// Split-key attention for few queries by one kernel, as for the rows of one decoded token.
    fn attention_of_few(&self, call: &Call<D>, results: &[TensorType]) -> Result<Vec<Array<D>>> {
        let Sizes { batch, kv_heads, queries, keys, dim, .. } = call.sizes;
        let (wide, vector) = (call.dtype.accumulator(), ALIGNMENT / call.dtype.size());
        let found = self.attention_results(call, results)?;
        let blocks = batch * kv_heads * (call.sizes.group() * queries).div_ceil(FEW);
        // Keys that the threads of a block read at once.
        let once = 256 / (dim / vector);
        let wanted = (self.driver.info().multiprocessors / blocks).clamp(1, MOST_SPLITS);
        let part = keys.div_ceil(wanted).next_multiple_of(once);
        let splits = keys.div_ceil(part);
        let parts = self.block(blocks * splits * FEW * (dim + 2) * wide.size())?;
        let [_, arrived] = self.slim_scratch()?;
        let [q, k, v] = [0, 1, 2].map(|place| &call.given[place].0);
        let mut arguments = Arguments::<D::Memory>::new();
        arguments.extend([q, k, v].map(|array| array.place(call.dtype)));
        arguments.push(call.mask_place());
        arguments.extend([found[0].place(call.dtype), found[1].place(wide)]);
        arguments.extend([parts.at(0), arrived].map(Argument::Pointer));
        for array in [q, k, v] {
            push_steps(&mut arguments, array.layout.strides());
        }
        push_steps(&mut arguments, &call.mask_steps());
        push_steps(&mut arguments, found[0].layout.strides());
        call.push_sizes(&mut arguments);
        arguments.extend([splits, part].map(length));
        let native = call.native("kiln_attention_few", 3, Tile::ANY).name("VECTOR", vector);
        self.native_blocks(native, blocks * splits, arguments)?;
        Ok(found)
    }

    /// Scratch memory for `lines` rows of partial results and for their log-sum-exps.
    fn attention_parts(&self, call: &Call<D>, lines: usize) -> Result<[Block<D>; 2]> {
        let size = call.dtype.accumulator().size();
        Ok([self.block(lines * call.sizes.dim_v * size)?, self.block(lines * size)?])
    }

    /// An uninitialized array `[batch, heads, rows, columns]` in the memory order of `like`: heads interleaved in
    /// each row if they are there.
    fn uninit_like(&self, ty: &TensorType, like: &Layout) -> Result<Array<D>> {
        let mut result = self.uninit(ty)?;
        let steps = like.strides();
        if like.shape[1] > 1 && like.shape[2] > 1 && steps[1] < steps[2] {
            let [batch, heads, rows, columns] = [ty.shape[0], ty.shape[1], ty.shape[2], ty.shape[3]];
            let turned = Layout::contiguous(Shape::from([batch, rows, heads, columns]));
            result.layout = turned.permute(&Axes::new(&[0, 2, 1, 3]));
        }
        Ok(result)
    }
}

impl Sizes {
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// The queries of all heads that share keys.
    fn rows(&self) -> usize {
        self.group() * self.queries
    }

    /// The number of matrices of keys.
    fn matrices(&self) -> usize {
        self.batch * self.kv_heads
    }

    /// Whether all sizes are positive and within the limits of the kernels, which count rows in `i32`.
    fn is_for_kernels(&self) -> bool {
        let Sizes { batch, heads, kv_heads, queries, keys, dim, dim_v } = *self;
        let none = [batch, heads, kv_heads, queries, keys, dim, dim_v].contains(&0);
        let counts = |rows: usize| i32::try_from(rows).is_ok_and(|rows| rows <= i32::MAX / 2);
        !none && dim.max(dim_v) <= MAX_COLUMNS && counts(keys) && counts(self.group() * queries)
    }

    /// The tile for a number of rows.
    fn tile(&self, wide: DType, rows: usize) -> Tile {
        let columns = self.dim.max(self.dim_v).next_multiple_of(64);
        let most = if wide == DType::F64 { 2 } else { 4 };
        let tall = match columns {
            0..=128 => 4,
            129..=512 => 2,
            _ => 1,
        };
        let tall = if rows <= 16 { 1 } else { tall.min(most) };
        Tile { tall, wide: if wide == DType::F64 { 1 } else { 2 } }
    }
}

impl<D: Driver> Call<D> {
    fn native(&self, entry: &'static str, part: usize, tile: Tile) -> Native {
        let mask = match &self.mask {
            None => 0,
            Some((_, ty)) if ty.dtype.is_bool() => 1,
            Some(_) => 2,
        };
        Native::new(SOURCE, entry)
            .name("PART", part)
            .name("A", held_type(self.dtype.accumulator()))
            .name("DIM", self.sizes.dim)
            .name("DIM_V", self.sizes.dim_v)
            .name("TALL", tile.tall)
            .name("WIDE", tile.wide)
            .name("MASK", mask)
            .dtype("T", self.dtype)
    }

    /// Whether the kernel for few queries supports it: its threads read 16 bytes at a time.
    fn is_of_few(&self) -> bool {
        let Sizes { queries, dim, dim_v, .. } = self.sizes;
        let vector = ALIGNMENT / self.dtype.size();
        let lanes = dim / vector;
        let whole = dim.is_multiple_of(vector) && lanes.is_power_of_two() && lanes <= 32 && dim == dim_v;
        let dense = |array: &Array<D>| array.layout.strides()[3] == 1;
        let [q, k, v] = [0, 1, 2].map(|place| &self.given[place].0);
        let lies = [k, v].into_iter().all(|array| aligned(array, self.dtype));
        whole && self.sizes.group() * queries <= MOST_FEW && dense(q) && lies
    }

    /// The mask as an argument. Without a mask it is any pointer, which the kernel does not read.
    fn mask_place(&self) -> Argument<D::Memory> {
        match &self.mask {
            Some((mask, ty)) => mask.place(ty.dtype),
            None => self.given[0].0.place(self.dtype),
        }
    }

    /// The strides of the mask; 0 along broadcast axes.
    fn mask_steps(&self) -> [isize; 4] {
        let mut steps = [0; 4];
        if let Some((mask, _)) = &self.mask {
            for (axis, step) in steps.iter_mut().enumerate().filter(|(axis, _)| mask.layout.shape[*axis] > 1)
            {
                *step = mask.layout.strides()[axis];
            }
        }
        steps
    }

    /// The strides of arrays, and of the mask if there is one.
    fn push_block_steps(&self, arguments: &mut Arguments<D::Memory>, arrays: &[&Array<D>]) {
        for array in arrays {
            push_steps(arguments, array.layout.strides());
        }
        if self.mask.is_some() {
            push_steps(arguments, &self.mask_steps());
        }
    }

    fn push_sizes(&self, arguments: &mut Arguments<D::Memory>) {
        let Sizes { heads, kv_heads, queries, keys, .. } = self.sizes;
        arguments.extend([heads, kv_heads, queries, keys].map(length));
        // Larger offsets have the same effect.
        let offset = self.spec.causal.unwrap_or(i64::MAX).clamp(-(queries as i64), keys as i64);
        arguments.push(Argument::Word(offset.to_le_bytes()));
        let scale = self.spec.scale.0;
        let mut word = [0; 8];
        if self.dtype == DType::F64 {
            word = scale.to_le_bytes();
        } else {
            word[..4].copy_from_slice(&(scale as f32).to_le_bytes());
        }
        arguments.push(Argument::Word(word));
    }
}

fn push_steps<M: 'static>(arguments: &mut Arguments<M>, steps: &[isize]) {
    arguments.extend(steps.iter().map(|&step| Argument::Word((step as i64).to_le_bytes())));
}

/// Whether rows are contiguous and aligned, and no stride is 0, as libraries require.
fn aligned<D: Driver>(array: &Array<D>, dtype: DType) -> bool {
    let layout = &array.layout;
    let whole = |elements: usize| (elements * dtype.size()).is_multiple_of(ALIGNMENT);
    let steps = layout.strides();
    let outer = layout.shape.iter().zip(steps).take(3);
    let dense = layout.shape[3] == 1 || steps[3] == 1;
    dense
        && begins_aligned(layout, dtype)
        && outer
            .filter(|&(&length, _)| length > 1)
            .all(|(_, &step)| usize::try_from(step).is_ok_and(|step| step > 0 && whole(step)))
}

/// The strides of batch, head and row. Axes of length 1 get contiguous strides.
fn steps_of(layout: &Layout) -> [usize; 3] {
    let mut steps = [0; 3];
    let mut inside = layout.shape[3];
    for axis in (0..3).rev() {
        let step = usize::try_from(layout.strides()[axis]).unwrap_or(0);
        steps[axis] = if layout.shape[axis] == 1 { inside } else { step };
        inside = inside.max(steps[axis] * layout.shape[axis]);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_of_length_1_dims_are_the_contiguous_strides() {
        let plain = Layout::contiguous(Shape::from([2, 3, 4, 8]));
        assert_eq!(steps_of(&plain), [96, 32, 8]);
        let heads_inside = Layout::contiguous(Shape::from([2, 4, 3, 8])).permute(&Axes::new(&[0, 2, 1, 3]));
        assert_eq!(steps_of(&heads_inside), [96, 8, 24]);
        let one = Layout::contiguous(Shape::from([1, 1, 4, 8]));
        assert_eq!(steps_of(&one), [32, 32, 8]);
    }
}
