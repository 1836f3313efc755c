//! Training of two small networks on images of digits.

use crate::{first, normal};
use bench_protocol::random::Random;
use bench_protocol::shapes::classifier::{BATCH, CHANNELS, IMAGE, LEARNING_RATE, LINEAR, MLP, POOLED};
use bench_protocol::{Prepared, Result};
use candle_core::{DType, Device, Tensor};
use candle_nn::{
    AdamW, Conv2d, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, conv2d, linear, loss,
};

/// Training of a model, given by its logits. Without weight decay AdamW is Adam.
fn training(
    variables: VarMap,
    logits: impl Fn(&Tensor) -> candle_core::Result<Tensor> + 'static,
    images: Tensor,
) -> Result<Prepared> {
    let options = ParamsAdamW { lr: LEARNING_RATE, weight_decay: 0.0, ..Default::default() };
    let mut optimizer = AdamW::new(variables.all_vars(), options)?;
    let digits = Random::new(3).indices(BATCH, MLP[3] as u32);
    let digits = Tensor::from_vec(digits, BATCH, &Device::Cpu)?;
    Ok(Prepared::new(move || {
        let loss = loss::cross_entropy(&logits(&images)?, &digits)?;
        optimizer.step(&loss.backward()?)?;
        first(&loss)
    }))
}

pub(crate) fn mlp() -> Result<Prepared> {
    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    let layers = linears(&MLP, &builder)?;
    training(variables, move |images| linear_stack(&layers, images.clone()), normal((BATCH, MLP[0]))?)
}

pub(crate) fn cnn() -> Result<Prepared> {
    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    let conv = |i: usize| {
        conv2d(CHANNELS[i], CHANNELS[i + 1], 3, Default::default(), builder.pp(format!("conv{i}")))
    };
    let convs = (0..CHANNELS.len() - 1).map(conv).collect::<candle_core::Result<Vec<Conv2d>>>()?;
    let layers = linears(&LINEAR, &builder)?;
    // Two convolutions without padding leave four rows less, which the pooled rows divide.
    let window = (IMAGE - 4) / POOLED;
    let logits = move |images: &Tensor| {
        let mut x = images.clone();
        for conv in &convs {
            x = conv.forward(&x)?.relu()?;
        }
        linear_stack(&layers, x.avg_pool2d(window)?.flatten_from(1)?)
    };
    training(variables, logits, normal((BATCH, CHANNELS[0], IMAGE, IMAGE))?)
}

fn linears(widths: &[usize], builder: &VarBuilder) -> Result<Vec<Linear>> {
    let layer = |(i, pair): (usize, &[usize])| linear(pair[0], pair[1], builder.pp(format!("linear{i}")));
    Ok(widths.windows(2).enumerate().map(layer).collect::<candle_core::Result<_>>()?)
}

/// A rectifier follows each layer but the last.
fn linear_stack(layers: &[Linear], mut x: Tensor) -> candle_core::Result<Tensor> {
    for (i, layer) in layers.iter().enumerate() {
        x = layer.forward(&x)?;
        x = if i + 1 < layers.len() { x.relu()? } else { x };
    }
    Ok(x)
}
