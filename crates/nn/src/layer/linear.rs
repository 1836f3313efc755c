//! The linear layer.

use crate::module::forward::forward_modules;
use crate::{Config, Initializer, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor, float8, module};

/// Settings of a [`Linear`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LinearConfig {
    /// Number of input features.
    pub d_input: usize,
    /// Number of output features.
    pub d_output: usize,
    /// Whether to add a bias. Default: true.
    #[config(default = true)]
    pub bias: bool,
    /// The initializer of weight and bias; both use the fans of the weight. Default: [`Initializer::LINEAR`].
    #[config(default = Initializer::LINEAR)]
    pub initializer: Initializer,
}

/// Linear (fully connected) layer: `y = x Wᵀ + b` over the last dimension.
#[derive(Module, Clone, Debug)]
pub struct Linear<B: Backend = Dyn> {
    /// `[out, in]`.
    pub weight: Param<Tensor<B, 2>>,
    /// `[out]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
}

impl LinearConfig {
    /// Returns a layer with initialized parameters on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Linear<B> {
        let (input, output) = (self.d_input, self.d_output);
        let bias = || self.initializer.init_with([output], input, output, device);
        Linear { weight: self.initializer.init([output, input], device), bias: self.bias.then(bias) }
    }
}

impl<B: Backend> Linear<B> {
    /// Computes `x Wᵀ + b`: the input is `[.., in]`, the output `[.., out]`.
    ///
    /// # Panics
    /// When the last dimension differs from the weight's `in`.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        module::linear(x, self.weight.val(), self.bias.as_ref().map(Param::val))
    }

    /// Computes [`forward`](Linear::forward) with 8-bit floats: half the time on GPUs with FP8 tensor cores, at lower
    /// accuracy ([`float8`]). The stored parameters do not change.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::LinearConfig;
    /// use kiln_tensor::{Distribution, Tensor};
    ///
    /// let device = Default::default();
    /// let layer = LinearConfig::new(32, 8).init::<Flex>(&device);
    /// let x = Tensor::<Flex, 2>::random([4, 32], Distribution::Normal(0.0, 1.0), &device);
    /// let difference = (layer.forward_float8(x.clone()) - layer.forward(x)).abs().max();
    /// assert!((1e-4..0.2).contains(&difference.into_scalar::<f32>()));
    /// ```
    ///
    /// # Panics
    /// When the last dimension differs from the weight's `in`.
    #[track_caller]
    pub fn forward_float8<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        float8::linear(x, self.weight.val(), self.bias.as_ref().map(Param::val))
    }
}

forward_modules! {
    Linear<B>;
}
