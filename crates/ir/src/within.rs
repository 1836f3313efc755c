//! The custom op that panic messages of [`Var`](crate::Var) name.

use crate::{Custom, Operand, OperandType, Scalar, TensorType, Var};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// A custom op and its operands. Variables derived from its operands in its code carry it.
pub(crate) struct Within {
    op: Custom,
    /// The running method of [`CustomOp`](crate::CustomOp).
    method: &'static str,
    operands: Vec<Described>,
}

/// An operand without its data, so that its memory stays free for results.
enum Described {
    Tensor(TensorType),
    Number(Scalar),
}

impl Within {
    pub(crate) fn new(op: &Custom, method: &'static str, inputs: &[Var<'_>]) -> Arc<Within> {
        let described = |var: &Var<'_>| match var.operand() {
            Operand::Value(value) => Described::Tensor(*value.ty()),
            Operand::Scalar(scalar) => Described::Number(*scalar),
        };
        Arc::new(Within { op: op.clone(), method, operands: inputs.iter().map(described).collect() })
    }
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] `{}` of", self.op.name(), self.method)?;
        for (place, operand) in self.operands.iter().enumerate() {
            let operand = match operand {
                Described::Tensor(ty) => OperandType::Tensor(ty),
                Described::Number(scalar) => OperandType::Scalar(*scalar),
            };
            write!(f, "{} {operand}", if place == 0 { "" } else { " x" })?;
        }
        Ok(())
    }
}

/// Panics for invalid operands in a rule or in the code of a custom op.
#[cold]
#[track_caller]
pub(crate) fn fail(within: Option<&Within>, problem: impl fmt::Display) -> ! {
    match within {
        Some(within) => panic!("{within} emits an invalid op: {problem}"),
        None => panic!("a rule of Kiln emits an invalid op: {problem}"),
    }
}
