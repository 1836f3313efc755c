//! Trains a Wasserstein GAN with gradient penalty on MNIST and draws digits.
//!
//! The task has two models and two optimizers: the critic learns to tell generated images from real ones, and the
//! generator learns to raise the critic's scores. The classifier of the example `mnist` judges the samples.
//!
//! ```sh
//! cargo run --release --example mnist
//! cargo run --release --example wgan -- --judge out/mnist
//! cargo run --release --example wgan -- --help
//! ```

mod grid;
mod judge;
#[path = "../mnist/model.rs"]
mod mnist;
mod model;
mod options;
mod task;

use clap::Parser;
use grid::Grids;
use kiln::data::vision::MnistDataset;
use kiln::data::{DataLoader, DataLoaderBuilder, Dataset, SubsetDataset};
use kiln::nn::Config;
use kiln::store::Checkpoint;
use kiln::train::interrupt::handle_signals;
use kiln::train::{Interrupter, Learner, StopReason};
use kiln::{Backend, Device, Dyn, store};
use mnist::{MnistBatch, MnistBatcher};
use model::{Generator, WganConfig};
use options::Options;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use task::{Plan, Wgan};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Number of samples for the judge.
const JUDGED: usize = 1000;

fn main() -> ExitCode {
    kiln_examples::exit_on_closed_pipe();
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let device = options.backend.open(options.threads)?;
    if !options.evaluate && !train(options, &device)? {
        return Ok(());
    }
    let config = WganConfig::load(options.output.join("config.json"))?;
    let generator: Generator<Dyn> =
        store::load_module(config.generator(&device), options.output.join("generator.safetensors"))?;
    let samples = grid::write_final(&generator, config.latent, options.seed, &device, &options.output)?;
    println!("wrote {}", samples.display());
    if let Some(classifier) = &options.judge {
        let noise = grid::fixed_noise(JUDGED, config.latent, options.seed, &device);
        println!("{}", judge::judge(generator.forward(noise), classifier, &device)?);
    }
    Ok(())
}

/// Trains both networks from scratch or from a checkpoint, and saves the generator. Returns whether training finished.
fn train(options: &Options, device: &Device) -> Result<bool> {
    let inference = device;
    let device = device.autodiff();
    let loader = real_images(options, &device)?;
    let batcher = MnistBatcher { device: inference.clone() };
    let test = first_images(MnistDataset::test()?, options.limit)?;
    let test = DataLoaderBuilder::new(batcher).batch_size(500).num_workers(1).build(test)?;

    Dyn::seed(&device, options.seed);
    let config = WganConfig::new();
    let steps = loader.len() as u64 * options.epochs;
    let plan = Plan {
        critic_steps: options.critic_steps,
        steps: options.steps.map_or(steps, |limit| limit.min(steps)).max(1),
        learning_rate: options.learning_rate,
    };
    let task = Wgan::new(&config, plan, &device)?;
    let interrupter = Interrupter::new();
    let signals = handle_signals(&interrupter)?;
    let checkpoint = options.output.join("checkpoint");
    let grids = Grids {
        every: options.samples_every,
        seed: options.seed,
        latent: config.latent,
        device: inference.clone(),
        folder: options.output.clone(),
    };
    let mut learner = Learner::new(task)
        .name("wgan")
        .epochs(options.epochs)
        .callback(grids)
        .keep_last(&checkpoint)
        .interrupter(interrupter);
    if let Some(steps) = options.steps {
        learner = learner.max_steps(steps);
    }
    if options.resume {
        learner = learner.resume(&Checkpoint::open(&checkpoint)?)?;
    }
    let history = learner.fit(&loader, &test)?;
    drop(signals);
    if history.stopped == StopReason::Interrupted {
        println!("interrupted; the checkpoint is {}: `--resume` goes on from there", checkpoint.display());
        return Ok(false);
    }
    save(&learner.into_task().generator(), &config, &options.output)?;
    Ok(true)
}

/// Batches of real images for all updates of the critic in one step.
fn real_images(options: &Options, device: &Device) -> Result<DataLoader<MnistBatch<Dyn>>> {
    eprintln!("reading the MNIST images");
    let loader = DataLoaderBuilder::new(MnistBatcher { device: device.clone() })
        .batch_size(options.batch_size * options.critic_steps)
        .shuffle(options.seed)
        .drop_last(true)
        .num_workers(1);
    Ok(loader.build(first_images(MnistDataset::train()?, options.limit)?)?)
}

fn first_images(all: MnistDataset, limit: Option<usize>) -> Result<SubsetDataset<MnistDataset>> {
    let count = limit.unwrap_or(all.len()).min(all.len());
    Ok(SubsetDataset::range(all, 0..count)?)
}

fn save(generator: &Generator<Dyn>, config: &WganConfig, folder: &Path) -> Result<()> {
    let path = folder.join("generator.safetensors");
    store::save_module(generator, &path)?;
    config.save(folder.join("config.json"))?;
    println!("saved {}", path.display());
    Ok(())
}
