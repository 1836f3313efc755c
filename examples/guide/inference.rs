//! Inference: loads the saved model and predicts one image.

use crate::data::MnistBatcher;
use crate::training::TrainingConfig;
use kiln::data::dataloader::batcher::Batcher;
use kiln::data::vision::MnistItem;
use kiln::prelude::*;
use kiln::store::load_module;
use std::error::Error;
use std::path::Path;

/// Returns the digit that the model in a folder predicts for an image.
pub(crate) fn infer<B: Backend>(
    folder: &Path,
    item: MnistItem,
    device: B::Device,
) -> Result<i32, Box<dyn Error>> {
    let config = TrainingConfig::load(folder.join("config.json"))?;
    let model = config.model.init::<B>(&device);
    let model = load_module(model, folder.join("model.safetensors"))?;

    let batch = MnistBatcher { device }.batch(vec![item])?;
    let logits = model.forward(batch.images);
    Ok(logits.argmax(1).into_scalar::<i32>())
}
