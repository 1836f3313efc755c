//! Local response normalisation.

use crate::module::forward::forward_modules;
use crate::module::plain::plain_module;
use kiln_tensor::{Backend, Tensor, module};

plain_module! {
    /// Local response normalisation: `x / (k + alpha mean(x²))^beta`, where the mean is over `size` adjacent channels
    /// with zeros beyond the ends ([Krizhevsky et al.
    /// 2012](https://papers.nips.cc/paper/2012/hash/c399862d3b9d6b76c8436e924a68c45b-Abstract.html)). The paper has the
    /// sum instead of the mean. An even `size` has one channel more before than after.
    LocalResponseNorm LocalResponseNormConfig {
        /// Number of adjacent channels in the mean.
        size: usize,
        /// The factor of the mean. Default: 1e-4.
        alpha: f64 = 1e-4,
        /// The exponent. Default: 0.75.
        beta: f64 = 0.75,
        /// Added to the mean. Default: 1.
        k: f64 = 1.0,
    }
    init
    ///
    /// # Panics
    /// When `size` is 0.
    #[track_caller]
    |config| {
        assert!(config.size > 0, "[local_response_norm] the size is 0");
    }
}

/// [`LocalResponseNorm`] under the name of PyTorch's older layer. That one has a mistake, which is not repeated here:
/// from channel `(size + 1) / 2` on, its sums also contain channels before the window.
pub type CrossMapLRN2d = LocalResponseNorm;

impl LocalResponseNorm {
    /// Normalises `[batch, channels, ..]`; the output has the same shape.
    ///
    /// # Panics
    /// With fewer than two dimensions.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        module::local_response_norm(x, self.size, self.alpha, self.beta, self.k)
    }
}

forward_modules! {
    LocalResponseNorm;
}
