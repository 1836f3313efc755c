//! Changes of a trial. Each returns `None` if it does not apply; the result may be invalid.

use crate::check::guarded;
use crate::trace::{Ownership, trace};
use crate::trial::Trial;
use kiln_ir::{
    ConvPass, Engine, Instruction, Op, OperandType, Program, ProgramOperand, Shape, SliceAxis, TensorData,
    TensorType, infer,
};
use kiln_suite::engines::reference;

/// Infers the types of all results again; `None` if an op no longer accepts its operands.
pub(super) fn retyped(trial: &Trial) -> Option<Trial> {
    let mut trial = trial.clone();
    let program = &mut trial.program;
    program.inputs = trial.inputs.iter().map(TensorData::ty).collect();
    let mut slots = program.inputs.clone();
    for instruction in &mut program.instructions {
        let mut operands = Vec::new();
        for operand in &instruction.operands {
            operands.push(match operand {
                ProgramOperand::Slot(slot) => OperandType::Tensor(slots.get(*slot)?),
                ProgramOperand::Scalar(scalar) => OperandType::Scalar(*scalar),
            });
        }
        let types = infer(&instruction.op, &operands).ok()?;
        instruction.results = types.to_vec();
        slots.extend(types);
    }
    let defined = |output: &ProgramOperand| match output {
        ProgramOperand::Slot(slot) => *slot < slots.len(),
        ProgramOperand::Scalar(_) => true,
    };
    trial.program.outputs.iter().all(defined).then_some(trial)
}

/// The first slot of the results of an instruction.
fn first_result(trial: &Trial, place: usize) -> usize {
    let before = trial.program.instructions[..place].iter().map(|i| i.results.len());
    trial.program.inputs.len() + before.sum::<usize>()
}

/// Renumbers the operands.
fn renumbered(trial: &mut Trial, number: impl Fn(usize) -> usize) {
    let program = &mut trial.program;
    let operands = program.instructions.iter_mut().flat_map(|i| &mut i.operands);
    for operand in operands.chain(&mut program.outputs) {
        if let ProgramOperand::Slot(slot) = operand {
            *slot = number(*slot);
        }
    }
}

/// Removes unused inputs.
pub(super) fn pruned(trial: &Trial) -> Trial {
    let mut trial = trial.clone();
    for input in (0..trial.inputs.len()).rev() {
        let operands = trial.program.instructions.iter().flat_map(|i| &i.operands);
        let mut all = operands.chain(&trial.program.outputs);
        if !all.any(|&operand| operand == ProgramOperand::Slot(input)) {
            trial.inputs.remove(input);
            trial.program.inputs.remove(input);
            renumbered(&mut trial, |slot| if slot > input { slot - 1 } else { slot });
        }
    }
    trial
}

/// Keeps the first ops. If no output is left, the results of the last op become outputs.
pub(super) fn truncated(trial: &Trial, count: usize) -> Option<Trial> {
    let mut trial = trial.clone();
    let instructions = &mut trial.program.instructions;
    if count >= instructions.len() || count == 0 {
        return None;
    }
    instructions.truncate(count);
    let end = trial.program.num_slots();
    let results = trial.program.instructions.last()?.results.len();
    trial.program.outputs = (end - results..end).map(ProgramOperand::Slot).collect();
    Some(trial)
}

/// Removes one of several outputs.
pub(super) fn without_output(trial: &Trial, place: usize) -> Option<Trial> {
    let mut trial = trial.clone();
    if trial.program.outputs.len() < 2 {
        return None;
    }
    trial.program.outputs.remove(place);
    Some(trial)
}

/// Replaces an op by inputs with its results, where they are used.
pub(super) fn replaced(trial: &Trial, place: usize, engine: &dyn Engine) -> Option<Trial> {
    let (first, inputs) = (first_result(trial, place), trial.inputs.len());
    let results = trial.program.instructions.get(place)?.results.len();
    let mut data = Vec::new();
    let run = |engine: &dyn Engine| trace(engine, trial, Ownership::Kept);
    let ran = guarded(|| run(engine)).or_else(|_| guarded(|| run(&reference()))).ok()?;
    for slot in first..first + results {
        data.push(ran.slots[slot].as_ref().ok()?.clone());
    }
    let mut trial = trial.clone();
    trial.program.instructions.remove(place);
    // The new inputs follow the old ones and shift the later slots.
    renumbered(&mut trial, |slot| match slot {
        slot if slot < inputs => slot,
        slot if slot < first => slot + results,
        slot if slot < first + results => slot - first + inputs,
        slot => slot,
    });
    trial.program.inputs.extend(data.iter().map(TensorData::ty));
    trial.inputs.extend(data);
    Some(trial)
}

/// Inlines all fused regions; `None` if there are none.
pub(crate) fn inlined_all(trial: &Trial) -> Option<Trial> {
    let mut flat = None;
    loop {
        let here = flat.as_ref().unwrap_or(trial);
        let region = here.program.instructions.iter().position(|i| matches!(i.op, Op::Fused(_)));
        let Some(place) = region else { return flat };
        flat = inlined(here, place);
    }
}

/// Inlines a fused region.
pub(super) fn inlined(trial: &Trial, place: usize) -> Option<Trial> {
    let Instruction { op: Op::Fused(fused), operands, results } = trial.program.instructions.get(place)?
    else {
        return None;
    };
    let inner = &tensors_alone(fused.program());
    let first = first_result(trial, place);
    let inside = |operand: &ProgramOperand| match operand {
        ProgramOperand::Slot(slot) if *slot < inner.inputs.len() => operands[*slot],
        ProgramOperand::Slot(slot) => ProgramOperand::Slot(first + slot - inner.inputs.len()),
        ProgramOperand::Scalar(scalar) => ProgramOperand::Scalar(*scalar),
    };
    let made = inner.num_slots() - inner.inputs.len();
    let outputs: Vec<ProgramOperand> = inner.outputs.iter().map(inside).collect();
    let outside = |operand: &ProgramOperand| match operand {
        ProgramOperand::Slot(slot) if (first..first + results.len()).contains(slot) => outputs[slot - first],
        ProgramOperand::Slot(slot) if *slot >= first => ProgramOperand::Slot(slot - results.len() + made),
        ProgramOperand::Slot(_) | ProgramOperand::Scalar(_) => *operand,
    };
    let mut changed = trial.clone();
    let program = &mut changed.program;
    let later = program.instructions.split_off(place);
    program.instructions.extend(inner.instructions.iter().map(|instruction| Instruction {
        operands: instruction.operands.iter().map(inside).collect(),
        ..instruction.clone()
    }));
    program.instructions.extend(later.into_iter().skip(1).map(|instruction| Instruction {
        operands: instruction.operands.iter().map(outside).collect(),
        ..instruction
    }));
    program.outputs = program.outputs.iter().map(outside).collect();
    Some(changed)
}

/// Replaces scalar outputs by tensors, as a run returns them.
fn tensors_alone(program: &Program) -> Program {
    let mut program = program.clone();
    for place in 0..program.outputs.len() {
        if let ProgramOperand::Scalar(scalar) = program.outputs[place] {
            let ty = TensorType::new([], scalar.default_dtype());
            program.outputs[place] = ProgramOperand::Slot(program.num_slots());
            let operands = vec![ProgramOperand::Scalar(scalar)];
            program.instructions.push(Instruction { op: Op::Full(ty), operands, results: vec![ty] });
        }
    }
    program
}

/// Shortens all axes of one length, in one input or in all inputs and attributes.
pub(super) fn relengthened(trial: &Trial, from: usize, to: usize, only: Option<usize>) -> Option<Trial> {
    let mut trial = trial.clone();
    let number = |length: usize| if length == from { to } else { length };
    let shape = |shape: &Shape| shape.iter().map(|&length| number(length)).collect::<Shape>();
    for (place, data) in trial.inputs.iter_mut().enumerate() {
        if only.is_none_or(|only| only == place) {
            *data = head(data, shape(data.shape()))?;
        }
    }
    if only.is_none() {
        for instruction in &mut trial.program.instructions {
            shorten(&mut instruction.op, &number, &shape);
        }
    }
    Some(trial)
}

/// The first elements along each axis.
fn head(data: &TensorData, shape: Shape) -> Option<TensorData> {
    let slices = shape.iter().map(|&len| SliceAxis::all(len)).collect();
    let op = Op::Slice(slices);
    let operands = [crate::trace::HostOperand::Data(data.clone())];
    crate::trace::run_on(&reference(), &op, &operands).ok()?.pop()
}

/// Changes the lengths in an op's attributes.
fn shorten(op: &mut Op, number: &dyn Fn(usize) -> usize, shape: &dyn Fn(&Shape) -> Shape) {
    let all = |lengths: &mut Vec<usize>| lengths.iter_mut().for_each(|length| *length = number(*length));
    let typed = |ty: &mut TensorType| ty.shape = shape(&ty.shape);
    if let Op::Full(ty) | Op::Iota { ty, .. } | Op::Random { ty, .. } = op {
        typed(ty);
    }
    if let Op::Reshape(lengths) | Op::Broadcast(lengths) = op {
        *lengths = shape(lengths);
    }
    if let Op::Slice(slices) | Op::SliceUpdate { slices, .. } = op {
        for slice in slices {
            let len = number(slice.len);
            if slice.step < 0 {
                let fewer = (slice.len - len) * isize::unsigned_abs(slice.step);
                slice.start = slice.start.saturating_sub(fewer);
            }
            slice.len = len;
        }
    }
    if let Op::TopK { k, .. } = op {
        *k = number(*k);
    }
    if let Op::Resize { size, .. } | Op::PoolGrad { size, .. } = op {
        all(size);
    }
    if let Op::Conv { pass: ConvPass::Input { size } | ConvPass::Weight { size }, .. } = op {
        all(size);
    }
}
