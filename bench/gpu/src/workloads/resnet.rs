//! Training of ResNet-50, in mixed precision.

use super::training::Training;
use super::{GpuDevice, Mixed};
use bench_protocol::gpu::resnet::*;
use bench_protocol::random::Random;
use bench_protocol::{Prepared, Result};
use kiln::module::adaptive_avg_pool2d;
use kiln::nn::{
    BatchNorm, BatchNormConfig, Conv2d, Conv2dConfig, Linear, LinearConfig, MaxPool2d, MaxPool2dConfig,
    Module,
};
use kiln::optim::SgdConfig;
use kiln::{Backend, DType, Int, Tensor, activation, loss};

#[derive(Module, Clone, Debug)]
struct ResNet<B: Backend> {
    stem: ConvNorm<B>,
    pool: MaxPool2d,
    blocks: Vec<Bottleneck<B>>,
    classes: Linear<B>,
}

/// Three convolutions, of which the middle one sees neighbours.
#[derive(Module, Clone, Debug)]
struct Bottleneck<B: Backend> {
    reduce: ConvNorm<B>,
    spatial: ConvNorm<B>,
    expand: ConvNorm<B>,
    shortcut: Option<ConvNorm<B>>,
}

#[derive(Module, Clone, Debug)]
struct ConvNorm<B: Backend> {
    conv: Conv2d<B>,
    norm: BatchNorm<B>,
}

/// How many times wider a block's output is than its middle.
const EXPANSION: usize = 4;

pub(crate) fn train(device: &GpuDevice) -> Result<Prepared> {
    let model = ResNet::<Mixed>::new(device);
    let images = super::normal::<Mixed, 4>([BATCH, 3, 224, 224], DType::F32, device);
    let labels = Random::new(7).indices(BATCH, CLASSES as u32).into_iter().map(|class| class as i32);
    let labels = Tensor::<Mixed, 1, Int>::from_data(labels.collect::<Vec<i32>>(), device);
    let optimizer = SgdConfig::new().with_momentum(MOMENTUM).init();
    let mut training = Training::new(model, optimizer, LEARNING_RATE);
    let device = *device;
    Ok(Prepared::new(move || {
        training.step(&device, |model| {
            loss::cross_entropy(model.forward(images.clone()), labels.clone(), &Default::default())
        })
    }))
}

impl<B: Backend> ResNet<B> {
    fn new(device: &B::Device) -> Self {
        let mut blocks = Vec::new();
        let mut channels = 64;
        for (stage, count) in BLOCKS.into_iter().enumerate() {
            let width = 64 << stage;
            for block in 0..count {
                let stride = if block == 0 && stage > 0 { 2 } else { 1 };
                blocks.push(Bottleneck::new(channels, width, stride, device));
                channels = width * EXPANSION;
            }
        }
        ResNet {
            stem: ConvNorm::new([3, 64], 7, 2, device),
            pool: MaxPool2dConfig::new([3, 3]).with_stride(Some([2, 2])).with_padding([1, 1]).init(),
            blocks,
            classes: LinearConfig::new(channels, CLASSES).init(device),
        }
    }

    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = self.pool.forward(activation::relu(self.stem.forward(images)));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        self.classes.forward(adaptive_avg_pool2d(x, [1, 1]).flatten(1, 3))
    }
}

impl<B: Backend> Bottleneck<B> {
    fn new(input: usize, width: usize, stride: usize, device: &B::Device) -> Self {
        let output = width * EXPANSION;
        Bottleneck {
            reduce: ConvNorm::new([input, width], 1, 1, device),
            spatial: ConvNorm::new([width, width], 3, stride, device),
            expand: ConvNorm::new([width, output], 1, 1, device),
            shortcut: (input != output).then(|| ConvNorm::new([input, output], 1, stride, device)),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let y = activation::relu(self.reduce.forward(x.clone()));
        let y = self.expand.forward(activation::relu(self.spatial.forward(y)));
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
