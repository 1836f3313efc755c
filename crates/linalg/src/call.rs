//! Conversion of a function call from tensors to expressions of ops and back.

use crate::op::Signature;
use kiln_ir::infer::broadcast_shapes;
use kiln_ir::{DType, Error, OperandType, Result, Shape, TensorType, Var};
use kiln_tensor::{AnyTensor, Stack};

/// A function and its operands, which have one domain and one float dtype. Expressions of 16-bit operands are computed
/// in `f32`.
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

    /// Checks that the tensor has the domain of the operands.
    pub(crate) fn in_domain(&self, tensor: &AnyTensor) -> Result<()> {
        if tensor.stack().same_domain(&self.stack) {
            return Ok(());
        }
        let [here, there] = self.stack.distinguishable_names(tensor.stack());
        let problem = format!("tensors are on different devices: {here} and {there}");
        Err(self.error(problem).hint("move one of them with `to_device`"))
    }

    /// Runs a check of the operands.
    fn check<R>(&self, check: impl FnOnce(Signature<'_>) -> Result<R>) -> Result<R> {
        let operands: Vec<OperandType<'_>> = self.types.iter().map(OperandType::from).collect();
        check(Signature::of_function(self.name, &operands))
    }

    /// Returns an error about the operands.
    pub(crate) fn error(&self, problem: impl Into<String>) -> Error {
        let problem = problem.into();
        let made = self.check(|signature| Ok(signature.error(problem)));
        made.unwrap_or_else(|error| error)
    }

    /// Returns rows and columns of the matrices in an operand's last two dimensions.
    pub(crate) fn matrix(&self, place: usize) -> Result<(usize, usize)> {
        self.check(|signature| Ok(crate::op::last_two(&signature.matrix(place)?.shape)))
    }

    /// Returns the size of an operand's square matrices.
    pub(crate) fn square(&self, place: usize) -> Result<usize> {
        self.check(|signature| Ok(crate::op::last_two(&signature.square(place)?.shape).0))
    }

    /// Returns the dtype of expressions.
    pub(crate) fn dtype(&self) -> DType {
        if self.types[0].dtype == DType::F64 { DType::F64 } else { DType::F32 }
    }

    /// Returns the machine epsilon of the expressions' dtype.
    pub(crate) fn epsilon(&self) -> f64 {
        if self.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) }
    }

    /// Returns an operand as an expression.
    pub(crate) fn var(&self, tensor: &AnyTensor) -> Var<'_> {
        self.plain(tensor).cast(self.dtype())
    }

    /// Returns a tensor of any dtype as an expression.
    pub(crate) fn plain(&self, tensor: &AnyTensor) -> Var<'_> {
        Var::new(self.stack.engine(), tensor.value().clone())
    }

    /// Converts an expression to the result. A float result has the dtype of the operands.
    pub(crate) fn done(&self, var: Var<'_>) -> AnyTensor {
        let var = if var.dtype().is_float() { var.cast(self.types[0].dtype) } else { var };
        AnyTensor::new(self.stack.clone(), var.into_value())
    }

    /// Converts an expression to integers of the stack's own dtype.
    pub(crate) fn integers(&self, var: Var<'_>) -> AnyTensor {
        let dtype = self.stack.int_dtype();
        AnyTensor::new(self.stack.clone(), var.cast(dtype).into_value())
    }

    /// Broadcasts the batch dimensions of both.
    pub(crate) fn together<'c>(&'c self, a: &Var<'c>, b: &Var<'c>) -> Result<(Var<'c>, Var<'c>)> {
        let (left, right) = (a.shape(), b.shape());
        let batch = broadcast_shapes(&left[..left.rank() - 2].into(), &right[..right.rank() - 2].into());
        let Some(batch) = batch else {
            return Err(self
                .error("batch dimensions do not broadcast")
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
