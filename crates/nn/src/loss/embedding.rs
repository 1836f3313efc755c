//! Losses of embeddings: cosine, triplet and contrastive.

use super::Reduction;
use crate::{Config, Module};
use kiln_tensor::loss::{self, TripletOptions};
use kiln_tensor::{Backend, Numeric, Tensor};

/// Settings of a [`CosineEmbeddingLoss`].
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub struct CosineEmbeddingLossConfig {
    /// The cosine below which pairs of target -1 have no loss, from -1 to 1. Default: 0.
    #[config(default = 0.0)]
    pub margin: f64,
    /// The reduction over pairs. Default: the mean.
    #[config(default = Reduction::Mean)]
    pub reduction: Reduction,
}

/// Cosine embedding loss of pairs of vectors: `1 - cos(a, b)` where the target is 1, `max(0, cos(a, b) - margin)` where
/// it is -1.
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
#[derive(Module, Clone, Copy, Debug, Default)]
pub struct CosineEmbeddingLoss {
    /// The cosine below which pairs of target -1 have no loss.
    pub margin: f64,
    /// The reduction over pairs.
    pub reduction: Reduction,
}

impl CosineEmbeddingLossConfig {
    /// Returns the loss.
    pub fn init(&self) -> CosineEmbeddingLoss {
        CosineEmbeddingLoss { margin: self.margin, reduction: self.reduction }
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

/// Settings of a [`TripletMarginLoss`].
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub struct TripletMarginLossConfig {
    /// The least difference between the negative and the positive distance. Default: 1.
    #[config(default = 1.0)]
    pub margin: f64,
    /// The norm of the difference; infinity is the maximum. Above 0. Default: 2.
    #[config(default = 2.0)]
    pub p: f64,
    /// Added to the differences, so that the norm of equal vectors has a gradient. Default: 1e-6; Burn adds nothing.
    #[config(default = 1e-6)]
    pub eps: f64,
    /// Whether the distance from the positive to the negative is used where it is the lesser. Default: no.
    #[config(default = false)]
    pub swap: bool,
}

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
#[derive(Module, Clone, Copy, Debug)]
pub struct TripletMarginLoss {
    /// The least difference between the negative and the positive distance.
    pub margin: f64,
    /// The norm of the difference.
    pub p: f64,
    /// Added to the differences.
    pub eps: f64,
    /// Whether the distance from the positive to the negative is used where it is the lesser.
    pub swap: bool,
}

impl TripletMarginLossConfig {
    /// Returns the loss.
    pub fn init(&self) -> TripletMarginLoss {
        let TripletMarginLossConfig { margin, p, eps, swap } = *self;
        TripletMarginLoss { margin, p, eps, swap }
    }
}

impl Default for TripletMarginLoss {
    fn default() -> TripletMarginLoss {
        TripletMarginLossConfig::new().init()
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

/// Settings of a [`TripletMarginWithDistanceLoss`].
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub struct TripletMarginWithDistanceLossConfig {
    /// The least difference between the negative and the positive distance. Default: 1.
    #[config(default = 1.0)]
    pub margin: f64,
    /// Whether the distance from the positive to the negative is used where it is the lesser. Default: no.
    #[config(default = false)]
    pub swap: bool,
}

/// Triplet margin loss with any distance: `max(0, d(anchor, positive) - d(anchor, negative) + margin)`. The distance is
/// an argument of `forward`, not a field as in PyTorch, so that the settings are plain data.
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
#[derive(Module, Clone, Copy, Debug)]
pub struct TripletMarginWithDistanceLoss {
    /// The least difference between the negative and the positive distance.
    pub margin: f64,
    /// Whether the distance from the positive to the negative is used where it is the lesser.
    pub swap: bool,
}

impl TripletMarginWithDistanceLossConfig {
    /// Returns the loss.
    pub fn init(&self) -> TripletMarginWithDistanceLoss {
        TripletMarginWithDistanceLoss { margin: self.margin, swap: self.swap }
    }
}

impl Default for TripletMarginWithDistanceLoss {
    fn default() -> TripletMarginWithDistanceLoss {
        TripletMarginWithDistanceLossConfig::new().init()
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

/// Settings of an [`InfoNceLoss`].
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub struct InfoNceLossConfig {
    /// The divisor of the cosine similarities; above 0. Lower temperatures give near negatives more weight. Default:
    /// 0.1.
    #[config(default = 0.1)]
    pub temperature: f64,
}

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
#[derive(Module, Clone, Copy, Debug)]
pub struct InfoNceLoss {
    /// The divisor of the cosine similarities.
    pub temperature: f64,
}

impl InfoNceLossConfig {
    /// Returns the loss.
    pub fn init(&self) -> InfoNceLoss {
        InfoNceLoss { temperature: self.temperature }
    }
}

impl Default for InfoNceLoss {
    fn default() -> InfoNceLoss {
        InfoNceLossConfig::new().init()
    }
}

impl InfoNceLoss {
    /// Computes the loss of queries and keys `[batch, dim]`. The output has shape `[1]`, or with [`Reduction::None`]
    /// `[batch]`.
    ///
    /// # Panics
    /// When the shapes differ, or the temperature is not positive and finite.
    #[track_caller]
    pub fn forward<B: Backend>(
        &self,
        queries: Tensor<B, 2>,
        keys: Tensor<B, 2>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        loss::info_nce(queries, keys, self.temperature, reduction)
    }

    /// Computes the loss of each query, `[batch]`.
    ///
    /// # Panics
    /// When the shapes differ, or the temperature is not positive and finite.
    #[track_caller]
    pub fn forward_no_reduction<B: Backend>(
        &self,
        queries: Tensor<B, 2>,
        keys: Tensor<B, 2>,
    ) -> Tensor<B, 1> {
        self.forward(queries, keys, Reduction::None)
    }
}
