//! Layer normalisation and RMS normalisation: over the last dimension.

use crate::module::forward::forward_modules;
use crate::{Config, Initializer, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor, module};

/// Settings of a [`LayerNorm`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LayerNormConfig {
    /// Length of the last dimension.
    pub d_model: usize,
    /// Added to the variance for numerical stability. Default: 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Whether to learn a scale. Default: true.
    #[config(default = true)]
    pub weight: bool,
    /// Whether to learn a bias. Default: true.
    #[config(default = true)]
    pub bias: bool,
}

/// Layer normalisation: `(x - mean) / √(variance + ε) * weight + bias` over the last dimension, with the biased
/// variance
/// ([Ba et al. 2016](https://arxiv.org/abs/1607.06450)).
#[derive(Module, Clone, Debug)]
pub struct LayerNorm<B: Backend = Dyn> {
    /// `[d_model]`; initialized to ones.
    pub weight: Option<Param<Tensor<B, 1>>>,
    /// `[d_model]`; initialized to zeros.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// Added to the variance for numerical stability.
    pub epsilon: f64,
}

impl LayerNormConfig {
    /// Returns the layer on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> LayerNorm<B> {
        LayerNorm {
            weight: self.weight.then(|| Initializer::Ones.init([self.d_model], device)),
            bias: self.bias.then(|| Initializer::Zeros.init([self.d_model], device)),
            epsilon: self.epsilon,
        }
    }
}

impl<B: Backend> LayerNorm<B> {
    /// Normalises `[.., d_model]`; the output has the same shape.
    ///
    /// # Panics
    /// When the length of the last dimension differs from that of weight or bias.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let (weight, bias) = (self.weight.as_ref().map(Param::val), self.bias.as_ref().map(Param::val));
        module::layer_norm(x, weight, bias, self.epsilon)
    }
}

/// Settings of an [`RmsNorm`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct RmsNormConfig {
    /// Length of the last dimension.
    pub d_model: usize,
    /// Added to the mean square for numerical stability. Default: 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

/// RMS normalisation: `x / √(mean(x²) + ε) * weight` over the last dimension
/// ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467)).
#[derive(Module, Clone, Debug)]
pub struct RmsNorm<B: Backend = Dyn> {
    /// `[d_model]`; initialized to ones.
    pub weight: Param<Tensor<B, 1>>,
    /// Added to the mean square for numerical stability.
    pub epsilon: f64,
}

impl RmsNormConfig {
    /// Returns the layer on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> RmsNorm<B> {
        RmsNorm { weight: Initializer::Ones.init([self.d_model], device), epsilon: self.epsilon }
    }
}

impl<B: Backend> RmsNorm<B> {
    /// Normalises `[.., d_model]`; the output has the same shape.
    ///
    /// # Panics
    /// When the length of the last dimension differs from `d_model`.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        module::rms_norm(x, Some(self.weight.val()), self.epsilon)
    }
}

forward_modules! {
    LayerNorm<B>;
    RmsNorm<B>;
}
