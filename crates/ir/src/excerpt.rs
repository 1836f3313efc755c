//! Parts of a program as programs of their own.

use crate::{Instruction, Program, ProgramOperand, TensorType};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A program under construction from instructions of another one.
pub(crate) struct Excerpt {
    pub(crate) program: Program,
    /// The slots of the other program with their slots here.
    places: BTreeMap<usize, usize>,
    next: usize,
}

impl Excerpt {
    /// An excerpt without instructions, whose inputs are these slots of a program with slots of these types.
    pub(crate) fn new(inputs: &[usize], types: &[TensorType]) -> Excerpt {
        let program =
            Program { inputs: inputs.iter().map(|&slot| types[slot]).collect(), ..Program::default() };
        let places = inputs.iter().enumerate().map(|(here, &there)| (there, here)).collect();
        Excerpt { program, places, next: inputs.len() }
    }

    /// Adds an instruction whose results have slots from `first` there.
    pub(crate) fn push(&mut self, instruction: &Instruction, first: usize) {
        let operands = self.operands(&instruction.operands);
        let start = self.push_own(Instruction { operands, ..instruction.clone() });
        self.places.extend((0..instruction.results.len()).map(|result| (first + result, start + result)));
    }

    /// Adds an instruction whose operands are slots here, and returns the slot of its first result.
    pub(crate) fn push_own(&mut self, instruction: Instruction) -> usize {
        let start = self.next;
        self.next += instruction.results.len();
        self.program.instructions.push(instruction);
        start
    }

    /// The operands here of operands there.
    pub(crate) fn operands(&self, operands: &[ProgramOperand]) -> Vec<ProgramOperand> {
        operands.iter().map(|operand| self.operand(operand)).collect()
    }

    pub(crate) fn operand(&self, operand: &ProgramOperand) -> ProgramOperand {
        operand.slot().map_or(*operand, |slot| ProgramOperand::Slot(self.places[&slot]))
    }
}
