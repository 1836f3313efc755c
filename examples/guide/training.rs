//! Training: the steps, the configuration, and the `Learner`.

use crate::data::{MnistBatch, MnistBatcher};
use crate::model::{Model, ModelConfig};
use kiln::data::dataloader::DataLoaderBuilder;
use kiln::data::dataset::transform::PartialDataset;
use kiln::data::vision::MnistDataset;
use kiln::nn::loss::CrossEntropyLossConfig;
use kiln::optim::AdamConfig;
use kiln::prelude::*;
use kiln::store::save_module;
use kiln::train::logger::RunFolder;
use kiln::train::{Accuracy, Learner, ModelTask, StepOutput, TrainStep, ValidStep};
use std::error::Error;
use std::path::Path;

impl<B: Backend> Model<B> {
    /// The loss of a batch, with the logits and targets that metrics read.
    fn forward_classification(&self, batch: MnistBatch<B>) -> StepOutput<B> {
        let MnistBatch { images, targets } = batch;
        let criterion = CrossEntropyLossConfig::new().init(&images.device());
        let logits = self.forward(images);
        let loss = criterion.forward(logits.clone(), targets.clone());
        StepOutput::classification(loss, logits, targets)
    }
}

impl<B: AutodiffBackend> TrainStep<MnistBatch<B>> for Model<B> {
    type Backend = B;
    fn step(&self, batch: MnistBatch<B>) -> StepOutput<B> {
        self.forward_classification(batch)
    }
}

impl<B: Backend> ValidStep<MnistBatch<B>> for Model<B> {
    type Backend = B;
    fn step(&self, batch: MnistBatch<B>) -> StepOutput<B> {
        self.forward_classification(batch)
    }
}

/// The configuration of a run. It is saved with the model.
#[derive(Config, Clone, Debug)]
pub(crate) struct TrainingConfig {
    pub(crate) model: ModelConfig,
    pub(crate) optimizer: AdamConfig,
    #[config(default = 4)]
    pub(crate) num_epochs: usize,
    #[config(default = 64)]
    pub(crate) batch_size: usize,
    #[config(default = 1)]
    pub(crate) num_workers: usize,
    #[config(default = 42)]
    pub(crate) seed: u64,
    #[config(default = 1e-3)]
    pub(crate) learning_rate: f64,
    /// Number of training images. `None` for all.
    pub(crate) limit: Option<usize>,
}

/// Trains a model and saves it in a folder. Returns the accuracy on the test images.
pub(crate) fn train<B: AutodiffBackend>(
    folder: &Path,
    config: TrainingConfig,
    device: B::Device,
) -> Result<f64, Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    config.save(folder.join("config.json"))?;
    B::seed(&device, config.seed);

    let images = PartialDataset::new(MnistDataset::train()?, 0, config.limit.unwrap_or(usize::MAX));
    let train_loader = DataLoaderBuilder::new(MnistBatcher::<B> { device: device.clone() })
        .batch_size(config.batch_size)
        .shuffle(config.seed)
        .num_workers(config.num_workers)
        .build(images)?;
    let valid_loader =
        DataLoaderBuilder::new(MnistBatcher::<B::InnerBackend> { device: B::inner_device(&device) })
            .batch_size(500)
            .num_workers(config.num_workers)
            .build(MnistDataset::test()?)?;

    let model: Model<B> = config.model.init(&device);
    let task = ModelTask::new(model, config.optimizer.init(), config.learning_rate);
    let run = RunFolder::create(folder.join("runs"), "guide")?;
    let mut learner = Learner::new(task)
        .name(run.name())
        .epochs(config.num_epochs as u64)
        .metric(Accuracy::new())
        .keep_last(run.checkpoints().join("last"))
        .keep_best(run.checkpoints().join("best"))
        .hyper_parameter("learning rate", config.learning_rate)
        .hyper_parameter("batch size", config.batch_size)
        .logger(run.logger()?);
    let history = learner.fit(&train_loader, &valid_loader)?;

    let model = learner.into_task().into_model();
    save_module(&model, folder.join("model.safetensors"))?;
    let scores = history.epochs.last().and_then(|epoch| epoch.valid());
    Ok(scores.and_then(|scores| scores.metric("accuracy")).ok_or("no epoch ended")?)
}
