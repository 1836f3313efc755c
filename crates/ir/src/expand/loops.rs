//! Loops, step by step.

use crate::excerpt::Excerpt;
use crate::{
    Engine, Instruction, LoopAttributes, LoopOp, Op, Operand, Operands, Program, ProgramOperand, SliceAxis,
    TensorType, Value, Values, Var,
};
use alloc::vec::Vec;
use smallvec::smallvec;

/// The number of steps from which a contiguous copy of a constant is worth its time.
const MIN_COPIED_STEPS: usize = 4;

/// Runs the body of a loop once for each step. Ops that have the same results in each step run once, before the first. The
/// outputs of the steps are concatenated once, at the end.
pub(super) fn looped<'e>(engine: &'e dyn Engine, op: &LoopOp, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
    let attributes = op.attributes();
    let LoopAttributes { carried, scanned, .. } = attributes;
    let values: Vec<Value> =
        inputs.iter().map(|input| input.operand().value().cloned()).collect::<Option<_>>()?;
    let (state, rest) = values.split_at_checked(carried)?;
    let (scanned, constants) = rest.split_at_checked(scanned)?;
    let types = op.body().output_types().ok()?;
    let Hoisted { before, step: body } = Hoisted::of(op);
    let constants = before.run(engine, constants.iter().cloned().collect());
    let mut outputs: Vec<Vec<Value>> = types.iter().skip(carried).map(|_| Vec::new()).collect();
    let mut state: Values = state.iter().cloned().collect();
    for step in attributes.order() {
        state.extend(scanned.iter().map(|x| slice(engine, x, step)));
        state.extend(constants.iter().cloned());
        let mut results = body.run(engine, state);
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

/// A body in two programs (loop-invariant code motion).
struct Hoisted {
    /// The ops that depend on constants alone: from the constants to the values that the steps read.
    before: Program,
    /// All other ops: from carried values, slices and the results of `before` to the outputs of the body.
    step: Program,
}

impl Hoisted {
    fn of(op: &LoopOp) -> Hoisted {
        let (body, LoopAttributes { carried, scanned, steps, .. }) = (op.body(), op.attributes());
        let fixed = op.fixed_slots();
        let (kept, types) = (read_in_steps(body, &fixed), body.slot_types());
        let constants: Vec<usize> = (carried + scanned..body.inputs.len()).collect();
        let read: Vec<usize> = (0..carried + scanned).chain(kept.iter().copied()).collect();
        let (mut before, mut step) = (Excerpt::new(&constants, &types), Excerpt::new(&read, &types));
        let mut next = body.inputs.len();
        for instruction in &body.instructions {
            let part = if fixed[next] { &mut before } else { &mut step };
            part.push(instruction, next);
            next += instruction.results.len();
        }
        let outputs = kept.iter().map(|&slot| contiguous(&mut before, slot, types[slot], steps)).collect();
        before.program.outputs = outputs;
        step.program.outputs = step.operands(&body.outputs);
        Hoisted { before: before.program, step: step.program }
    }
}

/// The fixed slots that the other ops, or the outputs, read.
fn read_in_steps(body: &Program, fixed: &[bool]) -> Vec<usize> {
    let mut read = alloc::vec![false; fixed.len()];
    let mut next = body.inputs.len();
    for instruction in &body.instructions {
        if !fixed[next] {
            instruction.slots().for_each(|slot| read[slot] = true);
        }
        next += instruction.results.len();
    }
    body.outputs.iter().filter_map(ProgramOperand::slot).for_each(|slot| read[slot] = true);
    (0..fixed.len()).filter(|&slot| fixed[slot] && read[slot]).collect()
}

/// The output of that slot. A matrix is copied, so that each step reads contiguous rows instead of a transposed view.
fn contiguous(before: &mut Excerpt, slot: usize, ty: TensorType, steps: usize) -> ProgramOperand {
    let output = before.operand(&ProgramOperand::Slot(slot));
    if ty.rank() < 2 || steps < MIN_COPIED_STEPS {
        return output;
    }
    let copy = Instruction { op: Op::Copy, operands: [output].into(), results: [ty].into() };
    ProgramOperand::Slot(before.push_own(copy))
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
