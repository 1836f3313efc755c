//! Checks of a case, one per mode: functions over any engine.

mod expand;
mod forward;
mod grad;
mod poison;
mod subnormal;
mod value;
mod vmap;

pub use expand::{check_expand, expands};
pub use forward::check_forward;
pub(crate) use grad::compare_slopes;
pub use grad::{check_grad, differentiates};
pub use poison::{check_passing_on, check_poison};
pub use subnormal::{Subnormals, may_flush};
pub use value::{Expected, check_value};
pub use vmap::check_vmap;

use crate::case::{Case, Input};
use crate::engines::reference;
use crate::fill::{Random, filled};
use kiln_ir::{
    Engine, Op, Operand, OperandType, Operands, Scalar, TensorData, TensorType, Value, Values, block_on,
    infer,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The outcome of a check.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The number of comparisons.
    pub checks: usize,
    /// The failures, one text each.
    pub problems: Vec<String>,
    /// Whether a result agrees only after subnormal operands are replaced by zeros. Possible on an engine that flushes
    /// subnormals.
    pub flushes_operands: bool,
}

impl Outcome {
    pub(crate) fn note(&mut self, place: &str, problem: Option<String>) {
        self.checks += 1;
        self.problems.extend(problem.map(|problem| format!("{place}: {problem}")));
    }

    pub(crate) fn absorb(&mut self, place: &str, result: Result<Outcome, String>) {
        match result {
            Ok(outcome) => {
                self.checks += outcome.checks;
                self.flushes_operands |= outcome.flushes_operands;
                self.problems
                    .extend(outcome.problems.into_iter().map(|problem| format!("{place}: {problem}")));
            }
            Err(problem) => self.note(place, Some(problem)),
        }
    }
}

/// An operand of a case, on the host.
#[derive(Clone, Debug)]
pub(crate) enum HostOperand {
    Tensor(TensorData),
    Scalar(Scalar),
    /// The same value as another operand.
    SameAs(usize),
}

/// The operands of a case. The reference computes operands that are results of other ops.
pub(crate) fn host_operands(case: &Case) -> Vec<HostOperand> {
    let reference = reference();
    let mut list: Vec<HostOperand> = case
        .inputs
        .iter()
        .enumerate()
        .map(|(place, input)| match input {
            Input::Tensor(ty, fill) => {
                HostOperand::Tensor(filled(*ty, *fill, &mut Random::new(&case.name, place as u64)))
            }
            Input::Scalar(scalar) => HostOperand::Scalar(*scalar),
            Input::SameAs(place) => HostOperand::SameAs(*place),
            Input::Result { .. } => HostOperand::Scalar(Scalar::Int(0)),
        })
        .collect();
    for (i, input) in case.inputs.iter().enumerate() {
        if let Input::Result { op, inputs, place } = input {
            let operands: Operands = inputs.iter().map(|&place| on(&reference, &list[place])).collect();
            let value = execute(&reference, op, operands).remove(*place);
            list[i] =
                HostOperand::Tensor(read(&reference, value).expect("the reference computes an operand"));
        }
    }
    list
}

fn on(engine: &dyn Engine, operand: &HostOperand) -> Operand {
    match operand {
        HostOperand::Tensor(data) => engine.write(data.clone()).into(),
        HostOperand::Scalar(scalar) => (*scalar).into(),
        HostOperand::SameAs(_) => unreachable!("operands of operands are filled"),
    }
}

/// Writes all operands to an engine.
pub(crate) fn operands(list: &[HostOperand], write: &dyn Fn(usize, &TensorData) -> Value) -> Operands {
    let mut operands = Operands::new();
    for (place, operand) in list.iter().enumerate() {
        operands.push(match operand {
            HostOperand::Tensor(data) => write(place, data).into(),
            HostOperand::Scalar(scalar) => (*scalar).into(),
            HostOperand::SameAs(place) => operands[*place].clone(),
        });
    }
    operands
}

/// Infers the result types and executes an op.
pub(crate) fn execute(engine: &dyn Engine, op: &Op, operands: Operands) -> Values {
    let types = infer(op, &OperandType::list(&operands)).unwrap_or_else(|error| panic!("{error}"));
    engine.execute(op, operands, &types)
}

pub(crate) fn read(engine: &dyn Engine, value: Value) -> kiln_ir::Result<TensorData> {
    block_on(engine.read(value))
}

/// The results of the reference, on the host.
pub(crate) fn expected(op: &Op, list: &[HostOperand]) -> Vec<TensorData> {
    let reference = reference();
    let operands = operands(list, &|_, data| reference.write(data.clone()));
    let values = execute(&reference, op, operands);
    let data = values.into_iter().map(|value| read(&reference, value));
    data.map(|data| data.unwrap_or_else(|error| panic!("the reference fails: {error}"))).collect()
}

/// The inferred result types. `nonzero` determines its shape by its value.
pub(crate) fn types_of(op: &Op, operands: &Operands) -> Vec<TensorType> {
    infer(op, &OperandType::list(operands)).map(|types| types.into_vec()).unwrap_or_default()
}

/// Runs code of an engine under test; a panic becomes a problem.
pub(crate) fn guarded<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
        format!("panicked: {}", text.unwrap_or_else(|| "without a message".into()))
    })
}
