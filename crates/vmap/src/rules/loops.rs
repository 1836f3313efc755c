//! The batching rule of loops: the body is batched, as a program.

use crate::Vmap;
use crate::call::Call;
use crate::scope;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{
    LoopAttributes, LoopOp, Op, Operand, Operands, Program, Recorder, Result, TensorType, Value, Values, Var,
};

/// A body that runs on all examples. A batched input or output has a leading axis of examples.
struct Body {
    program: Program,
    /// Whether each input is batched.
    inputs: Vec<bool>,
    /// Whether each output is batched.
    outputs: Vec<bool>,
}

/// Runs a loop on all examples. A carried value is batched from the start if its value after any step is.
pub(super) fn looped<'a>(layer: &'a Vmap, op: &LoopOp, call: Call<'a>) -> Result<Values> {
    if call.n == 0 {
        return Ok(Call::wrap(layer, call.nothing()));
    }
    let attributes = op.attributes();
    let body = batched_body(layer, op, &call)?;
    let operands: Operands = (0..call.len()).map(|place| operand(&call, &body, attributes, place)).collect();
    let looped = op.with_body(body.program)?;
    let results = Var::emit(call.engine(), &Op::Loop(looped), operands).into_iter().zip(&body.outputs);
    let result = |(place, (result, &is_batched)): (usize, (Var<'a>, &bool))| match is_batched {
        false => result.into_value(),
        true if place < attributes.carried => layer.wrap(result.into_value()),
        true => layer.wrap(result.swap(0, 1).into_value()),
    };
    Ok(results.enumerate().map(result).collect())
}

/// The operand of the loop on all examples: the steps of a scanned tensor stay in front.
fn operand(call: &Call<'_>, body: &Body, attributes: LoopAttributes, place: usize) -> Operand {
    let LoopAttributes { carried, scanned, .. } = attributes;
    let operand = if !body.inputs[place] {
        call.input(place).clone()
    } else if (carried..carried + scanned).contains(&place) {
        call.input(place).swap(0, 1)
    } else {
        call.examples(place)
    };
    operand.into_operand()
}

fn batched_body(layer: &Vmap, op: &LoopOp, call: &Call<'_>) -> Result<Body> {
    let mut inputs: Vec<bool> = (0..call.len()).map(|place| call.is_batched(place)).collect();
    loop {
        let (program, outputs) = traced(layer, op, call.n, &inputs)?;
        let carried = inputs.iter_mut().zip(&outputs).take(op.attributes().carried);
        let mut changed = false;
        for (input, &output) in carried {
            changed |= output && !*input;
            *input |= output;
        }
        if !changed {
            return Ok(Body { program, inputs, outputs });
        }
    }
}

/// Traces the body with these batched inputs, and returns which outputs are batched. Those of batched carried values
/// always are.
fn traced(layer: &Vmap, op: &LoopOp, examples: usize, batched: &[bool]) -> Result<(Program, Vec<bool>)> {
    let body = op.body();
    let ty = |(ty, &is_batched): (&TensorType, &bool)| {
        if is_batched { ty.with_shape(ty.shape.inserted(0, examples)) } else { *ty }
    };
    let types: Vec<TensorType> = body.inputs.iter().zip(batched).map(ty).collect();
    let recorder = Arc::new(Recorder::new(&types));
    let inner = Vmap::new(recorder.clone());
    let input = |(value, &is_batched): (Value, &bool)| if is_batched { inner.batch(value, 0) } else { value };
    let inputs: Values = recorder.inputs().into_iter().zip(batched).map(input).collect();
    let run = || body.run(&inner, inputs);
    let results = match scope::current(layer.id()) {
        Some(scope) => inner.scope(scope.examples, scope.randomness, run),
        None => run(),
    };
    let (mut outputs, mut is_batched) = (Vec::new(), Vec::new());
    for (place, result) in results.into_iter().enumerate() {
        let carries = place < op.attributes().carried && batched[place];
        let batches = carries || inner.is_batched(&result);
        let value = if batches { inner.unbatch(&result, examples, 0) } else { result };
        if let Some(error) = value.error() {
            return Err(error.clone());
        }
        outputs.push(Operand::Value(value));
        is_batched.push(batches);
    }
    Ok((recorder.finish(&outputs), is_batched))
}
