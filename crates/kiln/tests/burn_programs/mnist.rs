//! A convolutional classifier of digits: model and training configurations, batcher, loaders.

use kiln as burn;

use burn::backend::{Autodiff, Flex, flex::FlexDevice};
use burn::data::DataError;
use burn::data::dataloader::{DataLoaderBuilder, batcher::Batcher};
use burn::data::dataset::transform::PartialDataset;
use burn::data::dataset::vision::{MnistDataset, MnistItem};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig, PaddingConfig2d, Relu};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;

#[derive(Module, Debug, Clone)]
struct Model<B: Backend> {
    conv1: Conv2d<B>,
    conv2: Conv2d<B>,
    pool: MaxPool2d,
    average: AdaptiveAvgPool2d,
    dropout: Dropout,
    linear1: Linear<B>,
    linear2: Linear<B>,
    activation: Relu,
}

#[derive(Config, Debug, Clone)]
struct ModelConfig {
    num_classes: usize,
    hidden_size: usize,
    #[config(default = "0.1")]
    dropout: f64,
}

#[derive(Config, Debug)]
struct TrainingConfig {
    model: ModelConfig,
    optimizer: AdamConfig,
    #[config(default = 6)]
    num_epochs: usize,
    #[config(default = 16)]
    batch_size: usize,
    #[config(default = 42)]
    seed: u64,
    #[config(default = 4.0e-3)]
    learning_rate: f64,
}

impl ModelConfig {
    fn init<B: Backend>(&self, device: &B::Device) -> Model<B> {
        Model {
            conv1: Conv2dConfig::new([1, 8], [3, 3]).with_padding(PaddingConfig2d::Same).init(device),
            conv2: Conv2dConfig::new([8, 16], [3, 3]).init(device),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            average: AdaptiveAvgPool2dConfig::new([4, 4]).init(),
            dropout: DropoutConfig::new(self.dropout).init(),
            linear1: LinearConfig::new(16 * 4 * 4, self.hidden_size).init(device),
            linear2: LinearConfig::new(self.hidden_size, self.num_classes).init(device),
            activation: Relu::new(),
        }
    }
}

impl<B: Backend> Model<B> {
    fn forward(&self, images: Tensor<B, 3>) -> Tensor<B, 2> {
        let [batch_size, height, width] = images.dims();
        let x = images.reshape([batch_size, 1, height, width]);
        let x = self.pool.forward(self.activation.forward(self.conv1.forward(x)));
        let x = self.activation.forward(self.conv2.forward(x));
        let x = self.average.forward(self.dropout.forward(x));
        let x = x.reshape([batch_size, 16 * 4 * 4]);
        let x = self.activation.forward(self.dropout.forward(self.linear1.forward(x)));
        self.linear2.forward(x)
    }
}

#[derive(Clone, Debug)]
struct MnistBatch<B: Backend> {
    images: Tensor<B, 3>,
    targets: Tensor<B, 1, Int>,
}

#[derive(Clone)]
struct MnistBatcher<B: Backend> {
    device: B::Device,
}

impl<B: Backend> Batcher<MnistItem, MnistBatch<B>> for MnistBatcher<B> {
    fn batch(&self, items: Vec<MnistItem>) -> Result<MnistBatch<B>, DataError> {
        let image = |item: &MnistItem| {
            let pixels =
                item.image.as_flattened().iter().map(|&pixel| f32::from(pixel)).collect::<Vec<f32>>();
            let pixels =
                Tensor::<B, 3>::from_data(TensorData::new(pixels, [1, 28, 28]).unwrap(), &self.device);
            ((pixels / 255) - 0.1307) / 0.3081
        };
        let target = |item: &MnistItem| Tensor::<B, 1, Int>::from_data([i64::from(item.label)], &self.device);
        let images = Tensor::cat(items.iter().map(image).collect(), 0);
        let targets = Tensor::cat(items.iter().map(target).collect(), 0);
        Ok(MnistBatch { images, targets })
    }
}

/// Trains and returns the loss of the first and of the last epoch, with the accuracy on the digits trained on.
fn train<B: AutodiffBackend>(config: &TrainingConfig, device: B::Device) -> (f32, f32, f32) {
    B::seed(&device, config.seed);
    let mut model = config.model.init::<B>(&device);
    let mut optim = config.optimizer.init();
    let digits = || PartialDataset::new(MnistDataset::train().unwrap(), 0, 128);
    let loader = DataLoaderBuilder::new(MnistBatcher::<B> { device: device.clone() })
        .batch_size(config.batch_size)
        .shuffle(config.seed)
        .num_workers(1)
        .build(digits())
        .unwrap();
    let mut losses = Vec::new();
    for _epoch in 1..config.num_epochs + 1 {
        let mut total = 0.0;
        for batch in loader.iter() {
            let batch = batch.unwrap();
            let output = model.forward(batch.images);
            let loss = CrossEntropyLossConfig::new()
                .init(&output.device())
                .forward(output.clone(), batch.targets.clone());
            total += loss.clone().into_scalar::<f32>();
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optim.step(config.learning_rate, model, grads);
        }
        losses.push(total / loader.len() as f32);
    }

    let valid = model.valid();
    let batcher = MnistBatcher::<B::InnerBackend> { device };
    let loader = DataLoaderBuilder::new(batcher).batch_size(64).build(digits()).unwrap();
    let mut hits = 0;
    for batch in loader.iter() {
        let batch = batch.unwrap();
        let predictions = valid.forward(batch.images).argmax(1).squeeze_dim::<1>(1);
        hits += predictions.equal(batch.targets).int().sum().into_scalar::<i64>();
    }
    (losses[0], losses[losses.len() - 1], hits as f32 / loader.num_items() as f32)
}

#[test]
fn a_digit_classifier_learns() {
    let config = TrainingConfig::new(ModelConfig::new(10, 32), AdamConfig::new());
    let (first, last, accuracy) = train::<Autodiff<Flex>>(&config, FlexDevice);
    assert!(first > 1.5 && last < 0.7 * first, "{first} {last}");
    assert!(accuracy > 0.6, "{accuracy}");
}

#[test]
fn a_training_configuration_round_trips_through_json() {
    let config = TrainingConfig::new(ModelConfig::new(10, 32).with_dropout(0.5), AdamConfig::new());
    let path = std::env::temp_dir().join(format!("kiln-burn-programs-{}.json", std::process::id()));
    config.save(&path).unwrap();
    let loaded = TrainingConfig::load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((loaded.model.dropout, loaded.batch_size, loaded.seed), (0.5, 16, 42));
}
