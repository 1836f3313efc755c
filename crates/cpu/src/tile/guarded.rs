//! Regions that select by a flag, such as an optimizer's update that is skipped after a gradient overflow. If the flag
//! is true, as nearly always, the region runs without the selections and their other operands.

use super::cache::{OperandLayout, OperandLayouts, program_bytes};
use super::fused::{Plan, fused, run_shared};
use crate::Cpu;
use crate::array::Array;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{
    FusedOp, Instruction, Op, Operand, Operands, Pattern, Program, ProgramOperand, QuantizedMatMul,
    REARRANGES, Result, TensorType, Values,
};

/// A region in two forms.
pub(super) struct Guarded {
    /// The inputs that are flags: `bool`s with one element, broadcast.
    flags: Vec<usize>,
    /// The region specialized for true flags.
    assumed: FusedOp,
    /// The inputs of that form.
    kept: Vec<usize>,
    /// The original region.
    whole: FusedOp,
}

impl Guarded {
    /// Specializes a region; `None` if nothing is selected by a flag.
    pub(super) fn new(op: &FusedOp, layouts: &OperandLayouts) -> Option<Guarded> {
        let program = op.program();
        let types = program.slot_types();
        // For each slot, the flag of which it is a view.
        let mut views: Vec<Option<usize>> = alloc::vec![None; types.len()];
        // For each slot, the operand that replaces it if the flags are true.
        let mut stands_for: Vec<ProgramOperand> = (0..types.len()).map(ProgramOperand::Slot).collect();
        let mut flags = Vec::new();
        for (input, (ty, layout)) in program.inputs.iter().zip(layouts).enumerate() {
            views[input] = (ty.dtype.is_bool() && is_one_element(ty, layout)).then_some(input);
        }
        let mut slot = program.inputs.len();
        for instruction in &program.instructions {
            let first = instruction.operands.first();
            let flag = first.and_then(|operand| views[slot_of(operand)?]);
            if instruction.op.is(REARRANGES) {
                views[slot] = flag;
            } else if instruction.op == Op::Select
                && let (Some(flag), ProgramOperand::Slot(picked)) = (flag, instruction.operands[1])
            {
                stands_for[slot] = stands_for[picked];
                flags.push(flag);
            }
            slot += instruction.results.len();
        }
        if flags.is_empty() {
            return None;
        }
        flags.sort_unstable();
        flags.dedup();
        let PrunedProgram { program: assumed, kept, places } = without(program, &stands_for);
        let moved = |slot: usize| slot_of(&stands_for[slot]).map_or(usize::MAX, |slot| places[slot]);
        let assumed = Arc::new(assumed);
        let patterned = FusedOp::with_pattern(assumed.clone(), moved_pattern(op.pattern(), moved));
        // If the pattern does not survive, the engine runs without it.
        let assumed = patterned.unwrap_or_else(|_| FusedOp::new(assumed));
        // A separate program, which gets its own plan.
        let whole = FusedOp::with_pattern(program.clone(), op.pattern().clone()).ok()?;
        Some(Guarded { flags, assumed, kept, whole })
    }

    /// The size in bytes, without the plans of both forms.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Guarded>()
            + size_of_val(&self.flags[..])
            + size_of_val(&self.kept[..])
            + program_bytes(self.assumed.program())
            + program_bytes(self.whole.program())
    }

    pub(super) fn run(&self, cpu: &Cpu, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        for &flag in &self.flags {
            if !holds(&inputs[flag])? {
                return run_shared(cpu, &self.whole, inputs, results, Plan::unguarded);
            }
        }
        let mut kept = Operands::new();
        for (place, operand) in inputs.into_iter().enumerate() {
            if self.kept.binary_search(&place).is_ok() {
                kept.push(operand);
            }
        }
        if self.assumed.program().instructions.is_empty() {
            return Ok(self.assumed.program().run_region(cpu, kept));
        }
        fused(cpu, &self.assumed, kept, results)
    }
}

fn is_one_element(ty: &TensorType, layout: &OperandLayout) -> bool {
    let count = ty.num_elements();
    match layout {
        OperandLayout::Strided(strides) => {
            count > 0 && strides.iter().zip(ty.shape.iter()).all(|(s, n)| *s == 0 || *n == 1)
        }
        OperandLayout::Number | OperandLayout::Contiguous => count == 1,
    }
}

fn holds(flag: &Operand) -> Result<bool> {
    let value = match flag {
        Operand::Scalar(scalar) => return Ok(scalar.to_bool()),
        Operand::Value(value) => value,
    };
    let array = Array::of(value)?;
    // SAFETY: the first element of a `bool`, which was written when the array was made.
    Ok(unsafe { *array.address(1) } != 0)
}

fn slot_of(operand: &ProgramOperand) -> Option<usize> {
    match operand {
        ProgramOperand::Slot(slot) => Some(*slot),
        ProgramOperand::Scalar(_) => None,
    }
}

/// A program after dead-code elimination.
struct PrunedProgram {
    program: Program,
    /// The inputs that it keeps.
    kept: Vec<usize>,
    /// The new index of each slot; `usize::MAX` if it was removed.
    places: Vec<usize>,
}

/// The pattern of a program whose slots moved. An epilogue contains no selections, and its pattern does not survive.
fn moved_pattern(pattern: &Pattern, moved: impl Fn(usize) -> usize) -> Pattern {
    match pattern {
        Pattern::Loop | Pattern::Epilogue(_) => Pattern::Loop,
        Pattern::QuantizedMatMul(QuantizedMatMul { product, x, dequantized, values, scale, zero }) => {
            Pattern::QuantizedMatMul(QuantizedMatMul {
                product: moved(*product),
                x: moved(*x),
                dequantized: moved(*dequantized),
                values: moved(*values),
                scale: moved(*scale),
                zero: zero.map(moved),
            })
        }
    }
}

/// Replaces slots by other operands and eliminates dead code.
fn without(program: &Program, stands_for: &[ProgramOperand]) -> PrunedProgram {
    let resolved = |operand: &ProgramOperand| slot_of(operand).map_or(*operand, |slot| stands_for[slot]);
    let inputs = program.inputs.len();
    let mut needed = alloc::vec![false; stands_for.len()];
    for slot in program.outputs.iter().filter_map(|output| slot_of(&resolved(output))) {
        needed[slot] = true;
    }
    let mut firsts = Vec::with_capacity(program.instructions.len());
    let mut next = inputs;
    for instruction in &program.instructions {
        firsts.push(next);
        next += instruction.results.len();
    }
    let makes = |needed: &[bool], number: usize| {
        needed[firsts[number]..firsts[number] + program.instructions[number].results.len()].contains(&true)
    };
    for number in (0..program.instructions.len()).rev() {
        if makes(&needed, number) {
            for slot in program.instructions[number].operands.iter().filter_map(|x| slot_of(&resolved(x))) {
                needed[slot] = true;
            }
        }
    }
    let kept: Vec<usize> = (0..inputs).filter(|&input| needed[input]).collect();
    let mut places = alloc::vec![usize::MAX; stands_for.len()];
    for (place, &input) in kept.iter().enumerate() {
        places[input] = place;
    }
    let mut made =
        Program { inputs: kept.iter().map(|&input| program.inputs[input]).collect(), ..Program::default() };
    let mut next = kept.len();
    let moved = |operand: &ProgramOperand, places: &[usize]| match resolved(operand) {
        ProgramOperand::Slot(slot) => ProgramOperand::Slot(places[slot]),
        ProgramOperand::Scalar(scalar) => ProgramOperand::Scalar(scalar),
    };
    for (number, instruction) in program.instructions.iter().enumerate() {
        if !makes(&needed, number) {
            continue;
        }
        for (place, slot) in (firsts[number]..).take(instruction.results.len()).enumerate() {
            places[slot] = next + place;
        }
        next += instruction.results.len();
        let operands = instruction.operands.iter().map(|operand| moved(operand, &places)).collect();
        made.instructions.push(Instruction { operands, ..instruction.clone() });
    }
    made.outputs = program.outputs.iter().map(|output| moved(output, &places)).collect();
    PrunedProgram { program: made, kept, places }
}
