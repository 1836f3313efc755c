//! Residual networks ([He et al. 2015](https://arxiv.org/abs/1512.03385)) with random weights: ResNet-18 of pairs of
//! convolutions, and ResNet-50 of bottlenecks.

use super::{first, normal};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::module::adaptive_avg_pool2d;
use kiln::nn::{
    BatchNorm, BatchNormConfig, Conv2d, Conv2dConfig, Linear, LinearConfig, MaxPool2d, MaxPool2dConfig,
    Module,
};
use kiln::{Backend, DType, Tensor, activation};

#[derive(Module, Clone, Debug)]
pub(super) struct ResNet<B: Backend> {
    stem: ConvNorm<B>,
    pool: MaxPool2d,
    blocks: Vec<Block<B>>,
    classes: Linear<B>,
}

#[derive(Module, Clone, Debug)]
struct Block<B: Backend> {
    layers: Vec<ConvNorm<B>>,
    shortcut: Option<ConvNorm<B>>,
}

#[derive(Module, Clone, Debug)]
struct ConvNorm<B: Backend> {
    conv: Conv2d<B>,
    norm: BatchNorm<B>,
}

pub(crate) fn infer<B: Backend>(row: &Row, device: &B::Device) -> Result<Prepared> {
    let (model, image) =
        (ResNet::<B>::new(row, device)?, normal::<B, 4>(row.sizes("x")?, DType::F32, device));
    Ok(Prepared::new(move || first(model.forward(image.clone()).as_any())))
}

impl<B: Backend> ResNet<B> {
    pub(super) fn new(row: &Row, device: &B::Device) -> Result<Self> {
        let expansion = row.size("expansion")?;
        let stem = ConvNorm::new([3, 64], 7, 2, device);
        let mut blocks = Vec::new();
        let mut channels = 64;
        for (stage, count) in row.sizes::<4>("blocks")?.into_iter().enumerate() {
            for block in 0..count {
                let stride = if block == 0 && stage > 0 { 2 } else { 1 };
                blocks.push(Block::new(channels, 64 << stage, expansion, stride, device));
                channels = (64 << stage) * expansion;
            }
        }
        Ok(ResNet {
            stem,
            pool: MaxPool2dConfig::new([3, 3]).with_stride(Some([2, 2])).with_padding([1, 1]).init(),
            blocks,
            classes: LinearConfig::new(channels, row.size("classes")?).init(device),
        })
    }

    pub(super) fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = self.pool.forward(activation::relu(self.stem.forward(images)));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        self.classes.forward(adaptive_avg_pool2d(x, [1, 1]).flatten(1, 3))
    }
}

impl<B: Backend> Block<B> {
    /// Two convolutions. With an expansion of the width, three, of which the middle one sees neighbours.
    fn new(input: usize, width: usize, expansion: usize, stride: usize, device: &B::Device) -> Self {
        let output = width * expansion;
        let conv = |channels, kernel, stride| ConvNorm::new(channels, kernel, stride, device);
        let layers = match expansion {
            1 => vec![conv([input, width], 3, stride), conv([width, width], 3, 1)],
            _ => {
                vec![conv([input, width], 1, 1), conv([width, width], 3, stride), conv([width, output], 1, 1)]
            }
        };
        Block { layers, shortcut: (input != output).then(|| conv([input, output], 1, stride)) }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let (last, layers) = self.layers.split_last().expect("a block has layers");
        let y = last.forward(layers.iter().fold(x.clone(), |x, layer| activation::relu(layer.forward(x))));
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
