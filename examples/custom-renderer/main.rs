//! Training with a renderer, a logger and a metric of its own. The model is that of the example `guide`.
//!
//! ```sh
//! cargo run --release --example custom-renderer
//! cargo run --release --example custom-renderer -- --epochs 1 --limit 6000
//! ```
//!
//! * `renderer.rs` prints one line for each event of training.
//! * `logger.rs` writes a table of all epochs in Markdown.
//! * `metric.rs` measures how sure the model is of its predictions.

#[path = "../guide/data.rs"]
mod data;
mod logger;
mod metric;
#[path = "../guide/model.rs"]
mod model;
mod renderer;

use clap::Parser;
use data::{MnistBatch, MnistBatcher};
use kiln::data::dataloader::DataLoaderBuilder;
use kiln::data::dataset::transform::PartialDataset;
use kiln::data::vision::MnistDataset;
use kiln::optim::AdamConfig;
use kiln::prelude::*;
use kiln::train::{Accuracy, Learner, StepOutput, Supervised};
use logger::MarkdownLogger;
use metric::Confidence;
use model::{Model, ModelConfig};
use renderer::EventRenderer;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

type B = Autodiff<Cpu>;

/// Trains a convolutional network on MNIST, with output of its own.
#[derive(Parser)]
#[command(name = "custom-renderer")]
struct Options {
    /// Number of epochs.
    #[arg(long, default_value_t = 4)]
    epochs: usize,

    /// Train only on the first LIMIT images.
    #[arg(long)]
    limit: Option<usize>,

    /// Number of steps between two lines.
    #[arg(long, default_value_t = 100)]
    every: u64,

    /// Output file of the table.
    #[arg(long, default_value = "out/custom-renderer.md")]
    output: PathBuf,
}

fn main() -> ExitCode {
    kiln_examples::run(|| run(Options::parse()))
}

fn run(options: Options) -> Result<(), Box<dyn Error>> {
    let device = Default::default();
    B::seed(&device, 42);
    let images = PartialDataset::new(MnistDataset::train()?, 0, options.limit.unwrap_or(usize::MAX));
    let train_loader = DataLoaderBuilder::new(MnistBatcher::<B> { device })
        .batch_size(64)
        .shuffle(42)
        .num_workers(1)
        .build(images)?;
    let valid_loader = DataLoaderBuilder::new(MnistBatcher::<B> { device })
        .batch_size(500)
        .num_workers(1)
        .build(MnistDataset::test()?)?;

    let model: Model<B> = ModelConfig::new(10, 512).init(&device);
    let task = Supervised::new(model, AdamConfig::new().init(), 1e-3, classify);
    let mut learner = Learner::new(task)
        .name("custom-renderer")
        .epochs(options.epochs as u64)
        .metric(Accuracy::new())
        .metric(Confidence::default())
        .renderer(EventRenderer::new(options.every))
        .logger(MarkdownLogger::new(options.output));
    let history = learner.fit(&train_loader, &valid_loader)?;

    let scores = history.epochs.last().and_then(|epoch| epoch.valid());
    let accuracy = scores.and_then(|scores| scores.metric("accuracy")).ok_or("no epoch ended")?;
    println!("test accuracy: {:.2} %", 100.0 * accuracy);
    Ok(())
}

/// The loss of a batch, with the logits and targets that metrics read.
fn classify(model: &Model<B>, batch: MnistBatch<B>) -> StepOutput<B> {
    let logits = model.forward(batch.images);
    let loss = loss::cross_entropy(logits.clone(), batch.targets.clone(), &Default::default());
    StepOutput::classification(loss, logits, batch.targets)
}
