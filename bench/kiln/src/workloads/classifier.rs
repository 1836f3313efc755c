//! Training of two small networks on images of digits.

use super::normal;
use super::training::cross_entropy;
use bench_protocol::random::Random;
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::module::adaptive_avg_pool2d;
use kiln::nn::{AutodiffModule, Conv2d, Conv2dConfig, Linear, LinearConfig, Module};
use kiln::optim::AdamConfig;
use kiln::{Autodiff, Backend, DType, Tensor, activation};

#[derive(Module, Clone, Debug)]
struct Mlp<B: Backend> {
    layers: Vec<Linear<B>>,
}

#[derive(Module, Clone, Debug)]
struct Cnn<B: Backend> {
    convs: Vec<Conv2d<B>>,
    layers: Vec<Linear<B>>,
}

pub(crate) fn mlp<B: Backend>(row: &Row, device: &B::Device) -> Result<Prepared> {
    let (batch, widths) = (row.size("batch")?, row.sizes::<4>("widths")?);
    let model = Mlp::<Autodiff<B>> { layers: linears(&widths, device) };
    let images = normal::<Autodiff<B>, 2>([batch, widths[0]], DType::F32, device);
    train(row, model, widths[3], device, move |model| linear_stack(&model.layers, images.clone()))
}

pub(crate) fn cnn<B: Backend>(row: &Row, device: &B::Device) -> Result<Prepared> {
    let (batch, image, pooled) = (row.size("batch")?, row.size("image")?, row.size("pooled")?);
    let (channels, widths) = (row.sizes::<3>("channels")?, row.sizes::<3>("widths")?);
    let conv = |pair: &[usize]| Conv2dConfig::new([pair[0], pair[1]], [3, 3]).init(device);
    let convs = channels.windows(2).map(conv).collect();
    let model = Cnn::<Autodiff<B>> { convs, layers: linears(&widths, device) };
    let images = normal::<Autodiff<B>, 4>([batch, channels[0], image, image], DType::F32, device);
    train(row, model, widths[2], device, move |model| {
        let layer = |x, conv: &Conv2d<Autodiff<B>>| activation::relu(conv.forward(x));
        let x = model.convs.iter().fold(images.clone(), layer);
        linear_stack(&model.layers, adaptive_avg_pool2d(x, [pooled, pooled]).flatten(1, 3))
    })
}

fn train<B: Backend, M: AutodiffModule<Autodiff<B>> + 'static>(
    row: &Row,
    model: M,
    classes: usize,
    device: &B::Device,
    logits: impl Fn(&M) -> Tensor<Autodiff<B>, 2> + 'static,
) -> Result<Prepared> {
    let digits = Random::new(3).integers(row.size("batch")?, classes);
    let rate = row.number("learning_rate")?;
    Ok(cross_entropy(model, AdamConfig::new().init(), rate, digits, device, logits))
}

fn linears<B: Backend>(widths: &[usize], device: &B::Device) -> Vec<Linear<B>> {
    widths.windows(2).map(|pair| LinearConfig::new(pair[0], pair[1]).init(device)).collect()
}

/// Linear layers, with ReLU after each but the last.
fn linear_stack<B: Backend>(layers: &[Linear<B>], x: Tensor<B, 2>) -> Tensor<B, 2> {
    let (last, hidden) = layers.split_last().expect("a network has layers");
    last.forward(hidden.iter().fold(x, |x, layer| activation::relu(layer.forward(x))))
}
