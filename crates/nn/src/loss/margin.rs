//! Margin losses with targets 1 and -1.

use super::Reduction;
use crate::{Config, Module};
use kiln_tensor::{Backend, Tensor, loss};

/// Settings of a [`HingeEmbeddingLoss`].
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub struct HingeEmbeddingLossConfig {
    /// The distance above which pairs of target -1 have no loss. Default: 1.
    #[config(default = 1.0)]
    pub margin: f64,
}

/// Hinge embedding loss of distances: `x` where the target is 1, `max(0, margin - x)` where it is -1.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::loss::{HingeEmbeddingLoss, Reduction};
/// use kiln_tensor::Tensor;
///
/// let (x, targets) = (Tensor::<Flex, 1>::from([0.25, 0.25]), Tensor::<Flex, 1>::from([1.0, -1.0]));
/// let loss = HingeEmbeddingLoss::default().forward(x, targets, Reduction::None);
/// assert_eq!(loss.to_vec::<f32>(), [0.25, 0.75]);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.HingeEmbeddingLoss.html)
#[derive(Module, Clone, Copy, Debug)]
pub struct HingeEmbeddingLoss {
    /// The distance above which pairs of target -1 have no loss.
    pub margin: f64,
}

impl HingeEmbeddingLossConfig {
    /// Returns the loss.
    pub fn init(&self) -> HingeEmbeddingLoss {
        HingeEmbeddingLoss { margin: self.margin }
    }
}

impl Default for HingeEmbeddingLoss {
    fn default() -> HingeEmbeddingLoss {
        HingeEmbeddingLossConfig::new().init()
    }
}

pairwise!(
    HingeEmbeddingLoss: loss::hinge_embedding, hinge_embedding_loss(margin); "When shapes or dtypes differ."
);

/// Settings of a [`MarginRankingLoss`].
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub struct MarginRankingLossConfig {
    /// The least difference of scores in the right order. Default: 0.
    #[config(default = 0.0)]
    pub margin: f64,
}

/// Margin ranking loss of pairs of scores, `max(0, margin - target (first - second))`: target 1 ranks the first higher,
/// -1 the second.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::loss::{MarginRankingLossConfig, Reduction};
/// use kiln_tensor::Tensor;
///
/// let loss = MarginRankingLossConfig::new().with_margin(0.5).init();
/// let (first, second) = (Tensor::<Flex, 1>::from([1.0, 2.0]), Tensor::<Flex, 1>::from([2.0, 0.0]));
/// let targets = first.ones_like();
/// assert_eq!(loss.forward(first, second, targets, Reduction::None).to_vec::<f32>(), [1.5, 0.0]);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.MarginRankingLoss.html)
#[derive(Module, Clone, Copy, Debug, Default)]
pub struct MarginRankingLoss {
    /// The least difference of scores in the right order.
    pub margin: f64,
}

impl MarginRankingLossConfig {
    /// Returns the loss.
    pub fn init(&self) -> MarginRankingLoss {
        MarginRankingLoss { margin: self.margin }
    }
}

impl MarginRankingLoss {
    /// Computes the loss of scores and targets of equal shape, `[..]`. The output has shape `[1]`, or with
    /// [`Reduction::None`] `[elements]`.
    ///
    /// # Panics
    /// When shapes or dtypes differ.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(
        &self,
        first: Tensor<B, D>,
        second: Tensor<B, D>,
        targets: Tensor<B, D>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        loss::margin_ranking(first, second, targets, self.margin, reduction)
    }

    /// Computes the loss of each pair. The output has the shape of the scores.
    ///
    /// # Panics
    /// When shapes or dtypes differ.
    #[track_caller]
    pub fn forward_no_reduction<B: Backend, const D: usize>(
        &self,
        first: Tensor<B, D>,
        second: Tensor<B, D>,
        targets: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let (second, targets) = (second.into_any(), targets.into_any());
        first.map(|any| any.margin_ranking_loss(second, targets, self.margin, Reduction::None))
    }
}
