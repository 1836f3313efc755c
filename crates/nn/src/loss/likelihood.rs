//! Negative log-likelihoods of distributions, and the Kullback-Leibler divergence.

use super::Reduction;
use crate::{Config, Module};
use kiln_tensor::{Backend, Tensor, loss};

/// Settings of a [`KlDivLoss`].
#[derive(Config, Clone, Copy, Debug, PartialEq, Eq)]
pub struct KlDivLossConfig {
    /// Whether targets are log-probabilities. Default: no.
    #[config(default = false)]
    pub log_target: bool,
}

/// Kullback-Leibler divergence of predicted log-probabilities: `target (ln(target) - prediction)`. Where the target is
/// 0, the loss is 0.
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
#[derive(Module, Clone, Copy, Debug, Default)]
pub struct KlDivLoss {
    /// Whether targets are log-probabilities.
    pub log_target: bool,
}

impl KlDivLossConfig {
    /// Returns the loss.
    pub fn init(&self) -> KlDivLoss {
        KlDivLoss { log_target: self.log_target }
    }
}

pairwise!(KlDivLoss: loss::kl_div, kl_div_loss(log_target); "When shapes or dtypes differ.");

/// Settings of a [`PoissonNllLoss`].
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub struct PoissonNllLossConfig {
    /// Whether predictions are logarithms of the rate. Default: yes.
    #[config(default = true)]
    pub log_input: bool,
    /// Whether to add Stirling's approximation of `ln(target!)` for targets above 1. Default: no.
    #[config(default = false)]
    pub full: bool,
    /// Added to rates before the logarithm, if `log_input` is false. Default: 1e-8.
    #[config(default = 1e-8)]
    pub eps: f64,
}

/// Negative log-likelihood of counts under a Poisson distribution: `exp(x) - target x` for the logarithm `x` of the
/// rate, `x - target ln(x + eps)` for the rate. Unlike Burn's, it does not check the elements, which would wait for the
/// device: the loss of a negative rate is NaN.
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
#[derive(Module, Clone, Copy, Debug)]
pub struct PoissonNllLoss {
    /// Whether predictions are logarithms of the rate.
    pub log_input: bool,
    /// Whether to add Stirling's approximation of `ln(target!)` for targets above 1.
    pub full: bool,
    /// Added to rates before the logarithm.
    pub eps: f64,
}

impl PoissonNllLossConfig {
    /// Returns the loss.
    pub fn init(&self) -> PoissonNllLoss {
        PoissonNllLoss { log_input: self.log_input, full: self.full, eps: self.eps }
    }
}

impl Default for PoissonNllLoss {
    fn default() -> PoissonNllLoss {
        PoissonNllLossConfig::new().init()
    }
}

pairwise!(
    PoissonNllLoss: loss::poisson_nll, poisson_nll_loss(log_input, full, eps); "When shapes or dtypes differ."
);

/// Settings of a [`GaussianNllLoss`].
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub struct GaussianNllLossConfig {
    /// Whether to add the constant `ln(2π) / 2`. Default: no.
    #[config(default = false)]
    pub full: bool,
    /// The least variance; above 0. Default: 1e-6.
    #[config(default = 1e-6)]
    pub eps: f64,
}

/// Negative log-likelihood of targets under normal distributions with predicted means `x` and variances `v`:
/// `(ln(v) + (x - target)² / v) / 2`. A variance below `eps` is replaced by `eps`, and its gradient passes unchanged.
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
#[derive(Module, Clone, Copy, Debug)]
pub struct GaussianNllLoss {
    /// Whether to add the constant `ln(2π) / 2`.
    pub full: bool,
    /// The least variance.
    pub eps: f64,
}

impl GaussianNllLossConfig {
    /// Returns the loss.
    pub fn init(&self) -> GaussianNllLoss {
        GaussianNllLoss { full: self.full, eps: self.eps }
    }
}

impl Default for GaussianNllLoss {
    fn default() -> GaussianNllLoss {
        GaussianNllLossConfig::new().init()
    }
}

impl GaussianNllLoss {
    /// Computes the loss of means and targets of equal shape `[..]`, with variances that broadcast to it. The output
    /// has shape `[1]`, or with [`Reduction::None`] `[elements]`.
    ///
    /// # Panics
    /// When the shapes are incompatible, dtypes differ, or `eps` is not positive.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
        variances: Tensor<B, D>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        loss::gaussian_nll(predictions, targets, variances, self.full, self.eps, reduction)
    }

    /// Computes the loss of each element. The output has the shape of the predictions.
    ///
    /// # Panics
    /// When the shapes are incompatible, dtypes differ, or `eps` is not positive.
    #[track_caller]
    pub fn forward_no_reduction<B: Backend, const D: usize>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
        variances: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let (targets, variances) = (targets.into_any(), variances.into_any());
        predictions.map(|any| any.gaussian_nll_loss(targets, variances, self.full, self.eps, Reduction::None))
    }
}
