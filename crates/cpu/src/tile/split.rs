//! Regions around a matrix product or a convolution: it runs by its own kernel, and what follows as one kernel in the memory
//! of its result.

use super::cache::{AllGiven, Given};
use super::fused::Region;
use crate::Cpu;
use alloc::vec::Vec;
use kiln_ir::{Instruction, Op, Operands, Program, ProgramOperand, Result, TensorType, Values};

/// A region cut after its last instruction that is no kernel.
pub(super) struct Split {
    /// What runs op by op: it returns everything that the rest needs of it.
    first: Program,
    /// Of the inputs, those that the rest needs, in order; its other operands are the results of `first`.
    kept: Vec<usize>,
    rest: Region,
}

impl Split {
    /// `None` where there is no product or convolution, or what follows is no kernel.
    pub(super) fn new(program: &Program, given: &AllGiven) -> Option<Split> {
        let hero = |instruction: &Instruction| matches!(instruction.op, Op::MatMul | Op::Conv { .. });
        let end = program.instructions.iter().rposition(hero)? + 1;
        let inputs = program.inputs.len();
        let types = program.slot_types();
        let made: usize = program.instructions[..end].iter().map(|first| first.results.len()).sum();
        let border = inputs + made;
        let after = &program.instructions[end..];
        if after.is_empty() {
            return None;
        }
        let mut needed: Vec<usize> = Vec::new();
        for operand in after.iter().flat_map(|rest| &rest.operands).chain(&program.outputs) {
            if let ProgramOperand::Slot(slot) = *operand
                && slot < border
                && !needed.contains(&slot)
            {
                needed.push(slot);
            }
        }
        needed.sort_unstable();
        let place = |operand: &ProgramOperand| match *operand {
            ProgramOperand::Slot(slot) if slot < border => {
                ProgramOperand::Slot(needed.iter().position(|&other| other == slot).unwrap_or(0))
            }
            ProgramOperand::Slot(slot) => ProgramOperand::Slot(slot - border + needed.len()),
            ProgramOperand::Scalar(scalar) => ProgramOperand::Scalar(scalar),
        };
        let rest = Program {
            inputs: needed.iter().map(|&slot| types[slot]).collect(),
            instructions: after
                .iter()
                .map(|instruction| Instruction {
                    operands: instruction.operands.iter().map(place).collect(),
                    ..instruction.clone()
                })
                .collect(),
            outputs: program.outputs.iter().map(place).collect(),
        };
        let kept: Vec<usize> = needed.iter().copied().filter(|&slot| slot < inputs).collect();
        let of_first = needed[kept.len()..].iter().map(|&slot| ProgramOperand::Slot(slot));
        let first = Program {
            inputs: program.inputs.clone(),
            instructions: program.instructions[..end].to_vec(),
            outputs: of_first.collect(),
        };
        // Views of a product would not lie as the rest expects.
        let views = |slot: &&usize| {
            let of = first.instructions.iter().scan(inputs, |next, instruction| {
                *next += instruction.results.len();
                Some((*next, &instruction.op))
            });
            of.into_iter().find(|(next, _)| **slot < *next).is_some_and(|(_, op)| is_view(op))
        };
        if needed[kept.len()..].iter().any(|slot| views(&slot)) {
            return None;
        }
        let mut given_rest: AllGiven = kept.iter().map(|&slot| given[slot].clone()).collect();
        given_rest.extend(first.outputs.iter().map(|_| Given::Contiguous));
        let rest = Region::new(&rest, &given_rest)?;
        Some(Split { first, kept, rest })
    }

    pub(super) fn run(&self, cpu: &Cpu, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        let mut operands: Operands = self.kept.iter().map(|&place| inputs[place].clone()).collect();
        let made = self.first.run_region(cpu, inputs);
        for value in made {
            if let Some(error) = value.error() {
                return Err(error.clone());
            }
            operands.push(value.into());
        }
        self.rest.run(cpu, operands, results)
    }
}

/// Whether the result may lie in memory in another way than row by row.
fn is_view(op: &Op) -> bool {
    matches!(
        op,
        Op::Reshape(_)
            | Op::Permute(_)
            | Op::Broadcast(_)
            | Op::Slice(_)
            | Op::Windows { .. }
            | Op::Bitcast(_)
    )
}
