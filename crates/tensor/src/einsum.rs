//! Einstein summation: sums of products of tensors, written as a formula over the names of their axes.

mod contract;
mod grammar;
mod operands;
mod order;

pub use operands::{EinsumOperand, EinsumOperands};
pub use order::{EinsumPath, EinsumStep};

use crate::tensor::ok;
use crate::{AnyTensor, Error, Result, Shape, Tensor};
use alloc::vec::Vec;
use grammar::Equation;
use kiln_ir::OperandType;

/// Sums of products of tensors: `einsum("bij,bjk->bik", [a, b])` is a batch of matrix products.
///
/// Each operand has one letter per axis; axes with the same letter run together. Letters that are missing on the right of
/// `->` are summed over.
///
/// | equation | is |
/// |---|---|
/// | `"ij,jk->ik"`, `"bij,bjk->bik"` | matrix products |
/// | `"ij->ji"`, `"ij->j"`, `"ij->"` | transpose, sum of columns, sum of all |
/// | `"ii->i"`, `"ii->"` | diagonal, trace |
/// | `"i,j->ij"`, `"i,i->"` | outer and dot product |
/// | `"...ij,...jk->...ik"` | matrix products over any axes before, which broadcast |
/// | `"bqhd,bkhd->bhqk"` | the scores of attention |
///
/// The rules are those of PyTorch: letters are `a-z` and `A-Z`; spaces mean nothing; `...` stands for axes without
/// letters, aligned from the right, and summed over where the output does not have it; axes of one letter have equal lengths
/// or length 1, which repeats (within one operand: equal); without `->` the output is the `...` followed by the letters that
/// occur once, upper case first, in alphabetical order.
///
/// Operands are an array or vector of tensors of one rank, or a tuple of tensors of any ranks (up to eight); references
/// will do. Three and more are contracted two at a time in the order that takes the fewest operations (the best of all
/// orders up to eight operands, a greedy one beyond; [`EinsumPath`] shows it), each pair as one matrix product.
/// `D` is the number of axes of the output; an output without axes is a `Tensor<B, 0>`, or a `Tensor<B, 1>` of one element.
/// The dtype of the operands is that of the output; 8-bit integers are summed as `i32` and wrap.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Tensor, einsum};
///
/// let device = Default::default();
/// let a = Tensor::<Flex, 2>::from_floats([[1.0f32, 2.0], [3.0, 4.0]], &device);
/// let x = Tensor::<Flex, 1>::from_floats([10.0f32, 1.0], &device);
/// let y: Tensor<Flex, 1> = einsum("ij,j->i", (&a, &x));
/// assert_eq!(y.into_data().to_vec::<f32>(), [12.0, 34.0]);
/// let trace: Tensor<Flex, 0> = einsum("ii->", [a]);
/// assert_eq!(trace.into_data().to_vec::<f32>(), [5.0]);
/// ```
///
/// # Panics
/// When the equation is not well formed, or does not fit the operands or `D`; the message names the letter, the operands
/// and the lengths. [`AnyTensor::einsum`] returns the error instead.
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.einsum.html>
#[track_caller]
pub fn einsum<T: EinsumOperands, const D: usize>(
    equation: &str,
    operands: T,
) -> Tensor<T::Backend, D, T::Kind> {
    let result = ok(AnyTensor::einsum(equation, operands.into_anys()));
    Tensor::from_any(if result.rank() == 0 && D == 1 { ok(result.reshape([1])) } else { result })
}

impl AnyTensor {
    /// Sums of products of tensors of any ranks. See [`einsum`].
    ///
    /// ```
    /// use kiln_backends::Device;
    /// use kiln_tensor::{AnyTensor, TensorData};
    ///
    /// let x = AnyTensor::from_data(TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]), &Device::cpu());
    /// let columns = AnyTensor::einsum("ij->j", [x])?;
    /// assert_eq!(columns.into_data()?.to_vec::<f32>(), [4.0, 6.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the equation is not well formed or does not fit the operands, they differ in dtype or device, or are `bool`.
    pub fn einsum(equation: &str, operands: impl IntoIterator<Item = AnyTensor>) -> Result<AnyTensor> {
        evaluate(equation, operands.into_iter().collect())
    }
}

fn evaluate(text: &str, operands: Vec<AnyTensor>) -> Result<AnyTensor> {
    let shapes: Vec<Shape> = operands.iter().map(|operand| *operand.shape()).collect();
    let equation = Equation::parse(text, &shapes).map_err(|problem| {
        let types: Vec<OperandType<'_>> = operands.iter().map(|operand| operand.ty().into()).collect();
        problem.into_error(&types)
    })?;
    check_dtypes(&operands)?;
    contract::evaluate(&equation, operands)
}

/// Operands are numbers of one dtype on one device.
fn check_dtypes(operands: &[AnyTensor]) -> Result<()> {
    let Some(first) = operands.first() else { return Ok(()) };
    for other in operands {
        first.in_same_domain("einsum", other)?;
        let types = [first.ty().into(), other.ty().into()];
        if other.dtype().is_bool() {
            return Err(Error::type_error("einsum", "needs numbers", &types).hint("cast `bool` operands"));
        }
        if other.dtype() != first.dtype() {
            return Err(Error::type_error("einsum", "dtypes differ", &types).hint("cast one of the operands"));
        }
    }
    Ok(())
}
