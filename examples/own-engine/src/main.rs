//! Trains on MNIST with an out-of-tree engine and an out-of-tree layer.
//!
//! ```sh
//! cargo run --release             # 4,000 images
//! cargo run --release -- 60000    # 60,000 images
//! ```

use kiln::data::vision::MnistDataset;
use kiln::loss;
use kiln::nn::{Conv2d, Conv2dConfig, Linear, LinearConfig, MaxPool2d, MaxPool2dConfig};
use kiln::optim::AdamConfig;
use kiln::prelude::*;
use own_engine::{Plain, Profile, Profiled};
use std::error::Error;
use std::process::ExitCode;

type Inference = Profiled<Plain>;
type Training = Autodiff<Inference>;

const BATCH: usize = 50;

#[derive(Module, Clone, Debug)]
struct Net<B: Backend> {
    conv: Conv2d<B>,
    pool: MaxPool2d,
    linear: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Net<B> {
        Net {
            conv: Conv2dConfig::new([1, 8], [5, 5]).init(device),
            pool: MaxPool2dConfig::new([4, 4]).init(),
            linear: LinearConfig::new(8 * 6 * 6, 10).init(device),
        }
    }

    /// Logits `[batch, 10]` of images `[batch, 1, 28, 28]`.
    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = self.pool.forward(activation::relu(self.conv.forward(images)));
        self.linear.forward(x.flatten(1, 3))
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(accuracy) if accuracy > 0.85 => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("error: the network learned too little");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<f64, Box<dyn Error>> {
    let limit = std::env::args().nth(1).map_or(Ok(4000), |count| count.parse::<usize>())?;
    let device = Default::default();
    Training::seed(&device, 1);
    let mut net = Net::<Training>::new(&device);
    let mut optimizer = AdamConfig::new().init();
    let train = MnistDataset::train()?;
    for first in (0..limit.min(train.labels().len())).step_by(BATCH) {
        let (images, labels) = batch::<Training>(&train, first, &device)?;
        let loss = loss::cross_entropy(net.forward(images), labels, &Default::default());
        if first % (20 * BATCH) == 0 {
            println!("loss {:.3} after {first} images", loss.clone().into_scalar::<f32>());
        }
        let gradients = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(1e-2, net, gradients);
    }
    let accuracy = accuracy(&net.valid(), &MnistDataset::test()?, 1000)?;
    println!("accuracy on 1,000 test images: {:.1} %", 100.0 * accuracy);
    print_times();
    Ok(accuracy)
}

/// Images with pixels in `0..=1`, shape `[batch, 1, 28, 28]`, and their labels, shape `[batch]`.
fn batch<B: Backend>(
    mnist: &MnistDataset,
    first: usize,
    device: &B::Device,
) -> Result<(Tensor<B, 4>, Tensor<B, 1, Int>), Box<dyn Error>> {
    let last = (first + BATCH).min(mnist.labels().len());
    let pixels = mnist.images()[first..last].as_flattened().as_flattened();
    let pixels: Vec<f32> = pixels.iter().map(|pixel| f32::from(*pixel) / 255.0).collect();
    let labels: Vec<i32> = mnist.labels()[first..last].iter().map(|label| i32::from(*label)).collect();
    let images = TensorData::new(pixels, [last - first, 1, 28, 28])?;
    Ok((Tensor::from_data(images, device), Tensor::from_data(labels, device)))
}

fn accuracy(net: &Net<Inference>, mnist: &MnistDataset, count: usize) -> Result<f64, Box<dyn Error>> {
    let mut right = 0.0;
    for first in (0..count).step_by(BATCH) {
        let (images, labels) = batch::<Inference>(mnist, first, &Default::default())?;
        let guess = net.forward(images).argmax(1).flatten::<1>(0, 1);
        right += f64::from(guess.equal(labels).float().sum().into_scalar::<f32>());
    }
    Ok(right / count as f64)
}

fn print_times() {
    let stack = Training::stack(&Default::default());
    let Some(profile) = stack.find::<Profile>() else { return };
    println!("{:>8}  {:>9}  op", "calls", "ms");
    for row in profile.times().iter().take(8) {
        println!("{:>8}  {:>9.1}  {}", row.calls, 1e3 * row.time.as_secs_f64(), row.name);
    }
}
