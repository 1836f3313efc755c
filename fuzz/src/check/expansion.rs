//! Checks that the expansion of each op agrees with the op.

use super::{Check, Counts, Failure, round_trip};
use crate::tolerance::{Computed, difference};
use crate::trace::{HostOperand, Ownership, host_operands, read, run_on, trace};
use crate::trial::Trial;
use kiln_ir::{
    Engine, Instruction, MINIMAL, Op, OpKind, OperandType, Program, ProgramOperand, TensorData, Values,
    expand_program, infer, verify,
};
use kiln_suite::engines::reference;

/// Maximum number of elements of checked operands: expansions of sorts and contractions materialize large
/// intermediates.
const MAX_ELEMENTS: usize = 700;

/// Checks that the expansion of the whole program is valid, then runs the expansion of each op on the reference, with
/// its operands in the program.
pub(super) fn check(trial: &Trial, counts: &mut Counts) -> Result<(), Failure> {
    let failed = |message: String| Failure::of_program(Check::Expansion, message);
    if trial.program.instructions.iter().all(|i| MINIMAL.contains(i.op.kind())) {
        return Ok(());
    }
    let expanded = expand_program(&trial.program, MINIMAL).map_err(|error| failed(error.to_string()))?;
    verify(&expanded).map_err(|error| failed(format!("the expansion is invalid: {error}\n{expanded}")))?;
    round_trip(&expanded).map_err(failed)?;
    let trace = trace(&reference(), trial, Ownership::Passed);
    for (number, instruction) in trial.program.instructions.iter().enumerate() {
        if let Some(list) = host_operands(instruction, &trace.slots)
            && is_worth(&instruction.op, &list)
        {
            let check = of_op(instruction, &list, counts);
            check
                .map_err(|message| Failure::of_instruction(Check::Expansion, number, instruction, message))?;
        }
    }
    Ok(())
}

/// Whether the expansion of an op is checked. Regions expand op by op, which other programs cover.
fn is_worth(op: &Op, list: &[HostOperand]) -> bool {
    let small = |operand: &HostOperand| match operand {
        HostOperand::Data(data) => data.num_elements() <= MAX_ELEMENTS,
        HostOperand::Number(_) => true,
    };
    let has_own = !MINIMAL.contains(op.kind()) || op.kind() == OpKind::Collective;
    has_own && op.kind() != OpKind::Fused && list.iter().all(small)
}

fn of_op(instruction: &Instruction, list: &[HostOperand], counts: &mut Counts) -> Result<(), String> {
    let reference = reference();
    // The op reports an index out of range; its expansion cannot.
    let Ok(expected) = run_on(&reference, &instruction.op, list) else { return Ok(()) };
    let (program, inputs) = alone(instruction, list);
    let expanded = expand_program(&program, MINIMAL).map_err(|error| error.to_string())?;
    verify(&expanded).map_err(|error| format!("the expansion is invalid: {error}\n{expanded}"))?;
    let results =
        expanded.run(&reference, inputs.iter().map(|data| reference.write(data.clone())).collect::<Values>());
    let actual = results.into_iter().map(|value| read(&reference, value)).collect::<Result<Vec<_>, _>>()?;
    counts.expansions += 1;
    match difference(&instruction.op, list, &expected, &actual, Computed::Expanded) {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

/// A program of one op, with its tensor operands as inputs. Input types are those of the data.
fn alone(instruction: &Instruction, list: &[HostOperand]) -> (Program, Vec<TensorData>) {
    let mut inputs = Vec::new();
    let mut operands = Vec::new();
    for operand in list {
        operands.push(match operand {
            HostOperand::Number(scalar) => ProgramOperand::Scalar(*scalar),
            HostOperand::Data(data) => {
                inputs.push(data.clone());
                ProgramOperand::Slot(inputs.len() - 1)
            }
        });
    }
    let mut program = Program { inputs: inputs.iter().map(|data| data.ty()).collect(), ..Program::default() };
    let slots = program.inputs.clone();
    let operand_types: Vec<OperandType<'_>> = operands
        .iter()
        .map(|operand| match operand {
            ProgramOperand::Slot(slot) => OperandType::Tensor(&slots[*slot]),
            ProgramOperand::Scalar(scalar) => OperandType::Scalar(*scalar),
        })
        .collect();
    let results = infer(&instruction.op, &operand_types).expect("the op ran on these types").to_vec();
    program.outputs = (0..results.len()).map(|place| ProgramOperand::Slot(inputs.len() + place)).collect();
    program.instructions = vec![Instruction { op: instruction.op.clone(), operands, results }];
    (program, inputs)
}
