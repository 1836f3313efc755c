//! Tracing of tensor functions into programs.

use crate::{AnyTensor, DType, Error, Result, Stack, TensorData, TensorType};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use kiln_ir::{Operand, Program, Recorder, Value};

/// A traced program: the ops of a function for inputs of given types. See [`capture`].
#[derive(Clone, Debug)]
pub struct Captured {
    program: Program,
    constants: Vec<TensorData>,
}

/// Traces `f` with inputs of these types into a program, without running its ops.
///
/// The result can be printed (in Kiln's text form of programs), inspected, and [run](Captured::run) on any device. Data
/// that `f` creates becomes constants of the program. Rust control flow runs once, while tracing: a loop is unrolled,
/// and only the executed branch is traced. Each run draws random numbers again, from fixed keys.
///
/// ```
/// use kiln_tensor::{DType, TensorType, capture};
///
/// let ty = TensorType::new([2, 3], DType::F32);
/// let captured = capture(&[ty, ty], |x| Ok(vec![x[0].clone().mul(x[1].clone())?]))?;
/// assert!(captured.to_string().contains("mul"));
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
///
/// # Errors
/// The errors of `f`. Reading a tensor is an error, because there are no elements while tracing. Using a tensor of
/// another device is an error; pass it as an input.
pub fn capture(
    inputs: &[TensorType],
    f: impl FnOnce(&[AnyTensor]) -> Result<Vec<AnyTensor>>,
) -> Result<Captured> {
    let recorder = Arc::new(Recorder::with_constants(inputs));
    let stack = Stack::new(recorder.clone(), "capture", DType::F32, DType::I32);
    let wrap = |value: Value| AnyTensor::new(stack.clone(), value);
    let inputs: Vec<AnyTensor> = recorder.inputs().into_iter().map(wrap).collect();
    let outputs = f(&inputs)?;
    if let Some(other) = outputs.iter().find(|output| !output.stack().same_domain(&stack)) {
        let problem = format!("a result is on {:?} and does not depend on the inputs", other.stack());
        return Err(Error::type_error("capture", problem, &[other.ty().into()])
            .hint("compute it from the inputs, or pass its operands as inputs"));
    }
    let outputs: Vec<Operand> = outputs.into_iter().map(|output| output.into_value().into()).collect();
    Ok(Captured { program: recorder.finish(&outputs), constants: recorder.constants() })
}

impl Captured {
    /// Returns the program. Its last inputs are the [constants](Captured::constants).
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the constants: the data that the function created.
    pub fn constants(&self) -> &[TensorData] {
        &self.constants
    }

    /// Runs the program on the device of the inputs.
    ///
    /// # Errors
    /// When there are no inputs, their types differ from the traced types, or they are on different devices.
    pub fn run(&self, inputs: &[AnyTensor]) -> Result<Vec<AnyTensor>> {
        let expected = &self.program.inputs[..self.program.inputs.len() - self.constants.len()];
        let (Some(first), true) = (inputs.first(), inputs.iter().map(AnyTensor::ty).eq(expected)) else {
            let types: Vec<_> = inputs.iter().map(|input| input.ty().into()).collect();
            let expected: Vec<_> = expected.iter().map(|ty| format!("{ty}")).collect();
            let problem = format!("the program expects {}", expected.join(" x "));
            return Err(
                Error::type_error("capture", problem, &types).hint("capture the function for these types")
            );
        };
        inputs.iter().try_for_each(|input| first.in_same_domain("capture", input))?;
        let stack = first.stack();
        let constants = self.constants.iter().map(|data| stack.engine().write(data.clone()));
        let values = inputs.iter().map(|input| input.value().clone()).chain(constants).collect();
        let results = self.program.run(stack.engine(), values);
        Ok(results.into_iter().map(|value| AnyTensor::new(stack.clone(), value)).collect())
    }
}

/// Prints the text form of the program.
impl fmt::Display for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.program.fmt(f)
    }
}
