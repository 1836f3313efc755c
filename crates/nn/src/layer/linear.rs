//! The linear layer.

use crate::{Config, Initializer, Module, Param};
use kiln_tensor::{Backend, Dyn, Tensor, module};

/// Settings of a [`Linear`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LinearConfig {
    /// Numbers per input.
    pub d_input: usize,
    /// Numbers per output.
    pub d_output: usize,
    /// Whether a bias is added. Default: true.
    #[config(default = true)]
    pub bias: bool,
    /// What weight and bias start from, both by the fans of the weight. Default: [`Initializer::LINEAR`].
    #[config(default = Initializer::LINEAR)]
    pub initializer: Initializer,
}

/// `y = x Wᵀ + b` over the last axis.
#[derive(Module, Clone, Debug)]
pub struct Linear<B: Backend = Dyn> {
    /// `[out, in]`.
    pub weight: Param<Tensor<B, 2>>,
    /// `[out]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
}

impl LinearConfig {
    /// A layer with fresh weights on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Linear<B> {
        let (input, output) = (self.d_input, self.d_output);
        let bias = || self.initializer.init_with([output], input, output, device);
        Linear { weight: self.initializer.init([output, input], device), bias: self.bias.then(bias) }
    }
}

impl<B: Backend> Linear<B> {
    /// `[.., in]` to `[.., out]`.
    ///
    /// # Panics
    /// When the last axis is not as long as the weight's inputs.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        module::linear(x, self.weight.val(), self.bias.as_ref().map(Param::val))
    }
}
