//! Inference of ResNet-18 ([He et al. 2015](https://arxiv.org/abs/1512.03385)) with random weights.

use super::{first, normal};
use bench_protocol::Prepared;
use kiln::module::adaptive_avg_pool2d;
use kiln::nn::{
    BatchNorm, BatchNormConfig, Conv2d, Conv2dConfig, Linear, LinearConfig, MaxPool2d, MaxPool2dConfig,
    Module,
};
use kiln::{Backend, Tensor, activation};

#[derive(Module, Clone, Debug)]
struct ResNet<B: Backend> {
    stem: ConvNorm<B>,
    pool: MaxPool2d,
    blocks: Vec<Block<B>>,
    classes: Linear<B>,
}

#[derive(Module, Clone, Debug)]
struct Block<B: Backend> {
    first: ConvNorm<B>,
    second: ConvNorm<B>,
    shortcut: Option<ConvNorm<B>>,
}

#[derive(Module, Clone, Debug)]
struct ConvNorm<B: Backend> {
    conv: Conv2d<B>,
    norm: BatchNorm<B>,
}

pub(crate) fn infer<B: Backend>(device: &B::Device) -> Prepared {
    let (model, image) = (ResNet::<B>::new(device), normal::<B, 4>([1, 3, 224, 224], device));
    Prepared::new(move || first(&model.forward(image.clone())))
}

impl<B: Backend> ResNet<B> {
    fn new(device: &B::Device) -> Self {
        let stages = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)];
        let blocks = stages.into_iter().flat_map(|(input, output, stride)| {
            [Block::new(input, output, stride, device), Block::new(output, output, 1, device)]
        });
        ResNet {
            stem: ConvNorm::new([3, 64], 7, 2, device),
            pool: MaxPool2dConfig::new([3, 3]).with_stride(Some([2, 2])).with_padding([1, 1]).init(),
            blocks: blocks.collect(),
            classes: LinearConfig::new(512, 1000).init(device),
        }
    }

    fn forward(&self, image: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = self.pool.forward(activation::relu(self.stem.forward(image)));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        self.classes.forward(adaptive_avg_pool2d(x, [1, 1]).flatten(1, 3))
    }
}

impl<B: Backend> Block<B> {
    fn new(input: usize, output: usize, stride: usize, device: &B::Device) -> Self {
        Block {
            first: ConvNorm::new([input, output], 3, stride, device),
            second: ConvNorm::new([output, output], 3, 1, device),
            shortcut: (stride > 1).then(|| ConvNorm::new([input, output], 1, stride, device)),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let y = self.second.forward(activation::relu(self.first.forward(x.clone())));
        let shortcut = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x),
            None => x,
        };
        activation::relu(y + shortcut)
    }
}

impl<B: Backend> ConvNorm<B> {
    fn new(channels: [usize; 2], kernel: usize, stride: usize, device: &B::Device) -> Self {
        let padding = [kernel / 2; 2];
        let conv = Conv2dConfig::new(channels, [kernel; 2]).with_stride([stride; 2]).with_padding(padding);
        ConvNorm {
            conv: conv.with_bias(false).init(device),
            norm: BatchNormConfig::new(channels[1]).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.norm.forward(self.conv.forward(x))
    }
}
