//! The network (two convolutions, two linear layers) and its batches.

use kiln::data::vision::{MnistDataset, MnistItem};
use kiln::data::{Batcher, DataError};
use kiln::nn::{
    Config, Conv2d, Conv2dConfig, Dropout, DropoutConfig, Linear, LinearConfig, MaxPool2d, MaxPool2dConfig,
    Module,
};
use kiln::train::{StepOutput, TrainStep, ValidStep};
use kiln::{AutodiffBackend, Backend, Int, Tensor, TensorData, activation, loss};

/// Hyperparameters of the network.
#[derive(Config, Clone, Debug)]
pub(crate) struct NetConfig {
    /// Number of output channels of each convolution.
    #[config(default = [32, 64])]
    pub(crate) channels: [usize; 2],
    /// Number of output features of the hidden linear layer.
    #[config(default = 128)]
    pub(crate) hidden: usize,
    /// Dropout probability of hidden units.
    #[config(default = 0.25)]
    pub(crate) dropout: f64,
}

/// A convolutional network for images of 28 × 28 pixels.
#[derive(Module, Clone, Debug)]
pub(crate) struct Net<B: Backend> {
    conv1: Conv2d<B>,
    conv2: Conv2d<B>,
    pool: MaxPool2d,
    dropout: Dropout,
    linear1: Linear<B>,
    linear2: Linear<B>,
}

impl NetConfig {
    /// Creates a network with initial weights.
    pub(crate) fn init<B: Backend>(&self, device: &B::Device) -> Net<B> {
        let [first, second] = self.channels;
        Net {
            conv1: Conv2dConfig::new([1, first], [3, 3]).init(device),
            conv2: Conv2dConfig::new([first, second], [3, 3]).init(device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            dropout: DropoutConfig::new(self.dropout).init(),
            linear1: LinearConfig::new(second * 5 * 5, self.hidden).init(device),
            linear2: LinearConfig::new(self.hidden, 10).init(device),
        }
    }
}

impl<B: Backend> Net<B> {
    /// Input images `[batch, 1, 28, 28]`; returns logits `[batch, 10]`.
    pub(crate) fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = self.pool.forward(activation::relu(self.conv1.forward(images)));
        let x = self.pool.forward(activation::relu(self.conv2.forward(x)));
        let x = activation::relu(self.linear1.forward(x.flatten(1, 3)));
        self.linear2.forward(self.dropout.forward(x))
    }
}

impl<B: Backend> Net<B> {
    fn classify(&self, batch: MnistBatch<B>) -> StepOutput<B> {
        let logits = self.forward(batch.images);
        let loss = loss::cross_entropy(logits.clone(), batch.targets.clone(), &Default::default());
        StepOutput::classification(loss, logits, batch.targets)
    }
}

impl<B: AutodiffBackend> TrainStep<MnistBatch<B>> for Net<B> {
    type Backend = B;
    fn step(&self, batch: MnistBatch<B>) -> StepOutput<B> {
        self.classify(batch)
    }
}

impl<B: Backend> ValidStep<MnistBatch<B>> for Net<B> {
    type Backend = B;
    fn step(&self, batch: MnistBatch<B>) -> StepOutput<B> {
        self.classify(batch)
    }
}

/// A batch of images and labels.
#[derive(Clone, Debug)]
pub(crate) struct MnistBatch<B: Backend> {
    /// Normalized pixels, `[batch, 1, 28, 28]`.
    pub(crate) images: Tensor<B, 4>,
    /// Labels 0 to 9, `[batch]`.
    pub(crate) targets: Tensor<B, 1, Int>,
}

/// Batches items on a device. Pixels are normalized to mean 0 and variance 1.
#[derive(Clone, Debug)]
pub(crate) struct MnistBatcher<B: Backend> {
    /// Device of the batches.
    pub(crate) device: B::Device,
}

impl<B: Backend> Batcher<MnistItem, MnistBatch<B>> for MnistBatcher<B> {
    fn batch(&self, items: Vec<MnistItem>) -> Result<MnistBatch<B>, DataError> {
        let normalize = |&pixel: &u8| (f32::from(pixel) / 255.0 - MnistDataset::MEAN) / MnistDataset::STD;
        let pixels =
            items.iter().flat_map(|item| item.image.as_flattened()).map(normalize).collect::<Vec<f32>>();
        let targets = items.iter().map(|item| i32::from(item.label)).collect::<Vec<i32>>();
        let images = TensorData::new(pixels, [items.len(), 1, 28, 28]).map_err(DataError::batcher)?;
        Ok(MnistBatch {
            images: Tensor::from_data(images, &self.device),
            targets: Tensor::from_data(targets, &self.device),
        })
    }
}
