//! Runs a program op by op and stores every value.

use crate::trial::Trial;
use kiln_ir::{
    Engine, Instruction, Op, Operand, OperandType, Operands, ProgramOperand, Scalar, TensorData, TensorType,
    Value, Values, block_on, infer, poison_of, poisoned,
};
use kiln_suite::compare;

/// The value of a slot: data, or the error of a poisoned value.
pub(crate) type Slot = Result<TensorData, String>;

/// Every value of a program, in the order of its slots.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) slots: Vec<Slot>,
    /// Live values that were overwritten.
    pub(crate) changed: Vec<usize>,
}

/// The ownership of values during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// Each op gets the only clone of a value at its last use, as in [`Program::run`](kiln_ir::Program::run), and may
    /// overwrite it.
    Passed,
    /// All values are held to the end: no op may overwrite its operands.
    Kept,
}

/// Runs a program op by op. Each value is read immediately.
pub(crate) fn trace(engine: &dyn Engine, trial: &Trial, ownership: Ownership) -> Trace {
    let program = &trial.program;
    let mut uses = count_uses(trial);
    let mut values: Vec<Option<Value>> =
        trial.inputs.iter().map(|data| Some(engine.write(data.clone()))).collect();
    let mut slots: Vec<Slot> = trial.inputs.iter().cloned().map(Ok).collect();
    for instruction in &program.instructions {
        let mut operands = Operands::new();
        for operand in &instruction.operands {
            operands.push(match *operand {
                ProgramOperand::Scalar(scalar) => scalar.into(),
                ProgramOperand::Slot(slot) => {
                    uses[slot] -= 1;
                    let last = uses[slot] == 0 && ownership == Ownership::Passed;
                    let value = if last { values[slot].take() } else { values[slot].clone() };
                    value.expect("a value is used after its last use").into()
                }
            });
        }
        for value in executed(engine, instruction, operands) {
            slots.push(read(engine, value.clone()));
            let is_live = ownership == Ownership::Kept || uses[values.len()] > 0;
            values.push(is_live.then_some(value));
        }
    }
    let mut changed = Vec::new();
    for (slot, value) in values.into_iter().enumerate() {
        if let Some(value) = value
            && !same(&read(engine, value), &slots[slot])
        {
            changed.push(slot);
        }
    }
    Trace { slots, changed }
}

/// Runs an instruction on operands that may have other types than recorded: after `NonZero`, or after a failed op.
pub(crate) fn executed(engine: &dyn Engine, instruction: &Instruction, operands: Operands) -> Values {
    let inferred = infer(&instruction.op, &OperandType::list(&operands));
    match inferred {
        Ok(types) => engine.execute(&instruction.op, operands, &types),
        Err(error) => poisoned(&instruction.results, &poison_of(&operands).unwrap_or(error)),
    }
}

pub(crate) fn read(engine: &dyn Engine, value: Value) -> Slot {
    block_on(engine.read(value)).map_err(|error| error.to_string())
}

/// Whether both slots have the same type and bits, or both failed.
pub(crate) fn same(a: &Slot, b: &Slot) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => a.ty() == b.ty() && a.bytes() == b.bytes(),
        (Err(_), Err(_)) => true,
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

/// Whether two results are equal except for the bits of NaN. A processor propagates the bits of its first NaN operand, which
/// depends on how the work is split.
pub(crate) fn same_numbers(a: &Slot, b: &Slot) -> bool {
    if same(a, b) {
        return true;
    }
    let (Ok(a), Ok(b)) = (a, b) else { return false };
    if a.ty() != b.ty() || !a.dtype().is_float() {
        return false;
    }
    let size = a.dtype().size();
    let elements = a.bytes().chunks(size).zip(b.bytes().chunks(size));
    let numbers = a.to_vec::<f64>().into_iter().zip(b.to_vec::<f64>());
    elements.zip(numbers).all(|((a, b), (x, y))| a == b || x.is_nan() && y.is_nan())
}

pub(crate) fn describe_difference(expected: &Slot, actual: &Slot) -> String {
    match (expected, actual) {
        (Ok(expected), Ok(actual)) => {
            let exact = compare::difference(expected, actual, kiln_suite::case::Tolerance::Exact);
            let bits = || compare::difference(expected, actual, kiln_suite::case::Tolerance::Bits);
            exact.or_else(bits).unwrap_or_default()
        }
        (Ok(_), Err(error)) => format!("failed: {error}"),
        (Err(error), Ok(_)) => format!("gave a value instead of failing: {error}"),
        (Err(_), Err(_)) => String::new(),
    }
}

/// The number of uses of each slot as operand or output.
fn count_uses(trial: &Trial) -> Vec<usize> {
    let program = &trial.program;
    let mut uses = vec![0; program.num_slots()];
    for operand in program.instructions.iter().flat_map(|i| &i.operands).chain(&program.outputs) {
        if let ProgramOperand::Slot(slot) = operand {
            uses[*slot] += 1;
        }
    }
    uses
}

/// An operand on the host.
#[derive(Clone, Debug)]
pub(crate) enum HostOperand {
    Data(TensorData),
    Number(Scalar),
}

/// The operands of an instruction from a trace; `None` if one has failed.
pub(crate) fn host_operands(instruction: &Instruction, slots: &[Slot]) -> Option<Vec<HostOperand>> {
    let one = |operand: &ProgramOperand| match operand {
        ProgramOperand::Scalar(scalar) => Some(HostOperand::Number(*scalar)),
        ProgramOperand::Slot(slot) => slots[*slot].as_ref().ok().cloned().map(HostOperand::Data),
    };
    instruction.operands.iter().map(one).collect()
}

/// Runs an op on operands from the host, with inferred result types. Returns errors of inference and of values.
pub(crate) fn run_on(engine: &dyn Engine, op: &Op, list: &[HostOperand]) -> Result<Vec<TensorData>, String> {
    let operands: Operands = list
        .iter()
        .map(|operand| match operand {
            HostOperand::Data(data) => Operand::Value(engine.write(data.clone())),
            HostOperand::Number(scalar) => Operand::Scalar(*scalar),
        })
        .collect();
    let types: Vec<TensorType> =
        infer(op, &OperandType::list(&operands)).map_err(|e| e.to_string())?.to_vec();
    engine.execute(op, operands, &types).into_iter().map(|value| read(engine, value)).collect()
}
