//! The batching rules of ops.

mod composite;
mod contraction;
mod custom;
mod index;
mod loops;

use crate::Vmap;
use crate::call::Call;
use alloc::vec::Vec;
use kiln_ir::{
    Axes, Collective, CollectiveKind, Op, Operands, PadAxis, Result, Shape, SliceAxis, TensorType, Values,
    Var,
};

/// Runs an op with at least one batched operand.
pub(crate) fn execute(layer: &Vmap, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
    if let Op::Fused(fused) = op {
        return Ok(fused.program().run_region(layer, inputs));
    }
    if let Op::Custom(custom) = op
        && custom.batched().is_none()
        && let Some(values) = custom::expanded(layer, custom, &inputs, results)?
    {
        return Ok(values);
    }
    let call = layer.call(op, inputs, results)?;
    if let Op::NonZero { .. } = op {
        let hint = "work with a mask of the operand's shape (`mask_where`, a product with 0 and 1), or call it \
                    outside of `vmap`";
        return Err(call.error("would return another shape for each example").hint(hint));
    }
    if let Op::Loop(looped) = op {
        return loops::looped(layer, looped, call);
    }
    let results = if call.n == 0 { call.nothing() } else { batched(call)? };
    Ok(Call::wrap(layer, results))
}

/// The results of all examples, with a leading batch axis.
fn batched<'a>(call: Call<'a>) -> Result<Vec<Var<'a>>> {
    let one = |var: Var<'a>| alloc::vec![var];
    let op = call.op;
    Ok(match op {
        // Without tensor operands, the results are shared by all examples.
        Op::Full(_) | Op::Iota { .. } => call.alone(),
        Op::Random { ty, distribution } => one(custom::random(&call, ty, *distribution)),
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Cast(_)
        | Op::Bitcast(_)
        | Op::CheckIndex { .. }
        | Op::Copy => call.run(op),
        Op::Recover { .. } => recover(call),
        Op::Reshape(shape) => {
            let shape = call.with_examples(shape);
            call.run(&Op::Reshape(shape))
        }
        Op::Permute(axes) => {
            let axes: Vec<usize> = core::iter::once(0).chain(axes.iter().map(|axis| axis + 1)).collect();
            call.run(&Op::Permute(Axes::new(&axes)))
        }
        Op::Broadcast(shape) => one(broadcast(&call, shape)),
        Op::Slice(slices) => {
            let slices = with_all(&call, slices);
            call.run(&Op::Slice(slices))
        }
        Op::Pad(pads) => {
            let pads = core::iter::once(PadAxis::default()).chain(pads.iter().copied()).collect();
            call.run(&Op::Pad(pads))
        }
        Op::Concat { axis } => call.run(&Op::Concat { axis: axis + 1 }),
        &Op::Windows { axis, size, step, dilation } => {
            call.run(&Op::Windows { axis: axis + 1, size, step, dilation })
        }
        &Op::Reduce { reduction, axes } => {
            let axes: Vec<usize> = axes.iter().map(|axis| axis + 1).collect();
            call.run(&Op::Reduce { reduction, axes: Axes::new(&axes) })
        }
        &Op::ArgReduce { extremum, axis, index } => {
            call.run(&Op::ArgReduce { extremum, axis: axis + 1, index })
        }
        &Op::Scan { reduction, axis, reverse, exclusive } => {
            call.run(&Op::Scan { reduction, axis: axis + 1, reverse, exclusive })
        }
        &Op::Sort { axis, descending, index } => call.run(&Op::Sort { axis: axis + 1, descending, index }),
        &Op::TopK { axis, k, largest, index } => call.run(&Op::TopK { axis: axis + 1, k, largest, index }),
        Op::Take { axis } => one(index::take(&call, *axis)),
        Op::Gather { axis } => call.run(&Op::Gather { axis: axis + 1 }),
        Op::Put { axis, mode } => one(index::put(&call, *axis, *mode)),
        &Op::Scatter { axis, mode } => call.run(&Op::Scatter { axis: axis + 1, mode }),
        Op::SliceUpdate { slices, mode } => {
            let slices = with_all(&call, slices);
            call.run(&Op::SliceUpdate { slices, mode: *mode })
        }
        &Op::MatMulFloat8 { formats, dtype } => one(contraction::matmul_float8(&call, formats, dtype)),
        &Op::MatMulBlocks { format } => one(contraction::matmul_blocks(&call, format)),
        Op::MatMul => one(contraction::matmul(&call)),
        Op::Conv { spec, pass } => one(contraction::conv(&call, spec, pass)),
        Op::Pool(_) | Op::PoolGrad { .. } | Op::Resize { .. } => one(contraction::folded(&call)),
        &Op::Softmax { axis, log } => call.run(&Op::Softmax { axis: axis + 1, log }),
        Op::LogSumExp { axis } => call.run(&Op::LogSumExp { axis: axis + 1 }),
        Op::Norm { kind, axes, epsilon } => one(composite::norm(call, *kind, *axes, *epsilon)),
        Op::Attention(_) => composite::attention(&call),
        Op::AttentionGrad(_) => composite::attention_grad(&call),
        &Op::Fft { kind, axis, inverse } => call.run(&Op::Fft { kind, axis: axis + 1, inverse }),
        Op::Quantize { .. } | Op::Dequantize => one(composite::quantized(&call)),
        Op::DequantizeBlocks { .. } => call.run(op),
        Op::Collective(collective) => return self::collective(call, *collective),
        Op::Custom(custom) => match custom.batched() {
            Some(batched) => return custom::at_once(call, batched),
            None => return custom::one_by_one(&call, custom),
        },
        Op::NonZero { .. } | Op::Fused(_) | Op::Loop(_) => return Err(call.error("has no rule")),
    })
}

/// The slices of one example, with a full slice of the batch axis.
fn with_all(call: &Call<'_>, slices: &[SliceAxis]) -> Vec<SliceAxis> {
    core::iter::once(SliceAxis::all(call.n)).chain(slices.iter().copied()).collect()
}

/// The flags are combined over all examples.
fn recover(call: Call<'_>) -> Vec<Var<'_>> {
    let (op, flag) = (call.op, call.with_examples(&[1]));
    let mut results = call.run(op);
    let kept = results.len().saturating_sub(2);
    for result in &mut results[kept..] {
        *result = result.reshape([1, 1]).broadcast(flag);
    }
    results
}

/// New axes are inserted between the batch axis and the axes of one example.
fn broadcast<'a>(call: &Call<'a>, shape: &Shape) -> Var<'a> {
    let from = call.shape(0);
    let ones = core::iter::repeat_n(1, shape.rank() - from.rank());
    let aligned: Vec<usize> = ones.chain(from.iter().copied()).collect();
    call.input(0).reshape(call.with_examples(&aligned)).broadcast(call.with_examples(shape))
}

/// The operand of a collective must be batched on all members, or on none.
fn collective<'a>(call: Call<'a>, collective: Collective) -> Result<Vec<Var<'a>>> {
    let kind = match collective.kind {
        CollectiveKind::AllReduce(reduction) => CollectiveKind::AllReduce(reduction),
        CollectiveKind::AllGather { axis } => CollectiveKind::AllGather { axis: axis + 1 },
        CollectiveKind::ReduceScatter { reduction, axis } => {
            CollectiveKind::ReduceScatter { reduction, axis: axis + 1 }
        }
        CollectiveKind::Broadcast { root } => CollectiveKind::Broadcast { root },
        CollectiveKind::Send { .. } | CollectiveKind::Recv { .. } => {
            let hint = "the receiver has no batch: send the whole batch, outside of `vmap`";
            return Err(call.error("cannot send one of many examples").hint(hint));
        }
    };
    Ok(call.run(&Op::Collective(Collective { kind, ..collective })))
}
