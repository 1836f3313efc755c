//! Execution of ops.

use crate::{AnyTensor, Error, Result, Stack};
use alloc::format;
use alloc::vec::Vec;
use kiln_autodiff::Autodiff;
use kiln_ir::{Op, Operand, OperandType, Operands, Values, infer};
use smallvec::smallvec;

impl AnyTensor {
    /// Runs any op on operands of one stack, and returns all results.
    ///
    /// # Errors
    /// When the op does not accept the operands: see [`infer`](kiln_ir::infer()). The stacks of the operands are not
    /// compared.
    pub fn emit(stack: &Stack, op: &Op, inputs: Operands) -> Result<Values> {
        let types = infer(op, &OperandType::list(&inputs))?;
        Ok(stack.execute(op, inputs, &types))
    }

    /// Runs an op with `self` as the only operand and a single result.
    ///
    /// # Errors
    /// When the op does not accept the tensor, or returns no result.
    #[inline]
    pub fn apply(self, op: &Op) -> Result<AnyTensor> {
        let types = infer(op, &[OperandType::Tensor(self.value.ty())])?;
        let results = self.stack.execute(op, smallvec![Operand::Value(self.value)], &types);
        AnyTensor::only(self.stack, op, results)
    }

    /// Like [`apply`](AnyTensor::apply), without blocking the thread where the op needs data on the host: see
    /// [`execute_async`](kiln_ir::Engine::execute_async).
    ///
    /// # Errors
    /// As [`apply`](AnyTensor::apply).
    pub async fn apply_async(self, op: &Op) -> Result<AnyTensor> {
        let types = infer(op, &[OperandType::Tensor(self.value.ty())])?;
        let AnyTensor { stack, value } = self;
        let results = stack.engine().execute_async(op, smallvec![Operand::Value(value)], &types).await;
        AnyTensor::only(stack, op, results)
    }

    /// Returns the result of an op with a single one.
    #[inline]
    pub(crate) fn only(stack: Stack, op: &Op, mut results: Values) -> Result<AnyTensor> {
        match results.pop() {
            Some(value) => Ok(AnyTensor { stack, value }),
            None => Err(Error::type_error(op.name(), "returns no result", &[])),
        }
    }

    /// Runs an op with `self` as the first operand, and returns all results.
    ///
    /// # Errors
    /// As [`emit`](AnyTensor::emit).
    pub fn apply_many(self, op: &Op, rest: impl IntoIterator<Item = Operand>) -> Result<Vec<AnyTensor>> {
        let AnyTensor { stack, value } = self;
        let inputs: Operands = core::iter::once(value.into()).chain(rest).collect();
        let results = AnyTensor::emit(&stack, op, inputs)?;
        Ok(results.into_iter().map(|value| AnyTensor::new(stack.clone(), value)).collect())
    }

    /// Like [`apply_with`](AnyTensor::apply_with), without blocking the thread where the op needs data on the host.
    ///
    /// # Errors
    /// As [`emit`](AnyTensor::emit).
    ///
    /// # Panics
    /// When the op returns no result.
    pub async fn apply_with_async(
        self,
        op: &Op,
        rest: impl IntoIterator<Item = Operand>,
    ) -> Result<AnyTensor> {
        let AnyTensor { stack, value } = self;
        let inputs: Operands = core::iter::once(value.into()).chain(rest).collect();
        let types = infer(op, &OperandType::list(&inputs))?;
        let mut results = stack.engine().execute_async(op, inputs, &types).await;
        Ok(AnyTensor { stack, value: results.swap_remove(0) })
    }

    /// Runs an op with `self` as the first operand, and returns the first result.
    ///
    /// # Errors
    /// As [`emit`](AnyTensor::emit).
    ///
    /// # Panics
    /// When the op returns no result.
    pub fn apply_with(self, op: &Op, rest: impl IntoIterator<Item = Operand>) -> Result<AnyTensor> {
        let AnyTensor { stack, value } = self;
        let inputs: Operands = core::iter::once(value.into()).chain(rest).collect();
        let mut results = AnyTensor::emit(&stack, op, inputs)?;
        Ok(AnyTensor { stack, value: results.swap_remove(0) })
    }

    /// Checks that both tensors may be operands of one op.
    #[inline]
    pub(crate) fn in_same_domain(&self, op: &str, other: &AnyTensor) -> Result<()> {
        if self.stack.same_domain(&other.stack) { Ok(()) } else { Err(self.in_other_domain(op, other)) }
    }

    #[cold]
    fn in_other_domain(&self, op: &str, other: &AnyTensor) -> Error {
        let [here, there] = self.stack.distinguishable_names(&other.stack);
        let problem = format!("tensors are on different devices: {here} and {there}");
        let is_inside = self.stack.is_at_or_above(&other.stack);
        let inside = if is_inside { &self.stack } else { &other.stack };
        let hint = match is_inside || other.stack.is_at_or_above(&self.stack) {
            true if inside.outermost::<Autodiff>().is_some() => {
                "bring the one from outside in with `lift`: `inside.lift(outside)`; the inputs of a model from `valid()` \
                 are on `device.inner()`, without automatic differentiation"
            }
            true => "bring the one from outside in with `lift`: `inside.lift(outside)`",
            false => "move one of them with `to_device`",
        };
        Error::type_error(op, problem, &[self.ty().into(), other.ty().into()]).hint(hint)
    }

    pub(crate) fn check_axes(&self, op: &str, axes: &[usize]) -> Result<()> {
        let rank = self.shape().rank();
        if let Some(axis) = axes.iter().find(|&&axis| axis >= rank) {
            return Err(crate::axis::out_of_range(op, axis, self.ty()));
        }
        Ok(())
    }
}
