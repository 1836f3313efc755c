//! Mean squared error.

use super::Reduction;
use crate::Module;
use kiln_tensor::{Backend, Tensor, loss};

/// Squared error loss: `(prediction - target)²`.
#[derive(Module, Clone, Copy, Debug, Default)]
pub struct MseLoss;

impl MseLoss {
    /// Returns the loss.
    pub fn new() -> MseLoss {
        MseLoss
    }

    /// Computes the loss of two tensors of equal shape. The output has shape `[1]`, or `[elements]` without reduction.
    ///
    /// # Panics
    /// When the shapes differ: broadcasting a target is nearly always a mistake.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        loss::mse(predictions, targets, reduction)
    }

    /// Computes the loss of each element of two tensors of equal shape. The output has the same shape.
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
