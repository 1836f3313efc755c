//! Regions around a matmul or a convolution (anchor op): it runs by its own kernel, and the ops after it as one kernel
//! in the memory of its result.

use super::cache::{AllGiven, Given, program_bytes};
use super::fused::Region;
use super::weights::with_integers;
use crate::Cpu;
use crate::array::Array;
use crate::contraction;
use alloc::vec::Vec;
use kiln_ir::{
    Engine, FusedOp, Instruction, Op, OpClass, Operands, Pattern, Program, ProgramOperand, Result, Role,
    TensorType, Value, Values,
};

/// A region split at its last anchor op.
pub(super) struct Split {
    /// The ops before the anchor op, run one by one. Returns the anchor op's operands, then all other values that the
    /// rest needs.
    before: Program,
    /// The region inputs that `before` needs.
    inputs: Vec<usize>,
    anchor: Instruction,
    rest: Option<Rest>,
}

/// The ops after the anchor, as a kernel.
struct Rest {
    /// The region inputs that it needs, in order. The results of earlier ops and of the anchor op follow them.
    kept: Vec<usize>,
    region: Region,
}

impl Split {
    /// `None` if there is no anchor op or nothing to run with it, or if the ops after it have no kernel.
    pub(super) fn new(fused: &FusedOp, given: &AllGiven) -> Option<Split> {
        let integers = match fused.pattern() {
            Pattern::QuantizedMatMul(pattern) => with_integers(fused.program(), pattern),
            Pattern::Loop | Pattern::Epilogue(_) => None,
        };
        let program = heroes_first(integers.as_ref().unwrap_or(fused.program()));
        let end = program.instructions.iter().rposition(is_anchor)?;
        let is_more = integers.is_some() || end + 1 < program.instructions.len();
        is_more.then(|| Split::at(&program, end, given)).flatten()
    }

    /// The size in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Split>()
            + program_bytes(&self.before)
            + self.rest.as_ref().map_or(0, |rest| size_of_val(&rest.kept[..]) + rest.region.bytes())
    }

    /// Whether the kernel checks indices.
    pub(super) fn checks(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.region.checks())
    }

    fn at(program: &Program, end: usize, given: &AllGiven) -> Option<Split> {
        let (before, after) = (&program.instructions[..end], &program.instructions[end + 1..]);
        let anchor = &program.instructions[end];
        let inputs = program.inputs.len();
        let product = inputs + before.iter().map(|before| before.results.len()).sum::<usize>();
        let types = program.slot_types();
        let (rest, made) = if after.is_empty() && program.outputs == [ProgramOperand::Slot(product)] {
            (None, Vec::new())
        } else {
            let (rest, made) = Rest::new(program, [end, product], &types, given)?;
            (Some(rest), made)
        };
        let made = made.iter().map(|&slot| ProgramOperand::Slot(slot));
        let outputs: Vec<ProgramOperand> = anchor.operands.iter().copied().chain(made).collect();
        let operands = before.iter().flat_map(|before| &before.operands).chain(&outputs);
        let used = sorted(operands.filter_map(slot).filter(|&slot| slot < inputs));
        let before = Program {
            inputs: used.iter().map(|&slot| types[slot]).collect(),
            instructions: renumbered(before, &used, inputs),
            outputs: outputs.iter().map(|output| place(output, &used, inputs)).collect(),
        };
        Some(Split { before, inputs: used, anchor: anchor.clone(), rest })
    }

    pub(super) fn run(&self, cpu: &Cpu, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        let kept = self.rest.iter().flat_map(|rest| &rest.kept);
        let mut operands: Operands = kept.map(|&place| inputs[place].clone()).collect();
        let before: Operands = self.inputs.iter().map(|&place| inputs[place].clone()).collect();
        drop(inputs);
        let mut of_anchor = self.before.run_region(cpu, before);
        for made in of_anchor.drain(self.anchor.operands.len()..) {
            operands.push(checked(made)?.into());
        }
        for operand in &of_anchor {
            operand.error().map_or(Ok(()), |error| Err(error.clone()))?;
        }
        let ty = self.anchor.results[0];
        let product = if of_anchor.len() > 2 {
            dequantized(cpu, &of_anchor, ty)?
        } else {
            let of_anchor = of_anchor.into_iter().map(Into::into).collect();
            checked(cpu.execute(&self.anchor.op, of_anchor, &[ty]).swap_remove(0))?
        };
        let Some(rest) = &self.rest else { return Ok(core::iter::once(product).collect()) };
        operands.push(product.into());
        rest.region.run(cpu, operands, results)
    }
}

impl Rest {
    /// Builds the kernel of the ops after instruction `end`, whose result is the slot `product`. Also returns the
    /// earlier results that it needs.
    fn new(
        program: &Program,
        [end, product]: [usize; 2],
        types: &[TensorType],
        given: &AllGiven,
    ) -> Option<(Rest, Vec<usize>)> {
        let after = &program.instructions[end + 1..];
        let inputs = program.inputs.len();
        // Inputs, then earlier results, then the anchor op's result.
        let border = product + 1;
        let operands = after.iter().flat_map(|rest| &rest.operands).chain(&program.outputs);
        let needed = sorted(operands.filter_map(slot).filter(|&slot| slot < border).chain([product]));
        let rest = Program {
            inputs: needed.iter().map(|&slot| types[slot]).collect(),
            instructions: renumbered(after, &needed, border),
            outputs: program.outputs.iter().map(|output| place(output, &needed, border)).collect(),
        };
        let kept: Vec<usize> = needed.iter().copied().filter(|&slot| slot < inputs).collect();
        let made = needed[kept.len()..needed.len() - 1].to_vec();
        // Views may have another layout than the rest expects.
        if made.iter().any(|&slot| maker(program, slot).is_none_or(|maker| is_view(&maker.op))) {
            return None;
        }
        let mut given_rest: AllGiven = kept.iter().map(|&slot| given[slot].clone()).collect();
        given_rest.extend(needed[kept.len()..].iter().map(|_| Given::Contiguous));
        let region = Region::new(&rest, &given_rest)?;
        Some((Rest { kept, region }, made))
    }
}

pub(super) fn is_anchor(instruction: &Instruction) -> bool {
    instruction.op.info().role == Role::Anchor
}

/// Reorders the program: the operands of anchor ops come first, so that the rest is one kernel. Op by op it would pass
/// over memory, and round 16-bit floats, once for each op.
fn heroes_first(program: &Program) -> Program {
    let mut leads = alloc::vec![false; program.instructions.len()];
    let mut wanted = alloc::vec![false; program.num_slots()];
    let mut firsts = alloc::vec![0; program.instructions.len()];
    let mut end = program.num_slots();
    for (number, instruction) in program.instructions.iter().enumerate().rev() {
        firsts[number] = end - instruction.results.len();
        leads[number] = is_anchor(instruction) || wanted[firsts[number]..end].contains(&true);
        end = firsts[number];
        instruction.operands.iter().filter_map(slot).for_each(|slot| wanted[slot] |= leads[number]);
    }
    let mut order: Vec<usize> = (0..program.instructions.len()).collect();
    order.sort_by_key(|&number| !leads[number]);
    let mut places: Vec<usize> = (0..program.num_slots()).collect();
    let mut next = program.inputs.len();
    for &number in &order {
        for result in 0..program.instructions[number].results.len() {
            places[firsts[number] + result] = next;
            next += 1;
        }
    }
    let moved = |operand: &ProgramOperand| match *operand {
        ProgramOperand::Slot(slot) => ProgramOperand::Slot(places[slot]),
        ProgramOperand::Scalar(_) => *operand,
    };
    let instructions = order.iter().map(|&number| {
        let instruction = &program.instructions[number];
        Instruction { operands: instruction.operands.iter().map(moved).collect(), ..instruction.clone() }
    });
    Program {
        inputs: program.inputs.clone(),
        instructions: instructions.collect(),
        outputs: program.outputs.iter().map(moved).collect(),
    }
}

/// A matmul with quantized weights: integers, their scales and optional zero points.
fn dequantized(cpu: &Cpu, operands: &[Value], ty: TensorType) -> Result<Value> {
    let (x, q, scale) = (Array::of(&operands[0])?, Array::of(&operands[1])?, Array::of(&operands[2])?);
    let zero = operands.get(3).map(Array::of).transpose()?;
    let product = contraction::matmul_dequantized(cpu, x, (q, operands[1].dtype()), scale, zero, &ty)?;
    Ok(product.into_value(ty))
}

fn checked(value: Value) -> Result<Value> {
    match value.error() {
        Some(error) => Err(error.clone()),
        None => Ok(value),
    }
}

pub(super) fn slot(operand: &ProgramOperand) -> Option<usize> {
    match *operand {
        ProgramOperand::Slot(slot) => Some(slot),
        ProgramOperand::Scalar(_) => None,
    }
}

/// Sorts and deduplicates slots.
fn sorted(slots: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut slots: Vec<usize> = slots.collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// Renumbers an operand for a program whose inputs are some of the slots below `border`, followed by the slots from
/// there on.
fn place(operand: &ProgramOperand, inputs: &[usize], border: usize) -> ProgramOperand {
    match *operand {
        ProgramOperand::Slot(slot) if slot < border => {
            ProgramOperand::Slot(inputs.iter().position(|&input| input == slot).unwrap_or(0))
        }
        ProgramOperand::Slot(slot) => ProgramOperand::Slot(slot - border + inputs.len()),
        ProgramOperand::Scalar(scalar) => ProgramOperand::Scalar(scalar),
    }
}

fn renumbered(instructions: &[Instruction], inputs: &[usize], border: usize) -> Vec<Instruction> {
    let renumbered = |instruction: &Instruction| Instruction {
        operands: instruction.operands.iter().map(|operand| place(operand, inputs, border)).collect(),
        ..instruction.clone()
    };
    instructions.iter().map(renumbered).collect()
}

/// The instruction that defines a slot.
fn maker(program: &Program, slot: usize) -> Option<&Instruction> {
    let mut end = program.inputs.len();
    program.instructions.iter().find(|instruction| {
        end += instruction.results.len();
        slot < end
    })
}

/// Whether the result may have a layout that is not row-major.
fn is_view(op: &Op) -> bool {
    op.info().class == OpClass::View
}
