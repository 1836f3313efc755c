//! The network of the example `mnist` trains over a server with the losses of local training, bit for bit.

use kiln_backends::Cpu;
use kiln_nn::{
    Conv2d, Conv2dConfig, Dropout, DropoutConfig, GradientsParams, Linear, LinearConfig, MaxPool2d,
    MaxPool2dConfig, Module,
};
use kiln_optim::{AdamConfig, Optimizer};
use kiln_remote::server::{Server, ServerOptions};
use kiln_remote::{RemoteBackend, RemoteDevice};
use kiln_tensor::{Autodiff, AutodiffBackend, Backend, Int, Tensor, TensorData, activation, loss};

const BATCH: usize = 16;

#[derive(Debug, Module)]
struct Net<B: Backend> {
    conv1: Conv2d<B>,
    conv2: Conv2d<B>,
    pool: MaxPool2d,
    dropout: Dropout,
    linear1: Linear<B>,
    linear2: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Net<B> {
        Net {
            conv1: Conv2dConfig::new([1, 8], [3, 3]).init(device),
            conv2: Conv2dConfig::new([8, 16], [3, 3]).init(device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            dropout: DropoutConfig::new(0.25).init(),
            linear1: LinearConfig::new(16 * 5 * 5, 32).init(device),
            linear2: LinearConfig::new(32, 10).init(device),
        }
    }

    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = self.pool.forward(activation::relu(self.conv1.forward(images)));
        let x = self.pool.forward(activation::relu(self.conv2.forward(x)));
        let x = activation::relu(self.linear1.forward(x.flatten(1, 3)));
        self.linear2.forward(self.dropout.forward(x))
    }
}

/// Digits of a kind: a bright bar, whose place is the label, on a dim pattern.
fn images(step: usize) -> (Vec<f32>, Vec<i32>) {
    let label = |image: usize| (image * 7 + step) % 10;
    let pixel = |place: usize| {
        let (image, row) = (place / 784, place / 28 % 28);
        let noise = ((place * 7919 + step * 104_729) % 64) as f32 / 255.0;
        if row / 2 == label(image) + 2 { 1.0 - noise } else { noise }
    };
    ((0..BATCH * 784).map(pixel).collect(), (0..BATCH).map(|image| label(image) as i32).collect())
}

/// The losses of some steps, as bits.
fn losses<B: AutodiffBackend>(device: &B::Device) -> Vec<u32> {
    B::seed(device, 42);
    let mut model = Net::<B>::new(device);
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    for step in 0..12 {
        let (pixels, labels) = images(step);
        let pixels = TensorData::new(pixels, [BATCH, 1, 28, 28]).expect("these are the pixels of a batch");
        let logits = model.forward(Tensor::from_data(pixels, device));
        let labels = Tensor::<B, 1, Int>::from_data(TensorData::from(labels), device);
        let loss = loss::cross_entropy(logits, labels, &Default::default());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let loss = loss.inner();
        model = optimizer.step(2e-3, model, gradients);
        losses.push(loss.into_scalar::<f32>().to_bits());
    }
    losses
}

#[test]
fn mnist_trains_with_the_same_losses_bit_for_bit() {
    let server = Server::bind::<Cpu>(&Default::default(), ServerOptions::new()).unwrap();
    let device = RemoteDevice::new(server.url());
    let local = losses::<Autodiff<Cpu>>(&Default::default());
    assert_eq!(losses::<Autodiff<RemoteBackend>>(&device), local);
    let [first, last] = [local[0], local[11]].map(f32::from_bits);
    assert!(last < first, "it does not learn: {first} to {last}");
    let statistics = device.statistics();
    assert!(statistics.programs < statistics.batches / 2, "programs are not found again: {statistics:?}");
}
