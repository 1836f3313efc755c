//! The model: two convolutions and two linear layers.

use kiln::nn::conv::{Conv2d, Conv2dConfig};
use kiln::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use kiln::nn::{Dropout, DropoutConfig, Linear, LinearConfig, Relu};
use kiln::prelude::*;

/// A convolutional network for grey images.
#[derive(Module, Clone, Debug)]
pub(crate) struct Model<B: Backend> {
    conv1: Conv2d<B>,
    conv2: Conv2d<B>,
    pool: AdaptiveAvgPool2d,
    dropout: Dropout,
    linear1: Linear<B>,
    linear2: Linear<B>,
    activation: Relu,
}

/// Hyperparameters of the model.
#[derive(Config, Clone, Debug)]
pub(crate) struct ModelConfig {
    num_classes: usize,
    hidden_size: usize,
    #[config(default = 0.5)]
    dropout: f64,
}

impl ModelConfig {
    /// Returns a model with initial weights.
    pub(crate) fn init<B: Backend>(&self, device: &B::Device) -> Model<B> {
        Model {
            conv1: Conv2dConfig::new([1, 8], [3, 3]).init(device),
            conv2: Conv2dConfig::new([8, 16], [3, 3]).init(device),
            pool: AdaptiveAvgPool2dConfig::new([8, 8]).init(),
            activation: Relu::new(),
            linear1: LinearConfig::new(16 * 8 * 8, self.hidden_size).init(device),
            linear2: LinearConfig::new(self.hidden_size, self.num_classes).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
        }
    }
}

impl<B: Backend> Model<B> {
    /// Input images `[batch, height, width]`; returns logits `[batch, num_classes]`.
    pub(crate) fn forward(&self, images: Tensor<B, 3>) -> Tensor<B, 2> {
        let [batch_size, height, width] = images.dims();
        let x = images.reshape([batch_size, 1, height, width]);
        let x = self.activation.forward(self.conv1.forward(x)); // [batch, 8, height - 2, width - 2]
        let x = self.activation.forward(self.conv2.forward(x)); // [batch, 16, height - 4, width - 4]
        let x = self.pool.forward(x); // [batch, 16, 8, 8]
        let x = x.reshape([batch_size, 16 * 8 * 8]);
        let x = self.activation.forward(self.linear1.forward(x)); // [batch, hidden_size]
        self.linear2.forward(self.dropout.forward(x))
    }
}
