//! The squared error.

use super::Reduction;
use crate::Module;
use kiln_tensor::{Backend, Tensor, loss};

/// `(prediction - target)²`.
#[derive(Module, Clone, Copy, Debug, Default)]
pub struct MseLoss;

impl MseLoss {
    /// The loss.
    pub fn new() -> MseLoss {
        MseLoss
    }

    /// The loss of tensors of the same shape: `[1]`, or `[elements]` without reduction.
    ///
    /// # Panics
    /// When the shapes differ: a target that broadcasts is nearly always a mistake.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        loss::mse(predictions, targets, reduction)
    }

    /// The loss of each element of two tensors of the same shape; the output has that shape.
    ///
    /// # Panics
    /// When the shapes differ.
    #[track_caller]
    pub fn forward_no_reduction<B: Backend, const D: usize>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
    ) -> Tensor<B, D> {
        predictions.map(|any| any.mse_loss(targets.into_any(), loss::Reduction::None))
    }
}
