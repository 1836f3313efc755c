//! Binary cross-entropy with weights.

use super::{Reduction, flat};
use crate::functions::table::functions;
use crate::{Backend, Tensor};

functions! {
    flat;

    /// Computes the binary cross-entropy of probabilities, `-(t ln(x) + (1 - t) ln(1 - x))`, times a weight that
    /// broadcasts. As in PyTorch logarithms are clamped to -100; the gradient there is 0.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.binary_cross_entropy.html)
    ///
    /// # Panics
    /// When predictions and targets differ in shape, or the weight does not broadcast to them.
    pub fn binary_cross_entropy[B: Backend, const D: usize](
        predictions: Tensor<B, D>,
        targets: Tensor<B, D> as any,
        weight: Option<Tensor<B, D>> as anys,
        reduction: Reduction,
    ) -> Tensor<B, 1> = binary_cross_entropy_loss;

    /// Computes the binary cross-entropy of logits without forming the sigmoid, `(1 - t) x + ln(1 + exp(-x))`, times a
    /// weight that broadcasts. `pos_weight`, which broadcasts too, multiplies the loss of targets of 1.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::loss::{self, Reduction};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([1000.0f32, -1000.0], &Default::default());
    /// let t = Tensor::<Flex, 1>::from_data([0.0f32, 0.0], &Default::default());
    /// let loss = loss::binary_cross_entropy_with_logits(x, t, None, None, Reduction::None);
    /// assert_eq!(loss.into_data().to_vec::<f32>(), [1000.0, 0.0]);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.binary_cross_entropy_with_logits.html)
    ///
    /// # Panics
    /// When logits and targets differ in shape, or a weight does not broadcast to them.
    pub fn binary_cross_entropy_with_logits[B: Backend, const D: usize](
        logits: Tensor<B, D>,
        targets: Tensor<B, D> as any,
        weight: Option<Tensor<B, D>> as anys,
        pos_weight: Option<Tensor<B, D>> as anys,
        reduction: Reduction,
    ) -> Tensor<B, 1> = binary_cross_entropy_with_logits_loss;

    /// Computes the binary cross-entropy of logits, averaged over the last axis (the labels), with a weight that
    /// broadcasts: one loss per example.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multilabel_soft_margin_loss.html)
    ///
    /// # Panics
    /// When logits and targets differ in shape, or the weight does not broadcast to them.
    pub fn multilabel_soft_margin[B: Backend, const D: usize](
        logits: Tensor<B, D>,
        targets: Tensor<B, D> as any,
        weight: Option<Tensor<B, D>> as anys,
        reduction: Reduction,
    ) -> Tensor<B, 1> = multilabel_soft_margin_loss;
}
