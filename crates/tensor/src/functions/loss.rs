//! Losses.

use crate::{Backend, Int, Tensor, activation};

/// The mean over the batch of `-log softmax(logits)[target]`: logits are `[batch, classes]`, targets `[batch]` with
/// numbers in `0..classes`; the result is `[1]`. A target out of range is an error of the result.
#[track_caller]
pub fn cross_entropy_with_logits<B: Backend>(
    logits: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
) -> Tensor<B, 1> {
    let batch = targets.dims()[0];
    let log_probabilities = activation::log_softmax(logits, 1);
    -log_probabilities.gather(1, targets.reshape([batch, 1])).mean()
}

/// The mean of the squared differences, of shape `[1]`.
#[track_caller]
pub fn mse<B: Backend, const D: usize>(predictions: Tensor<B, D>, targets: Tensor<B, D>) -> Tensor<B, 1> {
    (predictions - targets).square().mean()
}
