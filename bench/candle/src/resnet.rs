//! Inference of ResNet-18 ([He et al. 2015](https://arxiv.org/abs/1512.03385)) with random weights.

use crate::operations::padded_maxpool;
use crate::{first, input};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use candle_core::{D, DType, Device, Tensor};
use candle_nn::{
    BatchNorm, Conv2d, Conv2dConfig, Linear, Module, ModuleT, VarBuilder, VarMap, batch_norm, conv2d_no_bias,
    linear,
};

struct ResNet {
    stem: ConvNorm,
    blocks: Vec<Block>,
    classes: Linear,
}

struct Block {
    first: ConvNorm,
    second: ConvNorm,
    shortcut: Option<ConvNorm>,
}

struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm,
}

type Output<T> = candle_core::Result<T>;

pub(crate) fn infer(row: &Row) -> Result<Prepared> {
    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    ResNet::new(&builder)?;
    // A model made of the variables again, as plain tensors, keeps no graph for gradients.
    let tensors = variables.data().lock().map_err(|_| bench_protocol::failed("a thread panicked"))?.clone();
    let tensors = tensors.into_iter().map(|(name, variable)| (name, variable.as_detached_tensor())).collect();
    let model = ResNet::new(&VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu))?;
    let image = input::<4>(row, "x")?;
    Ok(Prepared::new(move || first(&model.forward(&image)?)))
}

impl ResNet {
    fn new(builder: &VarBuilder) -> Output<Self> {
        let stages = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)];
        let mut blocks = Vec::new();
        for (i, (input, output, stride)) in stages.into_iter().enumerate() {
            blocks.push(Block::new(input, output, stride, &builder.pp(format!("first{i}")))?);
            blocks.push(Block::new(output, output, 1, &builder.pp(format!("second{i}")))?);
        }
        Ok(ResNet {
            stem: ConvNorm::new([3, 64], 7, 2, &builder.pp("stem"))?,
            blocks,
            classes: linear(512, 1000, builder.pp("classes"))?,
        })
    }

    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        let mut x = padded_maxpool(&self.stem.forward(image)?.relu()?)?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        Ok(self.classes.forward(&x.mean(D::Minus1)?.mean(D::Minus1)?)?)
    }
}

impl Block {
    fn new(input: usize, output: usize, stride: usize, builder: &VarBuilder) -> Output<Self> {
        let shortcut = || ConvNorm::new([input, output], 1, stride, &builder.pp("shortcut"));
        Ok(Block {
            first: ConvNorm::new([input, output], 3, stride, &builder.pp("first"))?,
            second: ConvNorm::new([output, output], 3, 1, &builder.pp("second"))?,
            shortcut: (stride > 1).then(shortcut).transpose()?,
        })
    }

    fn forward(&self, x: &Tensor) -> Output<Tensor> {
        let y = self.second.forward(&self.first.forward(x)?.relu()?)?;
        let shortcut = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x)?,
            None => x.clone(),
        };
        (y + shortcut)?.relu()
    }
}

impl ConvNorm {
    fn new(channels: [usize; 2], kernel: usize, stride: usize, builder: &VarBuilder) -> Output<Self> {
        let config = Conv2dConfig { stride, padding: kernel / 2, ..Default::default() };
        Ok(ConvNorm {
            conv: conv2d_no_bias(channels[0], channels[1], kernel, config, builder.pp("conv"))?,
            norm: batch_norm(channels[1], 1e-5, builder.pp("norm"))?,
        })
    }

    fn forward(&self, x: &Tensor) -> Output<Tensor> {
        self.norm.forward_t(&self.conv.forward(x)?, false)
    }
}
