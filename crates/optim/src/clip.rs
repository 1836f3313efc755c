//! Gradient clipping.

use crate::error::{Result, not_negative, positive};
use alloc::vec;
use alloc::vec::Vec;
use kiln_ir::{Binary, Reduction, Unary};
use kiln_nn::GradientsParams;
use kiln_tensor::{AnyTensor, DType, Stack};
use serde::{Deserialize, Serialize};

/// Added to a norm before the division, as in PyTorch.
const NORM_EPSILON: f64 = 1e-6;

/// Gradient clipping of an optimizer: the limit and its norm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GradientClipping {
    /// Clamps each element to `[-limit, limit]`.
    Value(f64),
    /// Scales each gradient on its own to at most this L2 norm.
    Norm(f64),
    /// Scales all gradients to at most this global L2 norm; see [`clip_grad_norm`].
    GlobalNorm(f64),
}

impl GradientClipping {
    pub(crate) fn check(self, owner: &'static str) -> Result<()> {
        let (option, limit) = match self {
            GradientClipping::Value(limit) => ("the limit of clipping by value", limit),
            GradientClipping::Norm(limit) => ("the limit of clipping by norm", limit),
            GradientClipping::GlobalNorm(limit) => ("the limit of clipping by global norm", limit),
        };
        positive(owner, option, limit).map(|_| ())
    }

    /// Clips the gradients. Does not wait for the device.
    ///
    /// # Errors
    /// When an op on a gradient fails, or the limit of [`Value`](GradientClipping::Value) is negative or not finite.
    pub fn apply(self, gradients: &mut GradientsParams) -> Result<()> {
        match self {
            GradientClipping::Value(limit) => clip_grad_value(gradients, limit),
            GradientClipping::Norm(limit) => each(gradients, |gradient| {
                let stack = gradient.stack().clone();
                let norm = norm_of(&[&gradient], Norm::L2, &stack)?;
                scale(gradient, coefficient(norm, limit)?)
            }),
            GradientClipping::GlobalNorm(limit) => clip_by_norm(gradients, limit, Norm::L2).map(|_| ()),
        }
    }
}

/// A vector norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// The sum of magnitudes.
    L1,
    /// The square root of the sum of squares.
    L2,
    /// The p-norm: the p-th root of the sum of p-th powers of magnitudes, with p greater than 0.
    P(f64),
    /// The maximum magnitude.
    Infinity,
}

/// Scales all gradients by `min(1, max_norm / (norm + 1e-6))`, where `norm` is their global L2 norm, as
/// `torch.nn.utils.clip_grad_norm_` does. Returns the norm before clipping; 0 without gradients.
///
/// Waits for the device to read the norm; [`GradientClipping::GlobalNorm`] clips without waiting. If the norm is NaN or
/// infinite, the gradients become NaN or 0.
///
/// # Errors
/// When `max_norm` is negative or not finite, or the device failed.
pub fn clip_grad_norm(gradients: &mut GradientsParams, max_norm: f64) -> Result<f64> {
    clip_grad_norm_with(gradients, max_norm, Norm::L2)
}

/// Clips the global norm of all gradients as [`clip_grad_norm`] does, with another norm.
///
/// # Errors
/// When `max_norm` is negative or not finite, the order of the norm is not greater than 0, or the device failed.
pub fn clip_grad_norm_with(gradients: &mut GradientsParams, max_norm: f64, norm: Norm) -> Result<f64> {
    not_negative("clip_grad_norm", "max_norm", max_norm)?;
    match clip_by_norm(gradients, max_norm, norm)? {
        Some(total) => read(total),
        None => Ok(0.0),
    }
}

/// Returns the global L2 norm of all gradients; 0 without gradients. Waits for the device.
///
/// # Errors
/// When the device failed.
pub fn grad_norm(gradients: &GradientsParams) -> Result<f64> {
    match total_norm(gradients, Norm::L2)? {
        Some(total) => read(total),
        None => Ok(0.0),
    }
}

/// Clamps each element of all gradients to `[-limit, limit]`. NaN stays NaN.
///
/// # Errors
/// When the limit is negative or not finite, or an op on a gradient fails.
pub fn clip_grad_value(gradients: &mut GradientsParams, limit: f64) -> Result<()> {
    not_negative("clip_grad_value", "limit", limit)?;
    each(gradients, |gradient| {
        Ok(gradient.binary_scalar(Binary::Min, limit)?.binary_scalar(Binary::Max, -limit)?)
    })
}

/// The maximum magnitude in all gradients: 0 without gradients, NaN if one is NaN. Waits for the device.
pub(crate) fn largest(gradients: &GradientsParams) -> Result<f64> {
    match total_norm(gradients, Norm::Infinity)? {
        Some(total) => read(total),
        None => Ok(0.0),
    }
}

pub(crate) fn clip_by_norm(
    gradients: &mut GradientsParams,
    limit: f64,
    norm: Norm,
) -> Result<Option<AnyTensor>> {
    let Some(total) = total_norm(gradients, norm)? else { return Ok(None) };
    let coefficient = coefficient(total.clone(), limit)?;
    each(gradients, |gradient| scale(gradient, coefficient.clone()))?;
    Ok(Some(total))
}

pub(crate) fn total_norm(gradients: &GradientsParams, norm: Norm) -> Result<Option<AnyTensor>> {
    if let Norm::P(order) = norm {
        positive("clip_grad_norm", "the order of the norm", order)?;
    }
    let all: Vec<&AnyTensor> = gradients.iter().map(|(_, gradient)| gradient).collect();
    let Some(first) = all.first() else { return Ok(None) };
    let stack = first.stack().clone();
    norm_of(&all, norm, &stack).map(Some)
}

/// The global norm of tensors on a stack, of shape `[1]`. Sums are accumulated in `f32` or wider.
pub(crate) fn norm_of(tensors: &[&AnyTensor], norm: Norm, stack: &Stack) -> Result<AnyTensor> {
    let wide = tensors.iter().any(|tensor| tensor.dtype() == DType::F64);
    let dtype = if wide { DType::F64 } else { DType::F32 };
    let mut parts = Vec::with_capacity(tensors.len());
    for tensor in tensors.iter().filter(|tensor| tensor.shape().num_elements() > 0) {
        let part = part_of_norm((*tensor).clone().cast(dtype)?, norm)?;
        parts.push(part.to_stack(stack)?);
    }
    let Some(mut total) = parts.pop() else {
        let zero = kiln_tensor::TensorData::from([0.0f64]).convert(dtype);
        return Ok(AnyTensor::from_data(zero, stack));
    };
    if !parts.is_empty() {
        parts.push(total);
        total = AnyTensor::cat(parts, 0)?.reduce(reduction(norm), &[0])?;
    }
    Ok(match norm {
        Norm::L1 | Norm::Infinity => total,
        Norm::L2 => total.unary(Unary::Sqrt)?,
        Norm::P(order) => total.binary_scalar(Binary::Pow, 1.0 / order)?,
    })
}

/// The term of one tensor in a norm, of shape `[1]`.
fn part_of_norm(tensor: AnyTensor, norm: Norm) -> Result<AnyTensor> {
    let flat = tensor.shape().num_elements();
    let tensor = tensor.reshape([flat])?;
    let terms = match norm {
        Norm::L1 | Norm::Infinity => tensor.unary(Unary::Abs)?,
        Norm::L2 => tensor.clone().mul(tensor)?,
        Norm::P(order) => tensor.unary(Unary::Abs)?.binary_scalar(Binary::Pow, order)?,
    };
    Ok(terms.reduce(reduction(norm), &[0])?)
}

fn reduction(norm: Norm) -> Reduction {
    match norm {
        Norm::L1 | Norm::L2 | Norm::P(_) => Reduction::Sum,
        Norm::Infinity => Reduction::Max,
    }
}

/// The scale factor `min(1, limit / (norm + 1e-6))`.
fn coefficient(norm: AnyTensor, limit: f64) -> Result<AnyTensor> {
    let inverse = norm.binary_scalar(Binary::Add, NORM_EPSILON)?.unary(Unary::Recip)?;
    Ok(inverse.binary_scalar(Binary::Mul, limit)?.binary_scalar(Binary::Min, 1.0)?)
}

/// In at least `f32`: 16 bits do not represent the coefficient of a large norm.
fn scale(gradient: AnyTensor, coefficient: AnyTensor) -> Result<AnyTensor> {
    let (rank, dtype) = (gradient.rank(), gradient.dtype());
    let wide = dtype.accumulator();
    let coefficient = coefficient.to_stack(gradient.stack())?.cast(wide)?.reshape(vec![1; rank])?;
    Ok(gradient.cast(wide)?.mul(coefficient)?.cast(dtype)?)
}

/// Maps each gradient by a function. After an error the remaining gradients are unchanged.
pub(crate) fn each(
    gradients: &mut GradientsParams,
    mut f: impl FnMut(AnyTensor) -> Result<AnyTensor>,
) -> Result<()> {
    let ids: Vec<_> = gradients.iter().map(|(id, _)| id).collect();
    for id in ids {
        // The gradient is removed, so that the engine may write in place.
        if let Some(gradient) = gradients.remove(id) {
            gradients.insert(id, f(gradient)?);
        }
    }
    Ok(())
}

/// Reads one element. Waits for the device.
pub(crate) fn read(scalar: AnyTensor) -> Result<f64> {
    let data = scalar.into_data()?;
    Ok(data.to_vec::<f64>().first().copied().unwrap_or(0.0))
}
