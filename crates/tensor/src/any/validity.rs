//! Errors of computations: checks and recovery.

use crate::{AnyTensor, Error, Result, Stack};
use alloc::vec::Vec;
use kiln_ir::{IndexUser, Op, Operand, Operands};

/// Tensors without the errors of their computations; returned by [`AnyTensor::recover`].
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The tensors without errors; the elements of a tensor that had an error are unspecified.
    pub tensors: Vec<AnyTensor>,
    /// `bool[1]`: whether there was no error.
    pub ok: AnyTensor,
    /// `bool[1]`: the same, with the errors. Reading it returns the first error.
    pub cause: AnyTensor,
}

impl AnyTensor {
    /// Returns the outcome of the computation, without waiting for the device: an error, success, or `None` while it is
    /// unknown.
    ///
    /// # Errors
    /// `Some(Err(_))` when the computation failed.
    pub fn outcome(&self) -> Option<Result<()>> {
        self.stack().engine().outcome(self.value())
    }

    /// Removes the errors of computations from tensors, and returns a flag that is false if there was one: see
    /// [`Op::Recover`](kiln_ir::Op::Recover). The flag also covers the `watched` tensors. Does not wait for the device.
    ///
    /// # Errors
    /// When there are no tensors, or their stacks are of different [domains](Stack::domain).
    pub fn recover(
        tensors: Vec<AnyTensor>,
        watched: impl IntoIterator<Item = AnyTensor>,
    ) -> Result<Recovered> {
        const OP: &str = "recover";
        let Some(first) = tensors.first() else {
            return Err(Error::type_error(OP, "needs at least one tensor", &[]));
        };
        let stack = first.stack().clone();
        let stacks: Vec<Stack> = tensors.iter().map(|tensor| tensor.stack().clone()).collect();
        let mut operands = Operands::new();
        for tensor in tensors.into_iter().chain(watched) {
            if !tensor.stack().same_domain(&stack) {
                return Err(Error::type_error(OP, "tensors are on several devices", &[tensor.ty().into()]));
            }
            operands.push(Operand::Value(tensor.into_value()));
        }
        let op = Op::Recover { watched: operands.len() - stacks.len() };
        let mut results = AnyTensor::emit(&stack, &op, operands)?;
        let mut last = || match results.pop() {
            Some(value) => Ok(AnyTensor::new(stack.clone(), value)),
            None => Err(Error::type_error(OP, "must return two flags", &[])),
        };
        let (cause, ok) = (last()?, last()?);
        let tensors =
            stacks.into_iter().zip(results).map(|(stack, value)| AnyTensor::new(stack, value)).collect();
        Ok(Recovered { tensors, ok, cause })
    }

    /// Checks that an index is in `0..length`; the error of an index out of range names the function that the user
    /// called.
    pub(crate) fn checked_for(self, user: IndexUser, length: usize) -> Result<AnyTensor> {
        self.apply(&Op::CheckIndex { length, user }).map_err(|error| error.in_op(user.name()))
    }
}
