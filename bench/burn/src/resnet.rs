//! Inference of ResNet-18 ([He et al. 2015](https://arxiv.org/abs/1512.03385)) with random weights.

use crate::{first, normal};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::module::adaptive_avg_pool2d;
use burn::tensor::{Device, Tensor, activation};

#[derive(Module, Debug)]
struct ResNet {
    stem: ConvNorm,
    pool: MaxPool2d,
    blocks: Vec<Block>,
    classes: Linear,
}

#[derive(Module, Debug)]
struct Block {
    first: ConvNorm,
    second: ConvNorm,
    shortcut: Option<ConvNorm>,
}

#[derive(Module, Debug)]
struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm,
}

pub(crate) fn infer(row: &Row, device: &Device) -> Result<Prepared> {
    let (model, image) = (ResNet::new(device).valid(), normal(row.sizes("x")?, device));
    Ok(Prepared::new(move || first(model.forward(image.clone()))))
}

impl ResNet {
    fn new(device: &Device) -> Self {
        let stages = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)];
        let blocks = stages.into_iter().flat_map(|(input, output, stride)| {
            [Block::new(input, output, stride, device), Block::new(output, output, 1, device)]
        });
        let pool = MaxPool2dConfig::new([3, 3]).with_strides([2, 2]);
        ResNet {
            stem: ConvNorm::new([3, 64], 7, 2, device),
            pool: pool.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(),
            blocks: blocks.collect(),
            classes: LinearConfig::new(512, 1000).init(device),
        }
    }

    fn forward(&self, image: Tensor<4>) -> Tensor<2> {
        let x = self.pool.forward(activation::relu(self.stem.forward(image)));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        self.classes.forward(adaptive_avg_pool2d(x, [1, 1]).flatten(1, 3))
    }
}

impl Block {
    fn new(input: usize, output: usize, stride: usize, device: &Device) -> Self {
        Block {
            first: ConvNorm::new([input, output], 3, stride, device),
            second: ConvNorm::new([output, output], 3, 1, device),
            shortcut: (stride > 1).then(|| ConvNorm::new([input, output], 1, stride, device)),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = self.second.forward(activation::relu(self.first.forward(x.clone())));
        let shortcut = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x),
            None => x,
        };
        activation::relu(y + shortcut)
    }
}

impl ConvNorm {
    fn new(channels: [usize; 2], kernel: usize, stride: usize, device: &Device) -> Self {
        let zeros = kernel / 2;
        let conv = Conv2dConfig::new(channels, [kernel; 2])
            .with_stride([stride; 2])
            .with_padding(PaddingConfig2d::Explicit(zeros, zeros, zeros, zeros));
        ConvNorm {
            conv: conv.with_bias(false).init(device),
            norm: BatchNormConfig::new(channels[1]).init(device),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.norm.forward(self.conv.forward(x))
    }
}
