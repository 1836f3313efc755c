//! Losses of pairs and triplets: ranking, cosine, triplet and contrastive.

use super::{Reduction, TripletOptions, flat};
use crate::functions::table::functions;
use crate::{Backend, Tensor};

functions! {
    flat;

    /// Computes the margin ranking loss, `max(0, margin - target (first - second))`: target 1 ranks the first higher, -1
    /// the second. PyTorch's default margin is 0.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.margin_ranking_loss.html)
    ///
    /// # Panics
    /// When the shapes differ.
    pub fn margin_ranking[B: Backend, const D: usize](
        first: Tensor<B, D>,
        second: Tensor<B, D> as any,
        targets: Tensor<B, D> as any,
        margin: f64,
        reduction: Reduction,
    ) -> Tensor<B, 1> = margin_ranking_loss;

    /// Computes the cosine embedding loss: `1 - cos(a, b)` where the target is 1, `max(0, cos(a, b) - margin)` where it is
    /// -1. Vectors are `[batch, dim]`, targets `[batch]`. PyTorch's default margin is 0.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cosine_embedding_loss.html)
    ///
    /// # Panics
    /// When the vectors differ in shape, or the targets are not `[batch]`.
    pub fn cosine_embedding[B: Backend](
        a: Tensor<B, 2>,
        b: Tensor<B, 2> as any,
        targets: Tensor<B, 1> as any,
        margin: f64,
        reduction: Reduction,
    ) -> Tensor<B, 1> = cosine_embedding_loss;

    /// Computes the triplet margin loss, `max(0, d(anchor, positive) - d(anchor, negative) + margin)`, for vectors along
    /// the last axis; see [`TripletOptions`] for the distance.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, loss};
    ///
    /// let x = Tensor::<Flex, 2>::zeros([1, 4], &Default::default());
    /// let loss = loss::triplet_margin(x.clone(), x.clone(), x, Default::default());
    /// assert_eq!(loss.into_data().to_vec::<f32>(), [1.0]);
    /// ```
    ///
    /// # Panics
    /// When the shapes differ, or `p` is not positive.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.triplet_margin_loss.html)
    pub fn triplet_margin[B: Backend, const D: usize](
        anchor: Tensor<B, D>,
        positive: Tensor<B, D> as any,
        negative: Tensor<B, D> as any,
        options: TripletOptions,
    ) -> Tensor<B, 1> = triplet_margin_loss;
}

/// Computes the [`triplet_margin`] loss with any distance: a function of two batches that returns one value per pair.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.triplet_margin_with_distance_loss.html)
#[track_caller]
pub fn triplet_margin_with<B: Backend, const D: usize, const E: usize>(
    anchor: Tensor<B, D>,
    positive: Tensor<B, D>,
    negative: Tensor<B, D>,
    distance: impl Fn(Tensor<B, D>, Tensor<B, D>) -> Tensor<B, E>,
    margin: f64,
    swap: bool,
    reduction: Reduction,
) -> Tensor<B, 1> {
    let distance = |a, b| Ok(distance(Tensor::from_any(a), Tensor::from_any(b)).into_any());
    let (positive, negative) = (positive.into_any(), negative.into_any());
    flat(anchor.into_any().triplet_margin_loss_with(positive, negative, distance, margin, swap, reduction))
}

functions! {
    flat;

    /// Computes the InfoNCE contrastive loss ([van den Oord et al. 2018](https://arxiv.org/abs/1807.03748)): the
    /// cross-entropy of classifying, for each query, the key of the same row among all keys, by cosine similarity over a
    /// temperature. Queries and keys are `[batch, dim]`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::loss::{self, Reduction};
    ///
    /// let x = Tensor::<Flex, 2>::from_data([[1.0f32, 0.0], [0.0, 1.0]], &Default::default());
    /// assert!(loss::info_nce(x.clone(), x, 0.01, Reduction::Mean).into_scalar::<f32>() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// When the shapes differ, or the temperature is not positive and finite.
    pub fn info_nce[B: Backend](
        queries: Tensor<B, 2>,
        keys: Tensor<B, 2> as any,
        temperature: f64,
        reduction: Reduction,
    ) -> Tensor<B, 1> = info_nce_loss;
}
