//! Trains a convolutional network on MNIST, saves it, loads it back, and shows its predictions.
//!
//! ```sh
//! cargo run --release --example mnist
//! cargo run --release --example mnist --features cuda -- --backend cuda
//! cargo run --release --example mnist --features vulkan -- --backend vulkan
//! KILN_REMOTE=ws://host:3000 cargo run --release --example mnist --features remote -- --backend remote
//! cargo run --release --example mnist -- --help
//! ```

mod draw;
mod model;
mod options;

use clap::Parser;
use kiln::data::vision::{MnistDataset, MnistItem};
use kiln::data::{Batcher, DataLoader, DataLoaderBuilder, Dataset, SubsetDataset};
use kiln::nn::{AutodiffModule, Config};
use kiln::optim::AdamConfig;
use kiln::optim::lr_scheduler::{Cosine, Linear, Sequential};
use kiln::store::{Checkpoint, StoreError};
use kiln::train::interrupt::handle_signals;
use kiln::train::logger::RunFolder;
use kiln::train::metric::ConfusionMatrix;
use kiln::train::{Accuracy, Evaluator, History, Interrupter, Learner, ModelTask, StopReason, ValidStep};
use kiln::{Backend, Device, Dyn, store};
use model::{MnistBatch, MnistBatcher, Net, NetConfig};
use options::Options;
use std::error::Error;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    kiln_examples::run(|| run(&Options::parse()))
}

fn run(options: &Options) -> Result<()> {
    let device = options.backend.open(options.threads)?;
    eprintln!("reading the MNIST test images");
    let test = Arc::new(MnistDataset::test()?);
    let count = options.test_limit.unwrap_or(test.len()).min(test.len());
    let batcher = MnistBatcher { device: device.clone() };
    let test_loader = DataLoaderBuilder::new(batcher)
        .batch_size(500)
        .num_workers(1)
        .build(SubsetDataset::range(test.clone(), 0..count)?)?;
    let trained = match options.evaluate {
        true => None,
        false => match train(options, &device, &test_loader)? {
            Some(trained) => Some(trained),
            None => return Ok(()),
        },
    };
    let model = load(&options.output, &device)?;
    if let Some(trained) = trained {
        check_same_predictions(&trained, &model, &test_loader)?;
    }
    show_digits(&model, &test, &device)?;
    let mut evaluator = Evaluator::new().metric(Accuracy::new());
    let scores = evaluator.evaluate(&test_loader, |batch| ValidStep::step(&model, batch))?;
    let accuracy = scores.metric("accuracy").ok_or("no accuracy was measured")?;
    println!("test accuracy: {:.2} %", 100.0 * accuracy);
    Ok(())
}

/// Trains a network from scratch or from a checkpoint, and saves it. Returns the network without autodiff, or `None` if
/// training was interrupted.
fn train(
    options: &Options,
    device: &Device,
    test_loader: &DataLoader<MnistBatch<Dyn>>,
) -> Result<Option<Net<Dyn>>> {
    check_output(&options.output)?;
    let device = device.autodiff();
    let batcher = MnistBatcher { device: device.clone() };
    let loader = DataLoaderBuilder::new(batcher)
        .batch_size(options.batch_size)
        .shuffle(options.seed)
        .num_workers(1)
        .build(training_images(options)?)?;

    Dyn::seed(&device, options.seed);
    let config = NetConfig::new();
    let model: Net<Dyn> = config.init(&device);
    let interrupter = Interrupter::new();
    let signals = handle_signals(&interrupter)?;
    println!("{model}");
    let checkpoint = options.output.join("checkpoint");
    let task = ModelTask::new(model, AdamConfig::new().init(), schedule(options, loader.len() as u64)?);
    let earlier = options.resume.then(|| Checkpoint::open(&checkpoint)).transpose()?;
    let mut learner = Learner::new(task)
        .name("mnist")
        .epochs(options.epochs as u64)
        .metric(Accuracy::new())
        .valid_metric(ConfusionMatrix::multiclass(10))
        .hyper_parameter("backend", format!("{:?}", options.backend).to_lowercase())
        .hyper_parameter("batch size", options.batch_size)
        .hyper_parameter("learning rate", options.learning_rate)
        .hyper_parameter("seed", options.seed)
        .logger(run_folder(options)?.logger()?)
        .keep_last(&checkpoint)
        .interrupter(interrupter);
    if let Some(earlier) = &earlier {
        learner = learner.resume(earlier)?;
    }
    let history = learner.fit(&loader, test_loader)?;
    drop(signals);
    if history.stopped == StopReason::Interrupted {
        println!("interrupted; the checkpoint is {}: `--resume` goes on from there", checkpoint.display());
        return Ok(None);
    }
    let model = learner.into_task().into_model().valid();
    save(&model, &config, &history, &options.output)?;
    Ok(Some(model))
}

/// Checks that the output folder is writable, so that an error occurs before training.
fn check_output(folder: &Path) -> Result<()> {
    let cannot = |error| format!("cannot write to the output folder {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(cannot)?;
    let probe = folder.join(".writable");
    std::fs::write(&probe, []).map_err(cannot)?;
    std::fs::remove_file(&probe).map_err(cannot)?;
    Ok(())
}

/// Creates the folder of a new run in `runs`. With `--resume`, returns the run that was written last.
fn run_folder(options: &Options) -> Result<RunFolder> {
    let root = options.output.join("runs");
    if options.resume && root.is_dir() {
        let written = |run: &RunFolder| run.records().metadata().and_then(|file| file.modified()).ok();
        if let Some(run) = RunFolder::list(&root)?.into_iter().max_by_key(written) {
            return Ok(run);
        }
    }
    Ok(RunFolder::create(&root, "mnist")?)
}

fn training_images(options: &Options) -> Result<SubsetDataset<MnistDataset>> {
    eprintln!("reading the MNIST training images");
    let all = MnistDataset::train()?;
    let count = options.limit.unwrap_or(all.len()).min(all.len());
    Ok(SubsetDataset::range(all, 0..count)?)
}

/// Linear warm-up over a tenth of the steps, then cosine decay to zero.
fn schedule(options: &Options, steps_per_epoch: u64) -> Result<Sequential> {
    let steps = (steps_per_epoch * options.epochs as u64).max(2);
    let rise = steps.div_ceil(10);
    let peak = options.learning_rate;
    if !(peak.is_finite() && peak > 0.0) {
        return Err(format!("the learning rate must be a number above 0, not {peak}").into());
    }
    let up = Linear::new(peak / 10.0, peak, rise)?;
    Ok(Sequential::new().then(up, rise).finally(Cosine::new(peak, 0.0, steps - rise)?))
}

fn save(model: &Net<Dyn>, config: &NetConfig, history: &History, folder: &Path) -> Result<()> {
    let path = folder.join("model.safetensors");
    store::save_module(model, &path)?;
    config.save(folder.join("config.json"))?;
    let lines = history.losses.iter().enumerate().map(|(step, loss)| format!("{step},{loss}\n"));
    let table: String = std::iter::once("step,loss\n".to_string()).chain(lines).collect();
    let losses = folder.join("losses.csv");
    store::atomic::write_file(&losses, |file| {
        let failed = |source| StoreError::Io { path: losses.clone(), action: "write", source };
        file.write_all(table.as_bytes()).map_err(failed)
    })?;
    println!("saved {}", path.display());
    Ok(())
}

fn load(folder: &Path, device: &Device) -> Result<Net<Dyn>> {
    let config = NetConfig::load(folder.join("config.json"))?;
    Ok(store::load_module(config.init(device), folder.join("model.safetensors"))?)
}

fn check_same_predictions(
    model: &Net<Dyn>,
    loaded: &Net<Dyn>,
    test: &DataLoader<MnistBatch<Dyn>>,
) -> Result<()> {
    for batch in test.iter_epoch(0) {
        let images = batch?.images;
        let before = model.forward(images.clone()).try_into_data()?;
        if before != loaded.forward(images).try_into_data()? {
            return Err("the loaded model predicts something else than the trained one".into());
        }
    }
    println!("the loaded model predicts exactly the same");
    Ok(())
}

fn show_digits(model: &Net<Dyn>, test: &MnistDataset, device: &Device) -> Result<()> {
    let items: Vec<MnistItem> = [0, 8, 18].iter().filter_map(|&index| test.get(index)).collect();
    let batch = MnistBatcher::<Dyn> { device: device.clone() }.batch(items.clone())?;
    let digits = model.forward(batch.images).argmax(1).try_into_data()?.to_vec::<i32>();
    let seen: Vec<(MnistItem, usize)> =
        items.into_iter().zip(digits.iter().map(|&digit| digit as usize)).collect();
    print!("{}", draw::draw(&seen, std::io::stdout().is_terminal()));
    Ok(())
}
