//! Formulas that update rules share.

use crate::clip::norm_of;
use crate::error::Result;
use crate::{Norm, ParameterState, StepOptions};
use kiln_ir::Comparison;
use kiln_tensor::{AnyTensor, DType, TensorData, TensorType};

/// Updates an exponential moving average, `beta m + (1 - beta) x`, which starts at 0.
pub(crate) fn ema(
    state: &mut ParameterState,
    slot: &'static str,
    term: AnyTensor,
    beta: f64,
) -> Result<AnyTensor> {
    accumulated(state, slot, term.mul_scalar(1.0 - beta)?, |mean, share| mean.mul_scalar(beta)?.add(share))
}

/// Stores and returns a term combined with the stored tensor, or the term at the first step.
pub(crate) fn accumulated(
    state: &mut ParameterState,
    slot: &'static str,
    term: AnyTensor,
    combine: impl FnOnce(AnyTensor, AnyTensor) -> kiln_tensor::Result<AnyTensor>,
) -> Result<AnyTensor> {
    let new = match state.take(slot) {
        Some(old) => combine(old, term)?,
        None => term,
    };
    state.put(slot, new.clone());
    Ok(new)
}

/// The factor of the old value, and the factor of the L2 penalty.
pub(crate) fn decay(options: StepOptions, is_decoupled: bool) -> (f64, f64) {
    let StepOptions { learning_rate, weight_decay, .. } = options;
    if is_decoupled { (1.0 - learning_rate * weight_decay, 0.0) } else { (1.0, weight_decay) }
}

/// The type of a scalar that belongs to a parameter: `f32[1]`, or `f64[1]` for `f64`.
pub(crate) fn scalar_type(parameter: TensorType) -> TensorType {
    TensorType::new([1], if parameter.dtype == DType::F64 { DType::F64 } else { DType::F32 })
}

/// A scalar of [`scalar_type`] on the tensor's device.
pub(crate) fn scalar(x: f64, like: &AnyTensor) -> Result<AnyTensor> {
    let data = TensorData::from([x]).convert(scalar_type(*like.ty()).dtype);
    Ok(AnyTensor::from_data(data, like.stack()))
}

/// The L2 norm of a tensor, of shape `[1]`.
pub(crate) fn norm(tensor: &AnyTensor) -> Result<AnyTensor> {
    norm_of(&[tensor], Norm::L2, tensor.stack())
}

/// The quotient of two scalars; 1 where one of them is 0.
pub(crate) fn ratio(a: AnyTensor, b: AnyTensor) -> Result<AnyTensor> {
    let is_zero = a.clone().mul(b.clone())?.compare_scalar(Comparison::Eq, 0.0)?;
    Ok(is_zero.if_else_number(1.0, a.div(b)?)?)
}

/// A tensor times a scalar of shape `[1]`. The result has the tensor's type.
pub(crate) fn times(tensor: AnyTensor, scalar: AnyTensor) -> Result<AnyTensor> {
    let (shape, dtype) = (alloc::vec![1; tensor.rank()], tensor.dtype());
    let wide = dtype.accumulator();
    Ok(tensor.cast(wide)?.mul(scalar.cast(wide)?.reshape(shape)?)?.cast(dtype)?)
}
