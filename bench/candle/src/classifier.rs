//! Training of two small networks on images of digits.

use crate::{first, normal};
use bench_protocol::random::Random;
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use candle_core::{DType, Device, Tensor};
use candle_nn::{
    AdamW, Conv2d, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, conv2d, linear, loss,
};

/// Training of a model, given by its logits. Without weight decay AdamW is Adam.
fn training(
    row: &Row,
    variables: VarMap,
    logits: impl Fn(&Tensor) -> candle_core::Result<Tensor> + 'static,
    images: Tensor,
    classes: usize,
) -> Result<Prepared> {
    let lr = row.number("learning_rate")?;
    let options = ParamsAdamW { lr, weight_decay: 0.0, ..Default::default() };
    let mut optimizer = AdamW::new(variables.all_vars(), options)?;
    let batch = row.size("batch")?;
    let digits = Random::new(3).indices(batch, classes as u32);
    let digits = Tensor::from_vec(digits, batch, &Device::Cpu)?;
    Ok(Prepared::new(move || {
        let loss = loss::cross_entropy(&logits(&images)?, &digits)?;
        optimizer.step(&loss.backward()?)?;
        first(&loss)
    }))
}

pub(crate) fn mlp(row: &Row) -> Result<Prepared> {
    let widths = row.sizes::<4>("widths")?;
    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    let layers = linears(&widths, &builder)?;
    let images = normal((row.size("batch")?, widths[0]))?;
    training(row, variables, move |images| linear_stack(&layers, images.clone()), images, widths[3])
}

pub(crate) fn cnn(row: &Row) -> Result<Prepared> {
    let (image, pooled) = (row.size("image")?, row.size("pooled")?);
    let (channels, widths) = (row.sizes::<3>("channels")?, row.sizes::<3>("widths")?);
    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    let conv = |i: usize| {
        conv2d(channels[i], channels[i + 1], 3, Default::default(), builder.pp(format!("conv{i}")))
    };
    let convs = (0..channels.len() - 1).map(conv).collect::<candle_core::Result<Vec<Conv2d>>>()?;
    let layers = linears(&widths, &builder)?;
    // Two convolutions without padding leave four rows less, which the pooled rows divide.
    let window = (image - 4) / pooled;
    let logits = move |images: &Tensor| {
        let mut x = images.clone();
        for conv in &convs {
            x = conv.forward(&x)?.relu()?;
        }
        linear_stack(&layers, x.avg_pool2d(window)?.flatten_from(1)?)
    };
    let images = normal((row.size("batch")?, channels[0], image, image))?;
    training(row, variables, logits, images, widths[2])
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
