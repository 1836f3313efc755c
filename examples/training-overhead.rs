//! Measures the time of the learner and of its dashboard against a hand-written training loop, on the model of the
//! example `mnist`. All loops run the same steps, in turns.
//!
//! ```sh
//! cargo run --release --example training-overhead
//! cargo run --release --example training-overhead --features cuda -- --backend cuda
//! ```
//!
//! The dashboard needs a terminal; without one, its row is left out.

#[path = "mnist/model.rs"]
mod model;

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use clap::Parser;
use kiln::data::vision::MnistDataset;
use kiln::data::{DataLoader, DataLoaderBuilder, SubsetDataset};
use kiln::nn::GradientsParams;
use kiln::optim::{AdamConfig, Optimizer};
use kiln::train::renderer::Dashboard;
use kiln::train::{Learner, ModelTask, TrainStep};
use kiln::{AnyTensor, Backend, Device, Dyn};
use kiln_examples::backend::BackendName;
use model::{MnistBatch, MnistBatcher, Net, NetConfig};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Measures the overhead of the learner and of its dashboard over a hand-written loop.
#[derive(Parser, Debug)]
struct Options {
    /// Steps of a loop.
    #[arg(long, default_value_t = 100)]
    steps: usize,

    /// Turns. In each turn, every loop runs once.
    #[arg(long, default_value_t = 15)]
    turns: usize,

    /// Batch size.
    #[arg(long, default_value_t = 64)]
    batch_size: usize,

    /// Backend that runs the network.
    #[arg(long, value_enum, default_value_t = BackendName::Cpu)]
    backend: BackendName,
}

fn main() -> Result<()> {
    kiln_examples::exit_on_closed_pipe();
    let options = Options::parse();
    let device = options.backend.open(0)?.autodiff();
    let loader = loader(&options, &device)?;
    let mut turns = Vec::new();
    for turn in 0..=options.turns {
        let by_hand = by_hand(&loader, &device)?;
        let silent = learner(&loader, &device, None)?;
        let dashboard = match Dashboard::open() {
            Ok(dashboard) => Some(learner(&loader, &device, Some(dashboard))?),
            Err(_) => None,
        };
        // The first turn warms up.
        if turn > 0 {
            turns.push((by_hand, silent, dashboard));
        }
    }
    let step = |time: Duration| 1e3 * time.as_secs_f64() / options.steps as f64;
    let by_hand = median(turns.iter().map(|(by_hand, _, _)| step(*by_hand)).collect());
    println!("by hand: {by_hand:.3} ms a step, median of {} turns of {} steps", turns.len(), options.steps);
    let ratio = |a: Duration, b: Duration| 100.0 * (a.as_secs_f64() / b.as_secs_f64() - 1.0);
    let silent = median(turns.iter().map(|(by_hand, silent, _)| ratio(*silent, *by_hand)).collect());
    println!("learner over a loop by hand: {silent:+.2} %");
    let dashboards = turns.iter().filter_map(|(_, silent, dashboard)| Some(ratio((*dashboard)?, *silent)));
    let dashboards: Vec<f64> = dashboards.collect();
    if dashboards.is_empty() {
        println!("dashboard over no renderer: not measured, since there is no terminal");
    } else {
        println!("dashboard over no renderer: {:+.2} %", median(dashboards));
    }
    Ok(())
}

fn loader(options: &Options, device: &Device) -> Result<DataLoader<MnistBatch<Dyn>>> {
    let images = SubsetDataset::range(MnistDataset::train()?, 0..options.steps * options.batch_size)?;
    let batcher = MnistBatcher::<Dyn> { device: device.clone() };
    Ok(DataLoaderBuilder::new(batcher)
        .batch_size(options.batch_size)
        .shuffle(1)
        .num_workers(1)
        .build(images)?)
}

fn network(device: &Device) -> Net<Dyn> {
    Dyn::seed(device, 1);
    NetConfig::new().init(device)
}

/// A loop as users write it. It reads each loss one step late, as the learner does.
fn by_hand(loader: &DataLoader<MnistBatch<Dyn>>, device: &Device) -> Result<Duration> {
    let mut model = network(device);
    let mut optimizer = AdamConfig::new().init();
    let mut losses: VecDeque<AnyTensor> = VecDeque::new();
    let mut sum = 0.0;
    let started = Instant::now();
    for batch in loader.iter_epoch(0) {
        let output = TrainStep::step(&model, batch?);
        let loss = output.loss().clone();
        drop(output);
        losses.push_back(loss.clone().inner().into_any());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        drop(loss);
        optimizer.update(1e-3, &mut model, gradients)?;
        if losses.len() > 1
            && let Some(loss) = losses.pop_front()
        {
            sum += loss.into_data()?.to_vec::<f64>()[0];
        }
    }
    for loss in losses {
        sum += loss.into_data()?.to_vec::<f64>()[0];
    }
    let time = started.elapsed();
    if sum.is_finite() { Ok(time) } else { Err("the loss is not finite".into()) }
}

fn learner(
    loader: &DataLoader<MnistBatch<Dyn>>,
    device: &Device,
    dashboard: Option<Dashboard>,
) -> Result<Duration> {
    let task: ModelTask<_, _, MnistBatch<Dyn>> =
        ModelTask::new(network(device), AdamConfig::new().init(), 1e-3);
    let mut learner = Learner::new(task);
    learner = match dashboard {
        Some(dashboard) => learner.renderer(dashboard),
        None => learner.silent(),
    };
    let started = Instant::now();
    learner.fit_without_validation(loader)?;
    Ok(started.elapsed())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
