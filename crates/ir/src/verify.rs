//! The program verifier.

use crate::{Error, Op, OperandType, Program, ProgramOperand, Result, TensorType, infer};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Verifies a program. Every operand must be a slot defined before its use, and every op must accept its operands.
/// Result types must equal those of [`infer`](mod@crate::infer), and the outputs must exist. The programs of fused ops
/// and loops must be valid too.
///
/// # Errors
/// When a rule is violated. The message contains the instruction's index from 0 and its op.
pub fn verify(program: &Program) -> Result<()> {
    let mut slots: Vec<TensorType> = Vec::new();
    for (number, ty) in program.inputs.iter().enumerate() {
        if !representable(ty) {
            return Err(Error::program(format!("input {number}, {ty}, is too large for this machine")));
        }
        slots.push(*ty);
    }
    for (number, instruction) in program.instructions.iter().enumerate() {
        let at = |problem: String| {
            Error::program(format!("instruction {number}, `{}`: {problem}", instruction.op.name()))
        };
        if let Op::Fused(fused) = &instruction.op {
            verify(fused.program()).map_err(|error| at(format!("{error}")))?;
        }
        if let Op::Loop(looped) = &instruction.op {
            verify(looped.body()).map_err(|error| at(format!("{error}")))?;
        }
        let operands = operand_types(&instruction.operands, &slots).map_err(at)?;
        let types = infer(&instruction.op, &operands).map_err(|error| at(format!("{error}")))?;
        if types[..] != instruction.results[..] {
            let problem = format!("the results are {}, not {}", list(&types), list(&instruction.results));
            return Err(at(problem));
        }
        slots.extend(types);
    }
    operand_types(&program.outputs, &slots)
        .map_err(|problem| Error::program(format!("the outputs: {problem}")))?;
    Ok(())
}

fn operand_types<'s>(
    operands: &[ProgramOperand],
    slots: &'s [TensorType],
) -> Result<Vec<OperandType<'s>>, String> {
    let ty = |operand: &ProgramOperand| match operand {
        ProgramOperand::Scalar(scalar) => Ok(OperandType::Scalar(*scalar)),
        ProgramOperand::Slot(slot) => match slots.get(*slot) {
            Some(ty) => Ok(OperandType::Tensor(ty)),
            None => Err(format!("%{slot} is used before it is defined")),
        },
    };
    operands.iter().map(ty).collect()
}

fn representable(ty: &TensorType) -> bool {
    let bytes = ty.checked_num_bytes();
    bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok())
}

fn list(types: &[TensorType]) -> String {
    types.iter().map(|ty| format!("{ty}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, FusedOp, Instruction, Unary};
    use alloc::string::ToString;
    use alloc::vec;

    fn problem(program: &Program) -> String {
        verify(program).unwrap_err().to_string()
    }

    fn exp_of(slot: usize, results: Vec<TensorType>) -> Program {
        let ty = TensorType::new([2], DType::F32);
        let operands = vec![ProgramOperand::Slot(slot)];
        let instruction = Instruction { op: Op::Unary(Unary::Exp), operands, results };
        Program { inputs: vec![ty], instructions: vec![instruction], outputs: vec![ProgramOperand::Slot(1)] }
    }

    #[test]
    fn slots_are_defined_before_use() {
        let ty = TensorType::new([2], DType::F32);
        assert_eq!(verify(&exp_of(0, vec![ty])), Ok(()));
        let own = problem(&exp_of(1, vec![ty]));
        assert_eq!(own, "[program] instruction 0, `exp`: %1 is used before it is defined");
        let mut program = exp_of(0, vec![ty]);
        program.outputs = vec![ProgramOperand::Slot(2)];
        assert_eq!(problem(&program), "[program] the outputs: %2 is used before it is defined");
    }

    #[test]
    fn result_types_match_inference() {
        let wrong = TensorType::new([3], DType::F32);
        let found = problem(&exp_of(0, vec![wrong]));
        assert_eq!(found, "[program] instruction 0, `exp`: the results are f32[2], not f32[3]");
    }

    #[test]
    fn fused_programs_are_verified() {
        let ty = TensorType::new([2], DType::F32);
        let mut program = exp_of(0, vec![ty]);
        program.instructions[0].op = Op::Fused(FusedOp::new(exp_of(1, vec![ty])));
        assert!(problem(&program).contains("`exp`: %1 is used before it is defined"));
    }
}
