//! A function on its way from tensors to expressions of ops and back.

use crate::op::Signature;
use kiln_ir::infer::broadcast_shapes;
use kiln_ir::{DType, Error, OperandType, Result, Shape, TensorType, Var};
use kiln_tensor::{AnyTensor, Stack};

/// A function with its operands, which are of one domain and of one float dtype. Expressions are in `f32` where that is a
/// 16-bit float.
pub(crate) struct Call {
    name: &'static str,
    stack: Stack,
    types: Vec<TensorType>,
}

impl Call {
    pub(crate) fn new(name: &'static str, operands: &[&AnyTensor]) -> Result<Call> {
        let call = Call {
            name,
            stack: operands[0].stack().clone(),
            types: operands.iter().map(|operand| *operand.ty()).collect(),
        };
        for (place, operand) in operands.iter().enumerate() {
            call.check(|signature| signature.float(place).map(|_| ()))?;
            call.check(|signature| signature.same_dtype(&call.types[0], operand.ty()))?;
            call.in_domain(operand)?;
        }
        Ok(call)
    }

    /// An error unless the tensor may meet the operands of the call in one op.
    pub(crate) fn in_domain(&self, tensor: &AnyTensor) -> Result<()> {
        if tensor.stack().same_domain(&self.stack) {
            return Ok(());
        }
        let [here, there] = self.stack.distinguishable_names(tensor.stack());
        let problem = format!("tensors are on different devices: {here} and {there}");
        Err(self.error(problem).hint("move one of them with `to_device`"))
    }

    /// Checks operands.
    fn check<R>(&self, check: impl FnOnce(Signature<'_>) -> Result<R>) -> Result<R> {
        let operands: Vec<OperandType<'_>> = self.types.iter().map(OperandType::from).collect();
        check(Signature::of_function(self.name, &operands))
    }

    /// An error about the operands.
    pub(crate) fn error(&self, problem: impl Into<String>) -> Error {
        let problem = problem.into();
        let made = self.check(|signature| Ok(signature.error(problem)));
        made.unwrap_or_else(|error| error)
    }

    /// Rows and columns of an operand, which must have matrices in its last two axes.
    pub(crate) fn matrix(&self, place: usize) -> Result<(usize, usize)> {
        self.check(|signature| Ok(crate::op::last_two(&signature.matrix(place)?.shape)))
    }

    /// The size of the square matrices of an operand.
    pub(crate) fn square(&self, place: usize) -> Result<usize> {
        self.check(|signature| Ok(crate::op::last_two(&signature.square(place)?.shape).0))
    }

    /// The dtype in which expressions are.
    pub(crate) fn dtype(&self) -> DType {
        if self.types[0].dtype == DType::F64 { DType::F64 } else { DType::F32 }
    }

    /// The distance from 1 to the next number in which expressions are.
    pub(crate) fn epsilon(&self) -> f64 {
        if self.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) }
    }

    /// An operand, for expressions.
    pub(crate) fn var(&self, tensor: &AnyTensor) -> Var<'_> {
        self.plain(tensor).cast(self.dtype())
    }

    /// A tensor of any dtype, for expressions.
    pub(crate) fn plain(&self, tensor: &AnyTensor) -> Var<'_> {
        Var::new(self.stack.engine(), tensor.value().clone())
    }

    /// The result of an expression, in the dtype of the operands if it is a float.
    pub(crate) fn done(&self, var: Var<'_>) -> AnyTensor {
        let var = if var.dtype().is_float() { var.cast(self.types[0].dtype) } else { var };
        AnyTensor::new(self.stack.clone(), var.into_value())
    }

    /// Integers in the stack's own dtype.
    pub(crate) fn integers(&self, var: Var<'_>) -> AnyTensor {
        let dtype = self.stack.int_dtype();
        AnyTensor::new(self.stack.clone(), var.cast(dtype).into_value())
    }

    /// Both with the same leading axes, which broadcast.
    pub(crate) fn together<'c>(&'c self, a: &Var<'c>, b: &Var<'c>) -> Result<(Var<'c>, Var<'c>)> {
        let (left, right) = (a.shape(), b.shape());
        let batch = broadcast_shapes(&left[..left.rank() - 2].into(), &right[..right.rank() - 2].into());
        let Some(batch) = batch else {
            return Err(self
                .error("leading axes do not broadcast")
                .hint("aligned from the right they must be equal or 1, without the last two"));
        };
        let fit = |var: &Var<'c>| {
            let shape = var.shape();
            let last = &shape[shape.rank() - 2..];
            var.broadcast(batch.iter().chain(last).copied().collect::<Shape>())
        };
        Ok((fit(a), fit(b)))
    }
}
