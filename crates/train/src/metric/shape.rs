//! Checks of the shapes and dtypes of a metric's inputs.

use kiln_tensor::{AnyTensor, DType};

use crate::error::MetricError;

/// Casts 16-bit floats, integers and `bool` to `f32`, in which sums over a batch are accurate enough.
pub(crate) fn wide(tensor: AnyTensor) -> Result<AnyTensor, kiln_tensor::Error> {
    let is_wide = tensor.dtype() == DType::F32 || tensor.dtype() == DType::F64;
    if is_wide { Ok(tensor) } else { tensor.cast(DType::F32) }
}

/// Returns the error of an input of unexpected shape.
pub(super) fn wrong_shape(name: &'static str, tensor: &AnyTensor, expected: &str) -> MetricError {
    let shape = tensor.shape().to_vec();
    MetricError::Input { name, problem: format!("has shape {shape:?}, expected {expected}") }
}

/// Refuses an input whose shape differs from that of another.
pub(super) fn require_shape_of(
    name: &'static str,
    tensor: &AnyTensor,
    other: (&'static str, &AnyTensor),
) -> Result<(), MetricError> {
    if tensor.shape() == other.1.shape() {
        return Ok(());
    }
    let expected = format!("that of `{}`, {:?}", other.0, other.1.shape().to_vec());
    Err(wrong_shape(name, tensor, &expected))
}

/// Moves axis 1 to the end and joins all other axes: `[batch, columns, ..]` becomes `[items, columns]`.
pub(super) fn columns_last(tensor: AnyTensor) -> Result<AnyTensor, MetricError> {
    let columns = tensor.shape()[1];
    let items = tensor.shape().num_elements().checked_div(columns).unwrap_or(0);
    let last = tensor.rank() as isize - 1;
    let moved = if last > 1 { tensor.movedim(1, last)? } else { tensor };
    Ok(moved.reshape([items, columns])?)
}
