//! Invalid data poisons the results, and the error names the cause.

use super::{Outcome, guarded, operands, read, types_of};
use crate::case::{Case, Input};
use crate::cases::poison::PoisonCase;
use kiln_ir::{Engine, Error, Op, Operand, Value};

/// Checks that invalid data poisons the results with an error that names it, without a panic.
pub fn check_poison(engine: &dyn Engine, case: &PoisonCase) -> Outcome {
    let mut outcome = Outcome::default();
    let result = guarded(|| {
        let mut outcome = Outcome::default();
        for value in run(engine, &case.op, &case.inputs) {
            outcome.note("error", missing(read(engine, value).err(), &case.error));
        }
        outcome
    });
    outcome.absorb(&case.name, result);
    outcome
}

fn run(engine: &dyn Engine, op: &Op, inputs: &[Input]) -> kiln_ir::Values {
    let list = super::host_operands(&Case::new(op.clone(), inputs.to_vec()));
    let operands = operands(&list, &|_, data| engine.write(data.clone()));
    let types = types_of(op, &operands);
    engine.execute(op, operands, &types)
}

fn missing(error: Option<Error>, texts: &[String]) -> Option<String> {
    let Some(error) = error else { return Some("there is no error".into()) };
    let message = error.to_string();
    let absent: Vec<&String> = texts.iter().filter(|text| !message.contains(*text)).collect();
    if absent.is_empty() { None } else { Some(format!("`{message}` does not mention {absent:?}")) }
}

/// Checks that the results of an op with a poisoned operand, at any index, have the same error.
pub fn check_passing_on(engine: &dyn Engine, op: &Op, inputs: &[Input]) -> Outcome {
    let error = Error::device("suite", "the first cause");
    let mut outcome = Outcome::default();
    for poisoned in 0..inputs.len() {
        let result = guarded(|| {
            let mut outcome = Outcome::default();
            let list = super::host_operands(&Case::new(op.clone(), inputs.to_vec()));
            let mut operands = operands(&list, &|_, data| engine.write(data.clone()));
            let types = types_of(op, &operands);
            let Some(value) = operands[poisoned].value() else { return outcome };
            operands[poisoned] = Operand::Value(Value::poisoned(*value.ty(), error.clone()));
            for value in engine.execute(op, operands, &types) {
                let found = read(engine, value).err();
                let same = found.as_ref() == Some(&error);
                outcome.note("error", (!same).then(|| format!("{found:?} instead of {error:?}")));
            }
            outcome
        });
        outcome.absorb(&format!("{} with operand {poisoned} poisoned", op.name()), result);
    }
    outcome
}
