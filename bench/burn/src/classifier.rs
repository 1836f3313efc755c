//! Training of two small networks on images of digits.

use crate::normal;
use crate::training::Training;
use bench_protocol::random::Random;
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::tensor::module::adaptive_avg_pool2d;
use burn::tensor::{Device, Int, Tensor, activation};

#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
}

#[derive(Module, Debug)]
struct Cnn {
    convs: Vec<Conv2d>,
    layers: Vec<Linear>,
}

pub(crate) fn mlp(row: &Row, device: &Device) -> Result<Prepared> {
    let widths = row.sizes::<4>("widths")?;
    let images = normal([row.size("batch")?, widths[0]], device);
    let model = Mlp { layers: linears(&widths, device) };
    train(row, model, widths[3], device, move |model| linear_stack(&model.layers, images.clone()))
}

pub(crate) fn cnn(row: &Row, device: &Device) -> Result<Prepared> {
    let (image, pooled) = (row.size("image")?, row.size("pooled")?);
    let (channels, widths) = (row.sizes::<3>("channels")?, row.sizes::<3>("widths")?);
    let conv = |pair: &[usize]| Conv2dConfig::new([pair[0], pair[1]], [3, 3]).init(device);
    let convs = channels.windows(2).map(conv).collect();
    let images = normal([row.size("batch")?, channels[0], image, image], device);
    train(row, Cnn { convs, layers: linears(&widths, device) }, widths[2], device, move |model| {
        let x = model.convs.iter().fold(images.clone(), |x, conv| activation::relu(conv.forward(x)));
        linear_stack(&model.layers, adaptive_avg_pool2d(x, [pooled, pooled]).flatten(1, 3))
    })
}

fn train<M: Module + 'static>(
    row: &Row,
    model: M,
    classes: usize,
    device: &Device,
    logits: impl Fn(&M) -> Tensor<2> + 'static,
) -> Result<Prepared> {
    let digits = Random::new(3).integers(row.size("batch")?, classes);
    let digits = Tensor::<1, Int>::from_data(digits.as_slice(), device);
    let cross_entropy = CrossEntropyLossConfig::new().init(device);
    let optimizer = AdamConfig::new().with_epsilon(1e-8).init();
    let mut training = Training::new(model, optimizer, row.number("learning_rate")?);
    Ok(Prepared::new(move || training.step(|model| cross_entropy.forward(logits(model), digits.clone()))))
}

fn linears(widths: &[usize], device: &Device) -> Vec<Linear> {
    widths.windows(2).map(|pair| LinearConfig::new(pair[0], pair[1]).init(device)).collect()
}

/// A rectifier follows each layer but the last.
fn linear_stack(layers: &[Linear], x: Tensor<2>) -> Tensor<2> {
    let (last, hidden) = layers.split_last().expect("a network has layers");
    last.forward(hidden.iter().fold(x, |x, layer| activation::relu(layer.forward(x))))
}
