//! Normalisation over the last axis.

use crate::{Config, Initializer, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor, module};

/// Settings of a [`LayerNorm`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LayerNormConfig {
    /// The length of the last axis.
    pub d_model: usize,
    /// Added to the variance. Default: 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Whether the result is scaled by a weight. Default: true.
    #[config(default = true)]
    pub weight: bool,
    /// Whether a bias is added. Default: true.
    #[config(default = true)]
    pub bias: bool,
}

/// `(x - mean) / √(variance + ε) * weight + bias` over the last axis, with the biased variance
/// ([Ba et al. 2016](https://arxiv.org/abs/1607.06450)).
#[derive(Module, Clone, Debug)]
pub struct LayerNorm<B: Backend = Dyn> {
    /// `[d_model]`; starts as ones.
    pub weight: Option<Param<Tensor<B, 1>>>,
    /// `[d_model]`; starts as zeros.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// Added to the variance.
    pub epsilon: f64,
}

impl LayerNormConfig {
    /// The layer on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> LayerNorm<B> {
        LayerNorm {
            weight: self.weight.then(|| Initializer::Ones.init([self.d_model], device)),
            bias: self.bias.then(|| Initializer::Zeros.init([self.d_model], device)),
            epsilon: self.epsilon,
        }
    }
}

impl<B: Backend> LayerNorm<B> {
    /// Input `[.., d_model]`; the output has the same shape.
    ///
    /// # Panics
    /// When the last axis is not as long as the weight.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let (weight, bias) = (self.weight.as_ref().map(Param::val), self.bias.as_ref().map(Param::val));
        module::layer_norm(x, weight, bias, self.epsilon)
    }
}

/// Settings of an [`RmsNorm`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct RmsNormConfig {
    /// The length of the last axis.
    pub d_model: usize,
    /// Added to the mean square. Default: 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

/// `x / √(mean(x²) + ε) * weight` over the last axis
/// ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467)).
#[derive(Module, Clone, Debug)]
pub struct RmsNorm<B: Backend = Dyn> {
    /// `[d_model]`; starts as ones.
    pub weight: Param<Tensor<B, 1>>,
    /// Added to the mean square.
    pub epsilon: f64,
}

impl RmsNormConfig {
    /// The layer on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> RmsNorm<B> {
        RmsNorm { weight: Initializer::Ones.init([self.d_model], device), epsilon: self.epsilon }
    }
}

impl<B: Backend> RmsNorm<B> {
    /// Input `[.., d_model]`; the output has the same shape.
    ///
    /// # Panics
    /// When the last axis is not as long as the weight.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        module::rms_norm(x, Some(self.weight.val()), self.epsilon)
    }
}
