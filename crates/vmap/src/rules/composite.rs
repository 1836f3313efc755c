//! Batching rules of the named composites.

use super::contraction::{folded_examples, unfolded};
use crate::call::{Call, joined, regrouped};
use alloc::vec::Vec;
use kiln_ir::{NormKind, Op, Operands, Real, Var};

/// With per-example weights, rows are scaled and shifted by separate ops, in the accumulator's dtype as in the fused
/// op.
pub(super) fn norm<'a>(call: Call<'a>, kind: NormKind, axes: usize, epsilon: Real) -> Var<'a> {
    let op = Op::Norm { kind, axes, epsilon };
    if !call.is_batched(1) && !call.is_batched(2) {
        let rest: Vec<&Var<'a>> = (1..call.len()).map(|place| call.input(place)).collect();
        return call.input(0).apply(op, &rest);
    }
    let dtype = call.input(0).dtype();
    let wide = dtype.accumulator();
    let normal = call.input(0).cast(wide).apply(op, &[]);
    let normal = if call.is_batched(0) { normal } else { normal.reshape(normal.shape().inserted(0, 1)) };
    let rank = normal.rank();
    let row = |place: usize| {
        let weight = call.examples(place).cast(wide);
        let ones = core::iter::repeat_n(1, rank - weight.rank());
        let shape: Vec<usize> =
            core::iter::once(call.n).chain(ones).chain(weight.shape()[1..].iter().copied()).collect();
        weight.reshape(shape)
    };
    let scaled = normal * row(1);
    let shifted = if call.len() > 2 { scaled + row(2) } else { scaled };
    shifted.cast(dtype)
}

/// The rule of `(q, k, v)` or `(q, k, v, mask)`. If the examples share keys and values, their queries become additional
/// heads, without a copy. Otherwise the examples join the batch axis.
pub(super) fn attention<'a>(call: &Call<'a>) -> Vec<Var<'a>> {
    let shared = (1..call.len()).all(|place| !call.is_batched(place));
    let one_mask = call.len() < 4 || call.shape(3)[1] == 1;
    if shared && one_mask && call.shape(1)[1] != 0 { more_heads(call) } else { more_batch(call, 3) }
}

/// The rule of `(grad, q, k, v, y, lse)` or with `mask` last.
pub(super) fn attention_grad<'a>(call: &Call<'a>) -> Vec<Var<'a>> {
    more_batch(call, 6)
}

fn more_heads<'a>(call: &Call<'a>) -> Vec<Var<'a>> {
    let (shape, kv_heads, n) = (call.shape(0), call.shape(1)[1], call.n);
    let [batch, heads, queries, dim] = [shape[0], shape[1], shape[2], shape[3]];
    let group = heads / kv_heads;
    let split = [n, batch, kv_heads, group, queries * dim];
    let q = regrouped(call.input(0), &split, &[1, 2, 0, 3, 4], &[batch, n * heads, queries, dim]);
    let rest: Vec<&Var<'a>> = (1..call.len()).map(|place| call.input(place)).collect();
    let mut operands: Operands = Operands::new();
    operands.push(q.into_operand());
    operands.extend(rest.into_iter().map(|var| var.operand().clone()));
    let apart = |y: Var<'a>| {
        let rest = y.shape()[2..].to_vec();
        let split = [batch, kv_heads, n, group, rest.iter().product()];
        regrouped(&y, &split, &[2, 0, 1, 3, 4], &joined(&[n, batch, heads], &rest))
    };
    Var::emit(call.engine(), call.op, operands).into_iter().map(apart).collect()
}

fn more_batch<'a>(call: &Call<'a>, mask: usize) -> Vec<Var<'a>> {
    let fold = |place: usize| {
        if place == mask { folded_mask(call, place) } else { folded_examples(&call.examples(place)) }
    };
    let operands: Operands = (0..call.len()).map(|place| fold(place).into_operand()).collect();
    Var::emit(call.engine(), call.op, operands).into_iter().map(|y| unfolded(&y, call.n)).collect()
}

/// A mask that is broadcast over the whole batch stays broadcast if the examples share it.
fn folded_mask<'a>(call: &Call<'a>, place: usize) -> Var<'a> {
    let shape = call.shape(place);
    if shape[0] == 1 && !call.is_batched(place) {
        return call.input(place).clone();
    }
    // The queries, `[batch, ..]`, are at the same place in both ops relative to the mask: three before it, or five.
    let batch = call.shape(if place == 3 { 0 } else { 1 })[0];
    let mask = call.examples(place);
    folded_examples(&mask.broadcast(mask.shape().with(1, batch)))
}

/// The rule of `(x, scale)` or `(x, scale, zero)`. Shared scales apply to all examples as one block.
pub(super) fn quantized<'a>(call: &Call<'a>) -> Var<'a> {
    let shared = (1..call.len()).all(|place| !call.is_batched(place));
    let operand = |place: usize| {
        let var = call.input(place);
        if place > 0 && shared { var.reshape(var.shape().inserted(0, 1)) } else { call.examples(place) }
    };
    let operands: Operands = (0..call.len()).map(|place| operand(place).into_operand()).collect();
    Var::emit(call.engine(), call.op, operands).remove(0)
}
