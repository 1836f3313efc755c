//! Losses of embeddings: cosine, triplet and contrastive.

use super::Reduction;
use crate::module::plain::{default_modules, plain_module};
use kiln_tensor::loss::{self, TripletOptions};
use kiln_tensor::{Backend, Numeric, Tensor};

plain_module! {
    /// Cosine embedding loss of pairs of vectors: `1 - cos(a, b)` where the target is 1, `max(0, cos(a, b) - margin)`
    /// where it is -1.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::CosineEmbeddingLoss;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let a = Tensor::<Flex, 2>::from([[1.0, 0.0], [0.0, 1.0]]);
    /// let targets = Tensor::<Flex, 1, Int>::from([1, -1]);
    /// let loss = CosineEmbeddingLoss::new().forward(a.clone(), a, targets);
    /// assert!((loss.item::<f32>() - 0.5).abs() < 1e-6);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.CosineEmbeddingLoss.html)
    #[derive(Copy)]
    CosineEmbeddingLoss
    #[derive(Copy)]
    CosineEmbeddingLossConfig {
        /// The cosine below which pairs of target -1 have no loss, from -1 to 1. Default: 0.
        margin: f64 = 0.0,
        /// The reduction over pairs. Default: the mean.
        reduction: Reduction = Reduction::Mean,
    }
}

impl CosineEmbeddingLoss {
    /// Returns the mean loss with margin 0.
    pub fn new() -> CosineEmbeddingLoss {
        CosineEmbeddingLossConfig::new().init()
    }

    /// Computes the loss of vectors `[batch, dim]` and targets `[batch]`, integers or floats. The output has shape
    /// `[1]`, or with [`Reduction::None`] `[batch]`.
    ///
    /// # Panics
    /// When the vectors differ in shape, or the targets are not `[batch]`.
    #[track_caller]
    pub fn forward<B: Backend, K: Numeric>(
        &self,
        a: Tensor<B, 2>,
        b: Tensor<B, 2>,
        targets: Tensor<B, 1, K>,
    ) -> Tensor<B, 1> {
        let (b, targets) = (b.into_any(), targets.into_any());
        a.convert(|a| a.cosine_embedding_loss(b, targets, self.margin, self.reduction))
    }

    /// Computes the loss of each pair, `[batch]`.
    ///
    /// # Panics
    /// When the vectors differ in shape, or the targets are not `[batch]`.
    #[track_caller]
    pub fn forward_no_reduction<B: Backend, K: Numeric>(
        &self,
        a: Tensor<B, 2>,
        b: Tensor<B, 2>,
        targets: Tensor<B, 1, K>,
    ) -> Tensor<B, 1> {
        CosineEmbeddingLoss { reduction: Reduction::None, ..*self }.forward(a, b, targets)
    }
}

plain_module! {
    /// Triplet margin loss of vectors: `max(0, d(anchor, positive) - d(anchor, negative) + margin)`, with the distance
    /// `d(a, b) = (Σ |a - b + eps|^p)^(1/p)` along the last dim.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{Reduction, TripletMarginLoss};
    /// use kiln_tensor::Tensor;
    ///
    /// let anchor = Tensor::<Flex, 2>::from([[0.0, 0.0]]);
    /// let (positive, negative) = (Tensor::from([[0.0, 1.0]]), Tensor::from([[3.0, 4.0]]));
    /// let loss = TripletMarginLoss::default().forward(anchor.clone(), positive, negative, Reduction::Mean);
    /// assert_eq!(loss.item::<f32>(), 0.0);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.TripletMarginLoss.html)
    #[derive(Copy)]
    TripletMarginLoss
    #[derive(Copy)]
    TripletMarginLossConfig {
        /// The least difference between the negative and the positive distance. Default: 1.
        margin: f64 = 1.0,
        /// The norm of the difference; infinity is the maximum. Above 0. Default: 2.
        p: f64 = 2.0,
        /// Added to the differences, so that the norm of equal vectors has a gradient. Default: 1e-6; Burn adds
        /// nothing.
        eps: f64 = 1e-6,
        /// Whether the distance from the positive to the negative is used where it is the lesser. Default: no.
        swap: bool = false,
    }
}

impl TripletMarginLoss {
    /// Computes the loss of vectors `[.., dim]`. The output has shape `[1]`, or with [`Reduction::None`] `[vectors]`.
    ///
    /// # Panics
    /// When shapes or dtypes differ, or `p` is not positive.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(
        &self,
        anchor: Tensor<B, D>,
        positive: Tensor<B, D>,
        negative: Tensor<B, D>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        let TripletMarginLoss { margin, p, eps: epsilon, swap } = *self;
        let options = TripletOptions { margin, p, epsilon, swap, reduction };
        loss::triplet_margin(anchor, positive, negative, options)
    }

    /// Computes the loss of each triplet of vectors `[batch, dim]`: the output is `[batch]`.
    ///
    /// # Panics
    /// When shapes or dtypes differ, or `p` is not positive.
    #[track_caller]
    pub fn forward_no_reduction<B: Backend>(
        &self,
        anchor: Tensor<B, 2>,
        positive: Tensor<B, 2>,
        negative: Tensor<B, 2>,
    ) -> Tensor<B, 1> {
        self.forward(anchor, positive, negative, Reduction::None)
    }
}

plain_module! {
    /// Triplet margin loss with any distance: `max(0, d(anchor, positive) - d(anchor, negative) + margin)`. The
    /// distance is an argument of `forward`, not a field as in PyTorch, so that the settings are plain data.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{Reduction, TripletMarginWithDistanceLoss};
    /// use kiln_tensor::Tensor;
    ///
    /// let manhattan = |a: Tensor<Flex, 2>, b: Tensor<Flex, 2>| (a - b).abs().sum_dim(1);
    /// let anchor = Tensor::<Flex, 2>::from([[0.0, 0.0]]);
    /// let (positive, negative) = (Tensor::from([[1.0, 1.0]]), Tensor::from([[1.0, 0.5]]));
    /// let loss = TripletMarginWithDistanceLoss::default();
    /// assert_eq!(loss.forward(anchor, positive, negative, manhattan, Reduction::Mean).item::<f32>(), 1.5);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.TripletMarginWithDistanceLoss.html)
    #[derive(Copy)]
    TripletMarginWithDistanceLoss
    #[derive(Copy)]
    TripletMarginWithDistanceLossConfig {
        /// The least difference between the negative and the positive distance. Default: 1.
        margin: f64 = 1.0,
        /// Whether the distance from the positive to the negative is used where it is the lesser. Default: no.
        swap: bool = false,
    }
}

impl TripletMarginWithDistanceLoss {
    /// Computes the loss of inputs of equal shape, and a function that returns the distances of two batches of inputs.
    /// The output has shape `[1]`, or with [`Reduction::None`] one element per distance.
    ///
    /// # Panics
    /// When the distances differ in shape.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize, const E: usize>(
        &self,
        anchor: Tensor<B, D>,
        positive: Tensor<B, D>,
        negative: Tensor<B, D>,
        distance: impl Fn(Tensor<B, D>, Tensor<B, D>) -> Tensor<B, E>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        loss::triplet_margin_with(anchor, positive, negative, distance, self.margin, self.swap, reduction)
    }
}

plain_module! {
    /// InfoNCE contrastive loss ([van den Oord et al. 2018](https://arxiv.org/abs/1807.03748)): the cross-entropy of
    /// classifying, for each query, the key of the same row among all keys, by cosine similarity over a temperature.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{InfoNceLossConfig, Reduction};
    /// use kiln_tensor::Tensor;
    ///
    /// let loss = InfoNceLossConfig::new().with_temperature(0.01).init();
    /// let x = Tensor::<Flex, 2>::from([[1.0, 0.0], [0.0, 1.0]]);
    /// assert!(loss.forward(x.clone(), x, Reduction::Mean).item::<f32>() < 1e-6);
    /// ```
    #[derive(Copy)]
    InfoNceLoss
    #[derive(Copy)]
    InfoNceLossConfig {
        /// The divisor of the cosine similarities; above 0. Lower temperatures give near negatives more weight.
        /// Default: 0.1.
        temperature: f64 = 0.1,
    }
}

per_example!(
    InfoNceLoss(queries, keys: 2): loss::info_nce, (temperature);
    "queries and keys `[batch, dim]`", "When the shapes differ, or the temperature is not positive and finite."
);

default_modules! {
    CosineEmbeddingLoss CosineEmbeddingLossConfig;
    TripletMarginLoss TripletMarginLossConfig;
    TripletMarginWithDistanceLoss TripletMarginWithDistanceLossConfig;
    InfoNceLoss InfoNceLossConfig;
}
