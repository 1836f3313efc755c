//! Likelihoods with further operands.

use super::{Reduction, flat};
use crate::functions::table::functions;
use crate::{Backend, Tensor};

functions! {
    flat;

    /// Computes the negative log-likelihood of targets under normal distributions with predicted means and variances:
    /// `(ln(v) + (x - t)² / v) / 2`, plus `ln(2π) / 2` if `full`. Variances broadcast. Variances below `epsilon` (PyTorch's
    /// default is 1e-6) are replaced by `epsilon`, and their gradient passes unchanged.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::loss::{self, Reduction};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([3.0f32], &Default::default());
    /// let loss = loss::gaussian_nll(x.clone(), x.zeros_like(), x.ones_like(), false, 1e-6, Reduction::Mean);
    /// assert_eq!(loss.into_data().to_vec::<f32>(), [4.5]);
    /// ```
    ///
    /// # Panics
    /// When the shapes are incompatible, or `epsilon` is not positive.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gaussian_nll_loss.html)
    pub fn gaussian_nll[B: Backend, const D: usize](
        predictions: Tensor<B, D>,
        targets: Tensor<B, D> as any,
        variances: Tensor<B, D> as any,
        full: bool,
        epsilon: f64,
        reduction: Reduction,
    ) -> Tensor<B, 1> = gaussian_nll_loss;
}
