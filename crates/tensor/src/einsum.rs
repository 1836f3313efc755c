//! Einstein summation: tensor contractions, written as an equation over axis labels.

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

/// Computes an Einstein summation: `einsum("bij,bjk->bik", [a, b])` is a batched matmul.
///
/// Each operand has one letter per axis. Axes with the same letter are iterated together. Letters that do not occur on
/// the right of `->` are summed over.
///
/// | equation | operation |
/// |---|---|
/// | `"ij,jk->ik"`, `"bij,bjk->bik"` | matmul, batched matmul |
/// | `"ij->ji"`, `"ij->j"`, `"ij->"` | transpose, sum of columns, sum of all |
/// | `"ii->i"`, `"ii->"` | diagonal, trace |
/// | `"i,j->ij"`, `"i,i->"` | outer and dot product |
/// | `"...ij,...jk->...ik"` | matmul with any batch axes, which broadcast |
/// | `"bqhd,bkhd->bhqk"` | attention scores |
///
/// The rules are PyTorch's:
///
/// * Letters are `a-z` and `A-Z`; spaces are ignored.
/// * `...` stands for axes without letters. They are aligned from the right, and summed over if the output has no
///   `...`.
/// * Axes of one letter have equal lengths, or length 1, which broadcasts (within one operand: equal lengths).
/// * Without `->` the output is `...` followed by the letters that occur once, in alphabetical order, upper case first.
///
/// Operands are an array or vector of tensors of one rank, or a tuple of tensors of any ranks (up to eight). They may
/// be references. Three or more operands are contracted pairwise, each pair as one matmul. The order minimizes the
/// number of operations: the optimal order for up to eight operands, a greedy order beyond; see [`EinsumPath`]. `D` is
/// the rank of the output; an output without axes is a `Tensor<B, 0>`, or a `Tensor<B, 1>` of one element. The output
/// has the dtype of the operands; 8-bit integers are summed as `i32` and wrap.
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
/// When the equation is malformed, or does not match the operands or `D`; the message names the letter, the operands
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
    /// Computes an Einstein summation of tensors of any ranks. See [`einsum`].
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
    /// When the equation is malformed or does not match the operands, they differ in dtype or device, or are `bool`.
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

/// Checks that operands are numeric, of one dtype and on one device.
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
