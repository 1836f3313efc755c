//! Loops, step by step.

use crate::{
    Engine, LoopAttributes, LoopOp, Op, Operand, Operands, SliceAxis, TensorType, Value, Values, Var,
};
use alloc::vec::Vec;
use smallvec::smallvec;

/// Runs the body of a loop once for each step. The outputs of the steps are concatenated once, at the end.
pub(super) fn looped<'e>(engine: &'e dyn Engine, op: &LoopOp, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
    let attributes = op.attributes();
    let LoopAttributes { carried, scanned, .. } = attributes;
    let values: Vec<Value> =
        inputs.iter().map(|input| input.operand().value().cloned()).collect::<Option<_>>()?;
    let (state, rest) = values.split_at_checked(carried)?;
    let (scanned, constants) = rest.split_at_checked(scanned)?;
    let types = op.body().output_types().ok()?;
    let mut outputs: Vec<Vec<Value>> = types.iter().skip(carried).map(|_| Vec::new()).collect();
    let mut state: Values = state.iter().cloned().collect();
    for step in attributes.order() {
        state.extend(scanned.iter().map(|x| slice(engine, x, step)));
        state.extend(constants.iter().cloned());
        let mut results = op.body().run(engine, state);
        for (list, output) in outputs.iter_mut().zip(results.drain(carried..)) {
            list.push(with_axis(engine, output));
        }
        state = results;
    }
    let stacks = outputs.into_iter().zip(&types[carried..]).map(|(mut list, ty)| {
        if attributes.reverse {
            list.reverse();
        }
        stacked(engine, list, ty)
    });
    Some(state.into_iter().chain(stacks).map(|value| Var::new(engine, value)).collect())
}

/// One step of a scanned tensor, without the axis of the steps.
fn slice(engine: &dyn Engine, x: &Value, step: usize) -> Value {
    let mut slices: Vec<SliceAxis> = x.shape().iter().map(|&length| SliceAxis::all(length)).collect();
    slices[0] = SliceAxis { start: step, len: 1, step: 1 };
    let ty = x.ty().with_shape(x.shape().with(0, 1));
    let row = engine.execute(&Op::Slice(slices), smallvec![x.clone().into()], &[ty]).remove(0);
    reshaped(engine, row, ty.with_shape(ty.shape.without(0)))
}

fn with_axis(engine: &dyn Engine, x: Value) -> Value {
    let ty = x.ty().with_shape(x.shape().inserted(0, 1));
    reshaped(engine, x, ty)
}

fn reshaped(engine: &dyn Engine, x: Value, ty: TensorType) -> Value {
    engine.execute(&Op::Reshape(ty.shape), smallvec![x.into()], &[ty]).remove(0)
}

/// The outputs of all steps along axis 0.
fn stacked(engine: &dyn Engine, list: Vec<Value>, ty: &TensorType) -> Value {
    let ty = ty.with_shape(ty.shape.inserted(0, list.len()));
    if list.is_empty() {
        return Var::zeros(engine, ty).into_value();
    }
    let operands: Operands = list.into_iter().map(Operand::Value).collect();
    engine.execute(&Op::Concat { axis: 0 }, operands, &[ty]).remove(0)
}
