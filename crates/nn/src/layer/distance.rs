//! Similarities and distances of vectors.

use crate::ForwardModule;
use crate::module::plain::plain_module;
use kiln_tensor::{Axis, Backend, Tensor, linalg};

plain_module! {
    /// Cosine similarity: `a · b / (max(‖a‖, ε) max(‖b‖, ε))` along one dimension.
    CosineSimilarity CosineSimilarityConfig {
        /// The dimension of the vectors; negative numbers count from the end. Default: 1.
        dim: isize = 1,
        /// The least norm, against division by zero. Default: 1e-8.
        eps: f64 = 1e-8,
    }
}

impl CosineSimilarity {
    /// Computes the similarities of two tensors, which broadcast. The output has the shape of the inputs without the
    /// dimension: `D2` is `D - 1`.
    ///
    /// # Panics
    /// When `dim` is out of range, or `D2` is not `D - 1`.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize, const D2: usize>(
        &self,
        a: Tensor<B, D>,
        b: Tensor<B, D>,
    ) -> Tensor<B, D2> {
        assert!(
            Axis::from(self.dim).within(D).is_some(),
            "[cosine_similarity] dimension {} is out of range: {}",
            self.dim,
            a.as_any().ty()
        );
        linalg::cosine_similarity(a, b, self.dim, Some(self.eps)).squeeze_dim(self.dim)
    }
}

/// Of vectors in the rows of two matrices.
impl<B: Backend> ForwardModule<(Tensor<B, 2>, Tensor<B, 2>)> for CosineSimilarity {
    type Output = Tensor<B, 1>;

    #[track_caller]
    fn forward(&self, (a, b): (Tensor<B, 2>, Tensor<B, 2>)) -> Tensor<B, 1> {
        CosineSimilarity::forward(self, a, b)
    }
}

plain_module! {
    /// Distance of corresponding vectors: the p-norm of `a - b + ε` along the last dimension.
    PairwiseDistance PairwiseDistanceConfig {
        /// The `p` of the norm, `(Σ |x|^p)^(1/p)`. Default: 2.
        p: f64 = 2.0,
        /// Added to each difference, against the gradient's singularity at 0. Default: 1e-6.
        eps: f64 = 1e-6,
    }
}

impl PairwiseDistance {
    /// Computes the distances of two tensors, which broadcast. The output has the shape of the inputs without the last
    /// dimension: `D2` is `D - 1`.
    ///
    /// # Panics
    /// When `D2` is not `D - 1`.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize, const D2: usize>(
        &self,
        a: Tensor<B, D>,
        b: Tensor<B, D>,
    ) -> Tensor<B, D2> {
        self.forward_keepdim(a, b).squeeze_dim(-1)
    }

    /// Like [`forward`](PairwiseDistance::forward), with a last dimension of length 1 in the output.
    #[doc(alias = "keepdim")]
    #[track_caller]
    pub fn forward_keepdim<B: Backend, const D: usize>(
        &self,
        a: Tensor<B, D>,
        b: Tensor<B, D>,
    ) -> Tensor<B, D> {
        linalg::pairwise_distance(a, b, self.p, Some(self.eps))
    }
}

/// Of vectors in the rows of two matrices.
impl<B: Backend> ForwardModule<(Tensor<B, 2>, Tensor<B, 2>)> for PairwiseDistance {
    type Output = Tensor<B, 1>;

    #[track_caller]
    fn forward(&self, (a, b): (Tensor<B, 2>, Tensor<B, 2>)) -> Tensor<B, 1> {
        PairwiseDistance::forward(self, a, b)
    }
}
