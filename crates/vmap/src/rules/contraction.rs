//! Batching rules of matmul, convolution and pooling.

use crate::call::{Call, joined, product, regrouped};
use alloc::vec::Vec;
use kiln_ir::{BlockFormat, ConvPass, ConvSpec, DType, Float8, Op, Operands, TensorType, Var};

/// If one matrix is shared, one matmul with more rows or columns; otherwise the examples are an additional batch axis.
pub(super) fn matmul<'a>(call: &Call<'a>) -> Var<'a> {
    let (a, b, n) = (call.input(0), call.input(1), call.n);
    let (left, right) = (call.shape(0), call.shape(1));
    let batch = &left[..left.rank() - 2];
    let (m, k, p) = (left[left.rank() - 2], left[left.rank() - 1], right[right.rank() - 1]);
    let count = product(batch);
    let shape = joined(&joined(&[n], batch), &[m, p]);
    match (call.is_batched(0), call.is_batched(1)) {
        (true, false) => {
            let rows = regrouped(a, &[n, count, m, k], &[1, 0, 2, 3], &[count, n * m, k]);
            let y = rows.matmul(&b.reshape([count, k, p]));
            regrouped(&y, &[count, n, m, p], &[1, 0, 2, 3], &shape)
        }
        (false, true) => {
            let columns = regrouped(b, &[n, count, k, p], &[1, 2, 0, 3], &[count, k, n * p]);
            let y = a.reshape([count, m, k]).matmul(&columns);
            regrouped(&y, &[count, m, n, p], &[2, 0, 1, 3], &shape)
        }
        (true, true) | (false, false) => call.examples(0).matmul(&call.examples(1)),
    }
}

/// The examples are an additional batch axis of the bits. A per-example scale multiplies the example's result.
pub(super) fn matmul_float8<'a>(call: &Call<'a>, formats: [Float8; 2], dtype: DType) -> Var<'a> {
    let [a, b] = [0, 1].map(|place| call.examples(place));
    let multiply = |scales: [&Var<'a>; 2], dtype: DType| {
        a.apply(Op::MatMulFloat8 { formats, dtype }, &[&b, scales[0], scales[1]])
    };
    let scales = [2, 3].map(|place| call.input(place));
    if !call.is_batched(2) && !call.is_batched(3) {
        return multiply(scales, dtype);
    }
    let one = Var::full(call.engine(), TensorType::new([], DType::F32), 1.0);
    let y = multiply([&one, &one], DType::F32);
    let spread = |scale: &Var<'a>| {
        let count = scale.shape().num_elements();
        let ones = core::iter::once(count).chain(core::iter::repeat_n(1, y.rank() - 1)).collect::<Vec<_>>();
        scale.reshape(ones).broadcast(y.shape())
    };
    (&y * spread(scales[0]) * spread(scales[1])).cast(dtype)
}

/// A shared weight multiplies the rows of all examples. Weights of the examples are dequantized, and multiplied as
/// matrices.
pub(super) fn matmul_blocks<'a>(call: &Call<'a>, format: BlockFormat) -> Var<'a> {
    if !call.is_batched(1) {
        return call.input(0).apply(Op::MatMulBlocks { format }, &[call.input(1)]);
    }
    let [x, blocks] = [0, 1].map(|place| call.examples(place));
    let weight = blocks.apply(Op::DequantizeBlocks { format, dtype: x.dtype() }, &[]);
    let (shape, columns) = (x.shape(), weight.shape()[1]);
    let axis = shape.rank() - 1;
    let rows = x.reshape([call.n, product(&shape[1..axis]), shape[axis]]);
    rows.matmul(&weight.transpose()).reshape(shape.with(axis, columns))
}

/// Batched inputs: the examples join the batch axis. Batched kernels: they become additional channels if the other
/// operand is shared, or else additional groups.
pub(super) fn conv<'a>(call: &Call<'a>, spec: &ConvSpec, pass: &ConvPass) -> Var<'a> {
    let (a, b, n, groups) = (call.input(0), call.input(1), call.n, spec.groups);
    let run = |spec: &ConvSpec, a: &Var<'a>, b: &Var<'a>| {
        a.apply(Op::Conv { spec: spec.clone(), pass: pass.clone() }, &[b])
    };
    let more = ConvSpec { groups: groups * n, ..spec.clone() };
    match (pass, call.is_batched(0), call.is_batched(1)) {
        (ConvPass::Forward | ConvPass::Input { .. }, true, false) => {
            unfolded(&run(spec, &folded_examples(a), b), n)
        }
        (ConvPass::Forward, false, true) => {
            let weights = leading(&into_channels(&b.reshape(b.shape().inserted(1, 1)), groups));
            out_of_channels(&run(spec, a, &weights), n, groups)
        }
        (ConvPass::Input { .. }, false, true) => {
            out_of_channels(&run(spec, a, &into_channels(b, 1)), n, groups)
        }
        (ConvPass::Forward | ConvPass::Input { .. }, true, true) => {
            out_of_channels(&run(&more, &into_channels(a, 1), &folded_examples(b)), n, 1)
        }
        (ConvPass::Weight { .. }, true, false) => {
            out_of_channels(&run(spec, &into_channels(a, groups), b), n, 1)
        }
        (ConvPass::Weight { .. }, false, true) => {
            let weights = run(spec, a, &into_channels(b, groups));
            let weights = out_of_channels(&weights.reshape(weights.shape().inserted(0, 1)), n, groups);
            weights.reshape(weights.shape().without(1))
        }
        (ConvPass::Weight { .. }, true, true) => {
            unfolded(&run(&more, &into_channels(a, 1), &into_channels(b, 1)), n)
        }
        (ConvPass::Forward | ConvPass::Input { .. } | ConvPass::Weight { .. }, false, false) => {
            let y = run(spec, a, b);
            y.broadcast(call.with_examples(&y.shape()))
        }
    }
}

/// An op on `[batch, ..]` that is independent along the batch: the examples join the batch axis.
pub(super) fn folded<'a>(call: &Call<'a>) -> Var<'a> {
    let fold = |place| folded_examples(&call.examples(place)).into_operand();
    let operands: Operands = (0..call.len()).map(fold).collect();
    unfolded(&Var::emit(call.engine(), call.op, operands).remove(0), call.n)
}

/// Merges the batch axes: `[n, b, ..]` to `[n * b, ..]`.
pub(super) fn folded_examples<'a>(x: &Var<'a>) -> Var<'a> {
    let shape = x.shape();
    x.reshape(joined(&[shape[0] * shape[1]], &shape[2..]))
}

/// Splits the batch axis: `[n * b, ..]` to `[n, b, ..]`.
pub(super) fn unfolded<'a>(y: &Var<'a>, n: usize) -> Var<'a> {
    let shape = y.shape();
    y.reshape(joined(&[n, shape[0] / n], &shape[1..]))
}

/// `[n, b, c, ..]` to `[b, n * c, ..]`: within each group of channels, the channels of the first example come first.
fn into_channels<'a>(x: &Var<'a>, groups: usize) -> Var<'a> {
    let shape = x.shape();
    let [n, b, c] = [shape[0], shape[1], shape[2]];
    let split = [n, b, groups, c / groups, product(&shape[3..])];
    regrouped(x, &split, &[1, 2, 0, 3, 4], &joined(&[b, n * c], &shape[3..]))
}

/// The inverse of [`into_channels`].
fn out_of_channels<'a>(y: &Var<'a>, n: usize, groups: usize) -> Var<'a> {
    let shape = y.shape();
    let (b, c) = (shape[0], shape[1] / n);
    let split = [b, groups, n, c / groups, product(&shape[2..])];
    regrouped(y, &split, &[2, 0, 1, 3, 4], &joined(&[n, b, c], &shape[2..]))
}

/// Removes the leading axis, which has length 1.
fn leading<'a>(x: &Var<'a>) -> Var<'a> {
    let shape: Vec<usize> = x.shape()[1..].to_vec();
    x.reshape(shape)
}
