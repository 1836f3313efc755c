//! Training of two small networks on images of digits.

use super::normal;
use super::training::Training;
use bench_protocol::random::Random;
use bench_protocol::shapes::classifier::{BATCH, CHANNELS, IMAGE, LEARNING_RATE, LINEAR, MLP, POOLED};
use bench_protocol::{Prepared, Result};
use kiln::module::adaptive_avg_pool2d;
use kiln::nn::{Conv2d, Conv2dConfig, Linear, LinearConfig, Module};
use kiln::optim::AdamConfig;
use kiln::{Autodiff, Backend, Int, Tensor, activation, loss};

#[derive(Module, Clone, Debug)]
struct Mlp<B: Backend> {
    layers: Vec<Linear<B>>,
}

#[derive(Module, Clone, Debug)]
struct Cnn<B: Backend> {
    convs: Vec<Conv2d<B>>,
    layers: Vec<Linear<B>>,
}

pub(crate) fn mlp<B: Backend>(device: &B::Device) -> Result<Prepared> {
    let model = Mlp::<Autodiff<B>> { layers: linears(&MLP, device) };
    let (images, digits) = (normal::<Autodiff<B>, 2>([BATCH, MLP[0]], device), digits(device));
    let mut training = Training::new(model, AdamConfig::new().init(), LEARNING_RATE);
    let device = device.clone();
    Ok(Prepared::new(move || {
        training.step(&device, |model| {
            loss::cross_entropy(
                linear_stack(&model.layers, images.clone()),
                digits.clone(),
                &Default::default(),
            )
        })
    }))
}

pub(crate) fn cnn<B: Backend>(device: &B::Device) -> Result<Prepared> {
    let conv = |i: usize| Conv2dConfig::new([CHANNELS[i], CHANNELS[i + 1]], [3, 3]).init(device);
    let convs = (0..CHANNELS.len() - 1).map(conv).collect();
    let model = Cnn::<Autodiff<B>> { convs, layers: linears(&LINEAR, device) };
    let images = normal::<Autodiff<B>, 4>([BATCH, CHANNELS[0], IMAGE, IMAGE], device);
    let digits = digits(device);
    let mut training = Training::new(model, AdamConfig::new().init(), LEARNING_RATE);
    let device = device.clone();
    Ok(Prepared::new(move || {
        training.step(&device, |model| {
            loss::cross_entropy(model.forward(images.clone()), digits.clone(), &Default::default())
        })
    }))
}

impl<B: Backend> Cnn<B> {
    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let layer = |x, conv: &Conv2d<B>| activation::relu(conv.forward(x));
        let x = self.convs.iter().fold(images, layer);
        linear_stack(&self.layers, adaptive_avg_pool2d(x, [POOLED, POOLED]).flatten(1, 3))
    }
}

fn linears<B: Backend>(widths: &[usize], device: &B::Device) -> Vec<Linear<B>> {
    widths.windows(2).map(|pair| LinearConfig::new(pair[0], pair[1]).init(device)).collect()
}

/// Linear layers, with ReLU after each but the last.
fn linear_stack<B: Backend>(layers: &[Linear<B>], x: Tensor<B, 2>) -> Tensor<B, 2> {
    let (last, hidden) = layers.split_last().expect("a network has layers");
    last.forward(hidden.iter().fold(x, |x, layer| activation::relu(layer.forward(x))))
}

fn digits<B: Backend>(device: &B::Device) -> Tensor<B, 1, Int> {
    let digits = Random::new(3).indices(BATCH, MLP[3] as u32);
    Tensor::from_data(digits.into_iter().map(|digit| digit as i32).collect::<Vec<_>>(), device)
}
