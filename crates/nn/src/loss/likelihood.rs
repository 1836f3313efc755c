//! Negative log-likelihoods of distributions, and the Kullback-Leibler divergence.

use super::Reduction;
use crate::module::plain::{default_modules, plain_module};
use kiln_tensor::{Backend, Tensor, loss};

plain_module! {
    /// Kullback-Leibler divergence of predicted log-probabilities: `target (ln(target) - prediction)`. Where the target
    /// is 0, the loss is 0.
    ///
    /// [`Reduction::BatchMean`] is the divergence per example, and [`Reduction::Auto`] stands for it, as in Burn.
    /// [`Reduction::Mean`], PyTorch's default, divides by the number of elements, which is not the divergence.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{KlDivLoss, Reduction};
    /// use kiln_tensor::Tensor;
    ///
    /// let predictions = Tensor::<Flex, 2>::from([[0.25, 0.75], [0.5, 0.5]]).log();
    /// let targets = Tensor::<Flex, 2>::from([[0.25, 0.75], [1.0, 0.0]]);
    /// let loss = KlDivLoss::default().forward(predictions, targets, Reduction::BatchMean);
    /// assert!((loss.item::<f32>() - 0.5 * 2f32.ln()).abs() < 1e-6);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.KLDivLoss.html)
    #[doc(alias = "KLDivLoss")]
    #[derive(Copy)]
    KlDivLoss
    #[derive(Copy, Eq)]
    KlDivLossConfig {
        /// Whether targets are log-probabilities. Default: no.
        log_target: bool = false,
    }
}

elementwise!(KlDivLoss: loss::kl_div, kl_div_loss(log_target); "When shapes or dtypes differ.");

plain_module! {
    /// Negative log-likelihood of counts under a Poisson distribution: `exp(x) - target x` for the logarithm `x` of the
    /// rate, `x - target ln(x + eps)` for the rate. Unlike Burn's, it does not check the elements, which would wait for
    /// the device: the loss of a negative rate is NaN.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{PoissonNllLoss, Reduction};
    /// use kiln_tensor::Tensor;
    ///
    /// let (rates, counts) = (Tensor::<Flex, 1>::from([0.0, 1.0]), Tensor::<Flex, 1>::from([1.0, 2.0]));
    /// let loss = PoissonNllLoss::default().forward(rates, counts, Reduction::Sum);
    /// assert!((loss.item::<f32>() - (1.0 + 1f32.exp() - 2.0)).abs() < 1e-6);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.PoissonNLLLoss.html)
    #[derive(Copy)]
    PoissonNllLoss
    #[derive(Copy)]
    PoissonNllLossConfig {
        /// Whether predictions are logarithms of the rate. Default: yes.
        log_input: bool = true,
        /// Whether to add Stirling's approximation of `ln(target!)` for targets above 1. Default: no.
        full: bool = false,
        /// Added to rates before the logarithm, if `log_input` is false. Default: 1e-8.
        eps: f64 = 1e-8,
    }
}

elementwise!(
    PoissonNllLoss: loss::poisson_nll, poisson_nll_loss(log_input, full, eps); "When shapes or dtypes differ."
);

plain_module! {
    /// Negative log-likelihood of targets under normal distributions with predicted means `x` and variances `v`:
    /// `(ln(v) + (x - target)² / v) / 2`. A variance below `eps` is replaced by `eps`, and its gradient passes
    /// unchanged.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{GaussianNllLoss, Reduction};
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 1>::from([3.0]);
    /// let loss = GaussianNllLoss::default().forward(x.clone(), x.zeros_like(), x.ones_like(), Reduction::Mean);
    /// assert_eq!(loss.item::<f32>(), 4.5);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.GaussianNLLLoss.html)
    #[doc(alias = "GaussianNLLLoss")]
    #[derive(Copy)]
    GaussianNllLoss
    #[derive(Copy)]
    GaussianNllLossConfig {
        /// Whether to add the constant `ln(2π) / 2`. Default: no.
        full: bool = false,
        /// The least variance; above 0. Default: 1e-6.
        eps: f64 = 1e-6,
    }
}

elementwise!(
    GaussianNllLoss(predictions, targets, variances): loss::gaussian_nll, gaussian_nll_loss(full, eps);
    "means and targets of equal shape `[..]`, with variances that broadcast to it",
    "When the shapes are incompatible, dtypes differ, or `eps` is not positive."
);

default_modules! {
    KlDivLoss KlDivLossConfig;
    PoissonNllLoss PoissonNllLossConfig;
    GaussianNllLoss GaussianNllLossConfig;
}
