//! Margin losses with targets 1 and -1.

use super::Reduction;
use crate::module::plain::{default_modules, plain_module};
use kiln_tensor::{Backend, Tensor, loss};

plain_module! {
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
    #[derive(Copy)]
    HingeEmbeddingLoss
    #[derive(Copy)]
    HingeEmbeddingLossConfig {
        /// The distance above which pairs of target -1 have no loss. Default: 1.
        margin: f64 = 1.0,
    }
}

elementwise!(
    HingeEmbeddingLoss: loss::hinge_embedding, hinge_embedding_loss(margin); "When shapes or dtypes differ."
);

plain_module! {
    /// Margin ranking loss of pairs of scores, `max(0, margin - target (first - second))`: target 1 ranks the first
    /// higher, -1 the second.
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
    #[derive(Copy)]
    MarginRankingLoss
    #[derive(Copy)]
    MarginRankingLossConfig {
        /// The least difference of scores in the right order. Default: 0.
        margin: f64 = 0.0,
    }
}

elementwise!(
    MarginRankingLoss(first, second, targets): loss::margin_ranking, margin_ranking_loss(margin);
    "scores and targets of equal shape, `[..]`", "When shapes or dtypes differ."
);

default_modules! {
    HingeEmbeddingLoss HingeEmbeddingLossConfig;
    MarginRankingLoss MarginRankingLossConfig;
}
