//! Training of two small networks on images of digits.

use crate::normal;
use bench_protocol::random::Random;
use bench_protocol::shapes::classifier::{BATCH, CHANNELS, IMAGE, LEARNING_RATE, LINEAR, MLP, POOLED};
use bench_protocol::{Prepared, Result, failed};
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, ModuleOptimizer};
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

/// A model with its optimizer.
pub(crate) struct Training<M> {
    model: Option<M>,
    optimizer: ModuleOptimizer,
    learning_rate: f64,
}

impl<M: Module> Training<M> {
    pub(crate) fn new(model: M, optimizer: ModuleOptimizer, learning_rate: f64) -> Training<M> {
        Training { model: Some(model), optimizer, learning_rate }
    }

    /// Forward, backward and update; the loss before the update.
    pub(crate) fn step(&mut self, loss: impl FnOnce(&M) -> Tensor<1>) -> Result<f64> {
        let model = self.model.take().ok_or_else(|| failed("an earlier step failed"))?;
        let loss = loss(&model);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        self.model = Some(self.optimizer.step(self.learning_rate, model, gradients));
        Ok(loss.try_into_scalar::<f64>()?)
    }
}

pub(crate) fn mlp(device: &Device) -> Prepared {
    let images = normal([BATCH, MLP[0]], device);
    let (digits, cross_entropy) = (digits(device), cross_entropy(device));
    let mut training = training(Mlp { layers: linears(&MLP, device) });
    Prepared::new(move || {
        training
            .step(|model| cross_entropy.forward(linear_stack(&model.layers, images.clone()), digits.clone()))
    })
}

pub(crate) fn cnn(device: &Device) -> Prepared {
    let conv = |i: usize| Conv2dConfig::new([CHANNELS[i], CHANNELS[i + 1]], [3, 3]).init(device);
    let convs = (0..CHANNELS.len() - 1).map(conv).collect();
    let images = normal([BATCH, CHANNELS[0], IMAGE, IMAGE], device);
    let (digits, cross_entropy) = (digits(device), cross_entropy(device));
    let mut training = training(Cnn { convs, layers: linears(&LINEAR, device) });
    Prepared::new(move || {
        training.step(|model| cross_entropy.forward(model.forward(images.clone()), digits.clone()))
    })
}

impl Cnn {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = self.convs.iter().fold(images, |x, conv| activation::relu(conv.forward(x)));
        linear_stack(&self.layers, adaptive_avg_pool2d(x, [POOLED, POOLED]).flatten(1, 3))
    }
}

fn training<M: Module>(model: M) -> Training<M> {
    Training::new(model, AdamConfig::new().with_epsilon(1e-8).init(), LEARNING_RATE)
}

fn linears(widths: &[usize], device: &Device) -> Vec<Linear> {
    widths.windows(2).map(|pair| LinearConfig::new(pair[0], pair[1]).init(device)).collect()
}

/// A rectifier follows each layer but the last.
fn linear_stack(layers: &[Linear], x: Tensor<2>) -> Tensor<2> {
    let (last, hidden) = layers.split_last().expect("a network has layers");
    last.forward(hidden.iter().fold(x, |x, layer| activation::relu(layer.forward(x))))
}

fn cross_entropy(device: &Device) -> CrossEntropyLoss {
    CrossEntropyLossConfig::new().init(device)
}

fn digits(device: &Device) -> Tensor<1, Int> {
    let digits = Random::new(3).indices(BATCH, MLP[3] as u32);
    let digits: Vec<i32> = digits.into_iter().map(|digit| digit as i32).collect();
    Tensor::from_data(digits.as_slice(), device)
}
