//! Training steps of the models on generated data.

use crate::Result;
use crate::gpt::{Gpt, VOCABULARY};
use crate::options::{ModelName, Options};
use crate::picture::{MnistBatch, MnistBatcher, NetConfig};
use kiln::data::Batcher;
use kiln::data::vision::MnistItem;
use kiln::nn::{AutodiffModule, GradientsParams, Linear, LinearConfig};
use kiln::optim::{AdamConfig, AdamWConfig, Optimizer};
use kiln::prelude::*;

/// Runs one step. Reads its loss if asked, and then waits until the update is done.
pub(crate) type Step = Box<dyn FnMut(bool) -> Result<Option<f32>>>;

/// The steps of the model of the options, from the same initial weights on every device.
pub(crate) fn prepare<B: AutodiffBackend>(options: &Options, device: &B::Device) -> Step {
    B::seed(device, 42);
    let batch = options.batch();
    match options.model {
        ModelName::Mlp => {
            let model = Mlp::<B>::new(device);
            steps(model, AdamConfig::new().init(), device, move |model, number, device| {
                let images = pixels(number, batch, device).reshape([batch, 784]);
                cross_entropy(model.forward(images), labels(number, batch, 10, device))
            })
        }
        ModelName::Mnist => {
            let model = NetConfig::new().init::<B>(device);
            steps(model, AdamConfig::new().init(), device, move |model, number, device| {
                let batch = pictures(number, batch, device);
                cross_entropy(model.forward(batch.images), batch.targets)
            })
        }
        ModelName::Gpt2 => {
            let length = options.length;
            let model = Gpt::<B>::new(options, device);
            let optimizer = AdamWConfig::new().with_weight_decay(0.1).init();
            steps(model, optimizer, device, move |model, number, device| {
                let tokens = labels(number, batch * length, VOCABULARY, device).reshape([batch, length]);
                let targets = labels(number + 1, batch * length, VOCABULARY, device);
                cross_entropy(model.forward(tokens), targets)
            })
        }
    }
}

fn steps<B, M, O>(
    model: M,
    mut optimizer: O,
    device: &B::Device,
    mut loss: impl FnMut(&M, usize, &B::Device) -> Tensor<B, 1> + 'static,
) -> Step
where
    B: AutodiffBackend,
    M: AutodiffModule<B> + 'static,
    O: Optimizer + 'static,
{
    let (mut model, mut number, device) = (Some(model), 0, device.clone());
    Box::new(move |is_read| {
        let now = model.take().ok_or("an earlier step failed")?;
        let loss = loss(&now, number, &device);
        let gradients = GradientsParams::from_grads(loss.backward(), &now);
        // Without its tape the loss does not keep the parameters from being updated in place.
        let loss = loss.inner();
        model = Some(optimizer.step(1e-3, now, gradients));
        number += 1;
        if !is_read {
            return Ok(None);
        }
        let loss = loss.try_into_scalar::<f32>()?;
        B::sync(&device)?;
        Ok(Some(loss))
    })
}

fn cross_entropy<B: Backend>(logits: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    kiln::loss::cross_entropy(logits, targets, &Default::default())
}

/// A batch of the example `mnist`, another for each step.
fn pictures<B: Backend>(step: usize, batch: usize, device: &B::Device) -> MnistBatch<B> {
    let item = |place: usize| {
        let pixel = |row: usize, column: usize| ((place * 784 + row * 28 + column) * 7919 + step) as u8;
        let image = std::array::from_fn(|row| std::array::from_fn(|column| pixel(row, column)));
        MnistItem { image, label: ((place + step) % 10) as u8 }
    };
    let batcher = MnistBatcher { device: device.clone() };
    batcher.batch((0..batch).map(item).collect()).expect("all images have 28 by 28 pixels")
}

/// Images of 28 by 28 pixels from 0 to 1, others for each step.
fn pixels<B: Backend>(step: usize, batch: usize, device: &B::Device) -> Tensor<B, 1> {
    let pixel = |place: usize| ((place * 7919 + step * 104_729) % 256) as f32 / 255.0;
    Tensor::from_data((0..batch * 784).map(pixel).collect::<Vec<f32>>(), device)
}

/// Numbers below `classes`, others for each step.
fn labels<B: Backend>(step: usize, count: usize, classes: usize, device: &B::Device) -> Tensor<B, 1, Int> {
    let label = |place: usize| ((place * 7919 + step * 104_729) % classes) as i32;
    Tensor::from_data((0..count).map(label).collect::<Vec<i32>>(), device)
}

/// A perceptron for images of 28 by 28 pixels.
#[derive(Module, Clone, Debug)]
struct Mlp<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    fn new(device: &B::Device) -> Self {
        Mlp {
            hidden: LinearConfig::new(784, 64).init(device),
            output: LinearConfig::new(64, 10).init(device),
        }
    }

    fn forward(&self, images: Tensor<B, 2>) -> Tensor<B, 2> {
        self.output.forward(activation::relu(self.hidden.forward(images)))
    }
}
