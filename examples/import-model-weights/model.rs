//! The network of `train.py`, with names of its own.

use kiln::nn::conv::{Conv2d, Conv2dConfig};
use kiln::nn::pool::{MaxPool2d, MaxPool2dConfig};
use kiln::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, Relu};
use kiln::prelude::*;

/// Two convolutions with batch normalisation, then one linear layer.
#[derive(Module, Clone, Debug)]
pub(crate) struct Model<B: Backend> {
    conv1: Conv2d<B>,
    norm1: BatchNorm<B>,
    conv2: Conv2d<B>,
    norm2: BatchNorm<B>,
    output: Linear<B>,
    pool: MaxPool2d,
    activation: Relu,
}

impl<B: Backend> Model<B> {
    /// Returns a model with initial weights.
    pub(crate) fn new(device: &B::Device) -> Self {
        let conv = |channels| Conv2dConfig::new(channels, [3, 3]).with_padding([1, 1]).init(device);
        Model {
            conv1: conv([1, 8]),
            norm1: BatchNormConfig::new(8).init(device),
            conv2: conv([8, 16]),
            norm2: BatchNormConfig::new(16).init(device),
            output: LinearConfig::new(16 * 7 * 7, 10).init(device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            activation: Relu::new(),
        }
    }

    /// Input images `[batch, 28, 28]`; returns logits `[batch, 10]`.
    pub(crate) fn forward(&self, images: Tensor<B, 3>) -> Tensor<B, 2> {
        let [batch, height, width] = images.dims();
        let x = self.norm1.forward(self.conv1.forward(images.reshape([batch, 1, height, width])));
        let x = self.pool.forward(self.activation.forward(x)); // [batch, 8, 14, 14]
        let x = self.norm2.forward(self.conv2.forward(x));
        let x = self.pool.forward(self.activation.forward(x)); // [batch, 16, 7, 7]
        self.output.forward(x.reshape([batch, 16 * 7 * 7]))
    }
}
