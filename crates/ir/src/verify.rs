//! The rules that a program must keep to be run.

use crate::{Error, Op, OperandType, Program, ProgramOperand, Result, TensorType, infer};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Checks a program: every operand is a slot defined above its use, every op accepts its operands, its result types are
/// those that [`infer`](mod@crate::infer) gives, the outputs exist, and the programs of fused ops keep the same rules.
///
/// # Errors
/// When a rule is broken. The message names the instruction, by its number from 0 and its op.
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
    let bytes = ty.shape.checked_num_elements().and_then(|n| n.checked_mul(ty.dtype.size()));
    bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok())
}

fn list(types: &[TensorType]) -> String {
    types.iter().map(|ty| format!("{ty}")).collect::<Vec<_>>().join(", ")
}
