//! Weights of a PyTorch model in a Kiln model: loads `mnist.pt`, which `train.py` wrote by `torch.save`, and predicts
//! handwritten digits.
//!
//! ```sh
//! cargo run --release --example import-model-weights
//! cargo run --release --example import-model-weights -- --index 7 --weights my.pt
//! ```
//!
//! The models have different structures: in PyTorch, the layers are a `Sequential`, so the weights of the first
//! convolution are `features.0.weight`; in Kiln they are `conv1.weight`. A mapping renames them.

#[path = "../guide/data.rs"]
mod data;
mod model;

use clap::Parser;
use data::MnistBatcher;
use kiln::data::Dataset;
use kiln::data::dataloader::DataLoaderBuilder;
use kiln::data::dataloader::batcher::Batcher;
use kiln::data::vision::MnistDataset;
use kiln::prelude::*;
use kiln::store::{LoadOptions, Mapping, load_module_with};
use model::Model;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Predicts handwritten digits with the weights of a PyTorch model.
#[derive(Parser)]
#[command(name = "import-model-weights")]
struct Options {
    /// The file that `torch.save(model.state_dict())` wrote.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/import-model-weights/mnist.pt"))]
    weights: PathBuf,

    /// Index of the test image.
    #[arg(long, default_value_t = 0)]
    index: usize,
}

fn main() -> ExitCode {
    kiln_examples::run(|| predict::<Cpu>(&Options::parse(), Default::default()))
}

fn predict<B: Backend>(options: &Options, device: B::Device) -> Result<(), Box<dyn Error>> {
    let mapping = Mapping::pytorch()
        .rename("features.0.**", "conv1.$1")?
        .rename("features.1.**", "norm1.$1")?
        .rename("features.4.**", "conv2.$1")?
        .rename("features.5.**", "norm2.$1")?
        .rename("classifier.**", "output.$1")?;
    let load = LoadOptions::new().mapping(mapping);
    let (model, report) = load_module_with(Model::<B>::new(&device), &options.weights, &load)?;
    println!("{report}");

    let images = MnistDataset::test()?;
    let item =
        images.get(options.index).ok_or_else(|| format!("there is no test image {}", options.index))?;
    let batcher = MnistBatcher { device };
    let logits = model.forward(batcher.batch(vec![item])?.images);
    let digit = logits.argmax(1).into_scalar::<i32>();
    println!("predicted {digit}, expected {}", item.label);

    let loader = DataLoaderBuilder::new(batcher).batch_size(500).build(images)?;
    let (mut correct, mut total) = (0, 0);
    for batch in loader.iter() {
        let batch = batch?;
        total += batch.targets.dims()[0];
        let predicted = model.forward(batch.images).argmax(1).squeeze_dim::<1>(1);
        correct += predicted.equal(batch.targets).int().sum().into_scalar::<i32>();
    }
    println!("test accuracy: {:.2} %", 100.0 * f64::from(correct) / total as f64);
    Ok(())
}
