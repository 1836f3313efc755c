//! A first model: the workflow of the chapter [A first model](../../book/src/guide.md) of the book.
//!
//! ```sh
//! cargo run --release --example guide -- train
//! cargo run --release --example guide -- train --epochs 1 --limit 6000
//! cargo run --release --example guide -- infer --index 7
//! ```
//!
//! `train` trains a convolutional network on MNIST and saves it. `infer` loads it and predicts one test image.

mod data;
mod inference;
mod model;
mod training;

use clap::{Parser, Subcommand};
use kiln::data::Dataset;
use kiln::data::vision::MnistDataset;
use kiln::optim::AdamConfig;
use kiln::prelude::*;
use model::ModelConfig;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use training::TrainingConfig;

type MyBackend = Cpu;
type MyAutodiffBackend = Autodiff<MyBackend>;

/// Trains a convolutional network on MNIST, and predicts digits with it.
#[derive(Parser)]
#[command(name = "guide")]
struct Options {
    #[command(subcommand)]
    command: Command,

    /// Folder for `config.json`, `model.safetensors` and `runs`; created if missing.
    #[arg(long, global = true, default_value = "out/guide")]
    output: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    /// Train a model and save it.
    Train {
        /// Number of epochs.
        #[arg(long, default_value_t = 4)]
        epochs: usize,

        /// Train only on the first LIMIT images.
        #[arg(long)]
        limit: Option<usize>,
    },
    /// Load the saved model and predict one test image.
    Infer {
        /// Index of the test image.
        #[arg(long, default_value_t = 0)]
        index: usize,
    },
}

fn main() -> ExitCode {
    kiln_examples::run(|| run(Options::parse()))
}

fn run(options: Options) -> Result<(), Box<dyn Error>> {
    let device = Default::default();
    match options.command {
        Command::Train { epochs, limit } => {
            let config = TrainingConfig::new(ModelConfig::new(10, 512), AdamConfig::new())
                .with_num_epochs(epochs)
                .with_limit(limit);
            let accuracy = training::train::<MyAutodiffBackend>(&options.output, config, device)?;
            println!("test accuracy: {:.2} %", 100.0 * accuracy);
        }
        Command::Infer { index } => {
            let item = MnistDataset::test()?.get(index);
            let item = item.ok_or_else(|| format!("there is no test image {index}"))?;
            let digit = inference::infer::<MyBackend>(&options.output, item, device)?;
            println!("predicted {digit}, expected {}", item.label);
        }
    }
    Ok(())
}
