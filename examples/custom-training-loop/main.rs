//! The model of the example `guide`, trained without a `Learner`: each part of a step is explicit.
//!
//! ```sh
//! cargo run --release --example custom-training-loop
//! cargo run --release --example custom-training-loop -- --epochs 1 --limit 6000
//! ```

#[path = "../guide/data.rs"]
mod data;
#[path = "../guide/model.rs"]
mod model;

use clap::Parser;
use data::{MnistBatch, MnistBatcher};
use kiln::data::DataLoader;
use kiln::data::dataloader::DataLoaderBuilder;
use kiln::data::dataset::transform::PartialDataset;
use kiln::data::vision::MnistDataset;
use kiln::nn::loss::CrossEntropyLossConfig;
use kiln::optim::AdamConfig;
use kiln::prelude::*;
use model::{Model, ModelConfig};
use std::error::Error;
use std::process::ExitCode;

/// Trains a convolutional network on MNIST with a loop of its own.
#[derive(Parser)]
#[command(name = "custom-training-loop")]
struct Options {
    /// Number of epochs.
    #[arg(long, default_value_t = 4)]
    epochs: usize,

    /// Train only on the first LIMIT images.
    #[arg(long)]
    limit: Option<usize>,

    /// Batch size.
    #[arg(long, default_value_t = 64)]
    batch_size: usize,

    /// Learning rate.
    #[arg(long, default_value_t = 1e-3)]
    learning_rate: f64,

    /// Seed of weight initialization, dropout and shuffling.
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

fn main() -> ExitCode {
    kiln_examples::run(|| {
        let accuracy = train::<Autodiff<Cpu>>(&Options::parse(), Default::default())?;
        println!("test accuracy: {accuracy:.2} %");
        Ok(())
    })
}

/// Trains a model. Returns the accuracy on the test images, in percent.
fn train<B: AutodiffBackend>(options: &Options, device: B::Device) -> Result<f64, Box<dyn Error>> {
    B::seed(&device, options.seed);
    let images = PartialDataset::new(MnistDataset::train()?, 0, options.limit.unwrap_or(usize::MAX));
    let train_loader = DataLoaderBuilder::new(MnistBatcher::<B> { device: device.clone() })
        .batch_size(options.batch_size)
        .shuffle(options.seed)
        .num_workers(1)
        .build(images)?;
    let valid_loader =
        DataLoaderBuilder::new(MnistBatcher::<B::InnerBackend> { device: B::inner_device(&device) })
            .batch_size(500)
            .num_workers(1)
            .build(MnistDataset::test()?)?;

    let mut model: Model<B> = ModelConfig::new(10, 512).init(&device);
    let mut optimizer = AdamConfig::new().init();
    let criterion = CrossEntropyLossConfig::new().init(&device);
    let mut valid_accuracy = f64::NAN;
    for epoch in 1..=options.epochs {
        for (iteration, batch) in train_loader.iter().enumerate() {
            let batch = batch?;
            let logits = model.forward(batch.images);
            let loss = criterion.forward(logits.clone(), batch.targets.clone());

            // `backward` returns the gradients of all leaves, and `from_grads` takes those of the model's parameters.
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(options.learning_rate, model, gradients);

            // Reading a value waits for the device: not in each iteration.
            if iteration % 20 == 0 {
                let accuracy = 100.0 * num_correct(logits, batch.targets.clone()) as f64
                    / batch.targets.dims()[0] as f64;
                let loss = loss.into_scalar::<f32>();
                println!("epoch {epoch}  iteration {iteration:3}  loss {loss:.4}  accuracy {accuracy:.2} %");
            }
        }
        // `valid` is the model on the inner backend: it records no gradients, and dropout is off.
        valid_accuracy = validate(&model.valid(), &valid_loader)?;
        println!("epoch {epoch}  validation accuracy {valid_accuracy:.2} %");
    }
    Ok(valid_accuracy)
}

/// Returns the accuracy of a model on all batches, in percent.
fn validate<B: Backend>(model: &Model<B>, loader: &DataLoader<MnistBatch<B>>) -> Result<f64, Box<dyn Error>> {
    let mut correct = 0;
    for batch in loader.iter() {
        let MnistBatch { images, targets } = batch?;
        correct += num_correct(model.forward(images), targets);
    }
    Ok(100.0 * correct as f64 / loader.num_items() as f64)
}

/// Returns the number of rows of logits `[batch, classes]` whose greatest is at the target class.
fn num_correct<B: Backend>(logits: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> i64 {
    let predictions = logits.argmax(1).squeeze_dim::<1>(1);
    predictions.equal(targets).int().sum().into_scalar::<i64>()
}
