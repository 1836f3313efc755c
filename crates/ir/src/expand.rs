//! Expansions: the decomposition of composite ops into simpler ones.
//!
//! [`expand`] rewrites one op. The ops that it emits may be expanded again, until only [`MINIMAL`] is left. [`Expand`]
//! does that above an engine, so that an engine which runs the minimal set runs everything. It is also the only place
//! where [custom ops](Expand::register_kernel), collectives of one member and those of thread groups run.
//!
//! Expansions compute the same values as the op, with one difference: they read no data on the host, so they cannot
//! report an index out of range. [`Op::Take`] and [`Op::Gather`] then return the identity of the maximum (`-inf` for
//! floats), and [`Op::Put`] and [`Op::Scatter`] skip the entry. Composites of 16-bit floats compute in `f32`.

mod attention;
mod blocks;
mod composite;
mod contraction;
mod dispatch;
mod engine;
#[cfg(feature = "std")]
mod group;
mod index;
mod kernels;
mod loops;
mod order;
mod pool;
mod quantize;
mod random;
mod signal;
mod view;

pub use dispatch::Dispatch;
pub use engine::{Expand, expand_program, expanding};
pub use kernels::CustomKernel;
pub(crate) use signal::unmirrored;

use crate::{
    CollectiveKind, ConvPass, DType, Engine, FusedOp, Op, OpClass, OpSet, Operand, OperandType, Operands,
    PRIMITIVE, Scalar, Shape, TensorType, Value, Values, Var, infer,
};
use alloc::vec::Vec;

/// The ops without an expansion: an engine that runs these runs everything through [`Expand`].
///
/// Two of these do expand in some cases: a collective of a single member, and a custom op with an expansion of its own.
/// A collective of several members needs a `ThreadGroup` or the engine, and an [`Op::Custom`] without expansion needs the
/// engine.
pub const MINIMAL: OpSet = OpSet::having(PRIMITIVE);

/// Expands an op: emits simpler ops on an engine and returns the results; `None` if there is no simpler form.
///
/// The operands must have passed [`infer`](mod@crate::infer). The expansion never contains the op itself, and other
/// composites in it are simpler ones, so repeated expansion terminates.
pub fn expand<'e>(engine: &'e dyn Engine, op: &Op, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
    if let Some(nothing) = empty(engine, op, inputs) {
        return Some(nothing);
    }
    let one = |var: Var<'e>| Some(alloc::vec![var]);
    match op {
        Op::Full(_)
        | Op::Iota { .. }
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Cast(_)
        | Op::Bitcast(_)
        | Op::Reshape(_)
        | Op::Permute(_)
        | Op::Broadcast(_)
        | Op::Slice(_)
        | Op::Concat { .. }
        | Op::Copy
        | Op::Reduce { .. }
        | Op::NonZero { .. } => None,
        Op::Random { ty, distribution } => one(random::random(engine, ty, *distribution, &inputs[0])),
        Op::Pad(pads) => one(view::pad(&inputs[0], pads, inputs[1].operand().scalar()?)),
        Op::Windows { axis, size, step, dilation } => {
            one(view::windows(&inputs[0], *axis, *size, *step, *dilation))
        }
        Op::ArgReduce { extremum, axis, index } => {
            one(order::arg_reduce(&inputs[0], *extremum, *axis, *index))
        }
        Op::Scan { reduction, axis, reverse, exclusive } => {
            one(order::scan(&inputs[0], *reduction, *axis, *reverse, *exclusive))
        }
        Op::Sort { axis, descending, index } => {
            let len = inputs[0].shape()[*axis];
            Some(order::sort(&inputs[0], *axis, len, *descending, *index))
        }
        Op::TopK { axis, k, largest, index } => Some(order::sort(&inputs[0], *axis, *k, *largest, *index)),
        Op::Take { axis } => one(index::take(&inputs[0], &inputs[1], *axis)),
        Op::Gather { axis } => one(index::gather(&inputs[0], &inputs[1], *axis)),
        Op::Put { axis, mode } => one(index::put(&inputs[0], &inputs[1], &inputs[2], *axis, *mode)),
        Op::Scatter { axis, mode } => one(index::scatter(&inputs[0], &inputs[1], &inputs[2], *axis, *mode)),
        Op::SliceUpdate { slices, mode } => one(index::slice_update(&inputs[0], &inputs[1], slices, *mode)),
        // Without poison: an expansion reads no data on the host.
        Op::CheckIndex { .. } => one(inputs[0].clone()),
        Op::Recover { watched } => {
            let flag = Var::full(engine, TensorType::new([1], DType::Bool), Scalar::Bool(true));
            let kept = inputs.iter().take(inputs.len() - watched).cloned();
            Some(kept.chain([flag.clone(), flag]).collect())
        }
        Op::MatMulFloat8 { formats, dtype } => one(contraction::matmul_float8(inputs, *formats, *dtype)),
        Op::MatMul => one(contraction::matmul(&inputs[0], &inputs[1])),
        Op::MatMulBlocks { format } => one(blocks::matmul(&inputs[0], &inputs[1], *format)),
        Op::Conv { spec, pass } => one(match pass {
            ConvPass::Forward => contraction::conv(spec, &inputs[0], &inputs[1]),
            ConvPass::Input { size } => contraction::conv_input(spec, &inputs[0], &inputs[1], size),
            ConvPass::Weight { size } => contraction::conv_weight(spec, &inputs[0], &inputs[1], size),
        }),
        Op::Pool(spec) => one(pool::pool(spec, &inputs[0])),
        Op::PoolGrad { spec, size } => one(pool::pool_grad(spec, inputs, size)),
        Op::Softmax { axis, log } => one(composite::softmax(&inputs[0], *axis, *log)),
        Op::LogSumExp { axis } => one(composite::log_sum_exp(&inputs[0], *axis)),
        Op::Norm { kind, axes, epsilon } => one(composite::norm(inputs, *kind, *axes, epsilon.0)),
        Op::Attention(spec) => Some(attention::attention(spec, inputs)),
        Op::AttentionGrad(spec) => Some(attention::attention_grad(spec, inputs)),
        Op::Resize { mode, size, align_corners } => {
            one(signal::resize(&inputs[0], *mode, size, *align_corners))
        }
        Op::Fft { kind, axis, inverse } => Some(signal::fft(inputs, *kind, *axis, *inverse)),
        Op::Quantize { dtype } => one(quantize::quantize(inputs, *dtype)),
        Op::Dequantize => one(quantize::dequantize(inputs)),
        Op::DequantizeBlocks { format, dtype } => one(blocks::dequantize(&inputs[0], *format, *dtype)),
        Op::Collective(collective) => match collective.kind {
            CollectiveKind::Recv { .. } => None,
            CollectiveKind::AllReduce(_)
            | CollectiveKind::AllGather { .. }
            | CollectiveKind::ReduceScatter { .. }
            | CollectiveKind::Broadcast { .. }
            | CollectiveKind::Send { .. } => {
                if collective.size == 1 {
                    one(inputs[0].apply(Op::Copy, &[]))
                } else {
                    None
                }
            }
        },
        Op::Custom(op) => op.expand(inputs),
        Op::Fused(fused) => run(engine, fused, inputs),
        Op::Loop(op) => loops::looped(engine, op, inputs),
    }
}

/// Returns the values of an op's [expansion](expand) on an engine; `None` if it has none, or if its types differ from
/// `results`.
pub fn expand_values(
    engine: &dyn Engine,
    op: &Op,
    inputs: &Operands,
    results: &[TensorType],
) -> Option<Values> {
    if let Op::Custom(custom) = op {
        return custom.expand_values(engine, inputs, results)?.ok();
    }
    let variables: Vec<Var<'_>> = inputs.iter().map(|operand| Var::new(engine, operand.clone())).collect();
    let mut values = Values::new();
    for output in expand(engine, op, &variables)? {
        let Operand::Value(value) = output.into_operand() else { return None };
        values.push(value);
    }
    values.iter().map(Value::ty).eq(results).then_some(values)
}

/// The results of a composite without any elements.
fn empty<'e>(engine: &'e dyn Engine, op: &Op, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
    if op.is(PRIMITIVE) || op.info().class == OpClass::Opaque {
        return None;
    }
    let operands: Vec<OperandType<'_>> = inputs.iter().map(|var| var.operand().ty()).collect();
    let types = infer(op, &operands).ok()?;
    let nothing = types.iter().all(|ty| ty.num_elements() == 0);
    nothing.then(|| types.iter().map(|ty| Var::zeros(engine, *ty)).collect())
}

fn run<'e>(engine: &'e dyn Engine, fused: &FusedOp, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
    let operands: Operands = inputs.iter().map(|var| var.operand().clone()).collect();
    let results = fused.program().run_region(engine, operands);
    Some(results.into_iter().map(|value| Var::new(engine, Operand::Value(value))).collect())
}

/// The extents before, along and after `axis`. Rules that work on one axis reshape to this, so that they may add axes
/// without exceeding the maximum rank.
fn around(shape: &Shape, axis: usize) -> [usize; 3] {
    [product(&shape[..axis]), shape[axis], product(&shape[axis + 1..])]
}

/// The number of elements of some axes. It saturates, since another axis may have length 0.
fn product(lengths: &[usize]) -> usize {
    lengths.iter().fold(1, |product: usize, &length| product.saturating_mul(length))
}

/// Zero (`false`) of a dtype.
fn zero(dtype: DType) -> Scalar {
    if dtype.is_bool() { Scalar::Bool(false) } else { Scalar::Int(0) }
}

/// An integer dtype that can represent `most`: `i32` if that suffices.
fn counter(most: usize) -> DType {
    if i32::try_from(most).is_ok() { DType::I32 } else { DType::I64 }
}

/// A range of one axis: `len` elements from `start`.
fn narrow<'e>(x: &Var<'e>, axis: usize, start: usize, len: usize) -> Var<'e> {
    if start == 0 && len == x.shape()[axis] {
        return x.clone();
    }
    x.slice_axis(axis, crate::SliceAxis { start, len, step: 1 })
}

/// Whether each element is NaN; `None` for dtypes without NaN.
fn nan<'e>(x: &Var<'e>) -> Option<Var<'e>> {
    x.dtype().is_float().then(|| x.compare(crate::Comparison::Ne, x))
}
