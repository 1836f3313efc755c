//! The generator and the critic: perceptrons with two hidden layers.

use kiln::data::vision::MnistDataset;
use kiln::nn::{BatchNorm, BatchNormConfig, Config, Linear, LinearConfig, Module};
use kiln::{Backend, Distribution, Tensor, activation};

/// Side of an image in pixels.
pub(crate) const SIDE: usize = 28;

/// Hyperparameters of both networks.
#[derive(Config, Clone, Debug)]
pub(crate) struct WganConfig {
    /// Number of elements of a noise vector.
    #[config(default = 64)]
    pub(crate) latent: usize,
    /// Number of features of the generator's hidden layers. The critic has the same in reverse order.
    #[config(default = [256, 512])]
    pub(crate) hidden: [usize; 2],
}

/// Maps noise to images. Batch normalisation is not in the critic, whose penalty applies to each image separately.
#[derive(Module, Clone, Debug)]
pub(crate) struct Generator<B: Backend> {
    linear1: Linear<B>,
    norm1: BatchNorm<B>,
    linear2: Linear<B>,
    norm2: BatchNorm<B>,
    linear3: Linear<B>,
}

/// Scores images: the difference of the mean scores of real and generated images estimates their Wasserstein distance.
#[derive(Module, Clone, Debug)]
pub(crate) struct Critic<B: Backend> {
    linear1: Linear<B>,
    linear2: Linear<B>,
    linear3: Linear<B>,
}

impl WganConfig {
    /// Creates a generator with initial weights.
    pub(crate) fn generator<B: Backend>(&self, device: &B::Device) -> Generator<B> {
        let [first, second] = self.hidden;
        Generator {
            linear1: LinearConfig::new(self.latent, first).init(device),
            norm1: BatchNormConfig::new(first).init(device),
            linear2: LinearConfig::new(first, second).init(device),
            norm2: BatchNormConfig::new(second).init(device),
            linear3: LinearConfig::new(second, SIDE * SIDE).init(device),
        }
    }

    /// Creates a critic with initial weights.
    pub(crate) fn critic<B: Backend>(&self, device: &B::Device) -> Critic<B> {
        let [last, first] = self.hidden;
        Critic {
            linear1: LinearConfig::new(SIDE * SIDE, first).init(device),
            linear2: LinearConfig::new(first, last).init(device),
            linear3: LinearConfig::new(last, 1).init(device),
        }
    }

    /// Draws noise `[count, latent]` from the random numbers of a device.
    pub(crate) fn noise<B: Backend>(&self, count: usize, device: &B::Device) -> Tensor<B, 2> {
        Tensor::random([count, self.latent], NOISE, device)
    }
}

/// The distribution of noise.
pub(crate) const NOISE: Distribution = Distribution::Normal(0.0, 1.0);

impl<B: Backend> Generator<B> {
    /// Input noise `[batch, latent]`; returns images `[batch, 1, 28, 28]`, normalised as those of MNIST are.
    pub(crate) fn forward(&self, noise: Tensor<B, 2>) -> Tensor<B, 4> {
        let batch = noise.dims()[0];
        let x = activation::relu(self.norm1.forward(self.linear1.forward(noise)));
        let x = activation::relu(self.norm2.forward(self.linear2.forward(x)));
        let pixels = activation::sigmoid(self.linear3.forward(x));
        ((pixels - MnistDataset::MEAN) / MnistDataset::STD).reshape([batch, 1, SIDE, SIDE])
    }
}

impl<B: Backend> Critic<B> {
    /// Input images `[batch, 1, 28, 28]`; returns scores `[batch, 1]`.
    pub(crate) fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = activation::leaky_relu(self.linear1.forward(images.flatten(1, 3)), 0.2);
        let x = activation::leaky_relu(self.linear2.forward(x), 0.2);
        self.linear3.forward(x)
    }
}
