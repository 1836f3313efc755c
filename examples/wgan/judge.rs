//! The classifier of the example `mnist` as a judge of samples.

use crate::mnist::{Net, NetConfig};
use kiln::nn::Config;
use kiln::{Device, Dyn, Tensor, activation, store};
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::path::Path;

/// How a classifier sees samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// Mean probability of the predicted digit.
    pub(crate) confidence: f64,
    /// Number of different digits among the predictions.
    pub(crate) digits: usize,
}

/// Classifies images `[count, 1, 28, 28]` by the model in the output folder of the example `mnist`.
pub(crate) fn judge(
    images: Tensor<Dyn, 4>,
    folder: &Path,
    device: &Device,
) -> Result<Verdict, Box<dyn Error>> {
    let classifier = load(folder, device).map_err(|error| {
        format!(
            "cannot load a classifier from {}: {error}\n  hint: `cargo run --release --example mnist` trains it",
            folder.display()
        )
    })?;
    let logits = classifier.forward(images);
    let digits = logits.clone().argmax(1).try_into_data()?.to_vec::<i32>();
    let confidence = activation::softmax(logits, 1).max_dim(1).mean().try_into_scalar::<f64>()?;
    Ok(Verdict { confidence, digits: BTreeSet::from_iter(digits).len() })
}

fn load(folder: &Path, device: &Device) -> Result<Net<Dyn>, Box<dyn Error>> {
    let config = NetConfig::load(folder.join("config.json"))?;
    Ok(store::load_module(config.init(device), folder.join("model.safetensors"))?)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mean confidence: {:.2} %, digits: {} of 10", 100.0 * self.confidence, self.digits)
    }
}
