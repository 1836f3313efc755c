//! Regression of a noisy line: a custom dataset, a batcher, the squared error, gradient clipping.

use kiln as burn;

use burn::backend::{Autodiff, Flex};
use burn::data::DataError;
use burn::data::dataloader::{DataLoaderBuilder, batcher::Batcher};
use burn::data::dataset::{Dataset, InMemDataset};
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientClipping, GradientsParams, Optimizer, SgdConfig};
use burn::prelude::*;

#[derive(Clone, Debug)]
struct House {
    size: f32,
    rooms: f32,
    price: f32,
}

struct Houses {
    dataset: InMemDataset<House>,
}

impl Houses {
    fn new(n: usize) -> Self {
        let house = |i: usize| {
            let (size, rooms) = ((i % 17) as f32 / 17.0, (i % 5) as f32 / 5.0);
            House { size, rooms, price: 3.0 * size - 2.0 * rooms + 0.5 }
        };
        Self { dataset: InMemDataset::new((0..n).map(house).collect()) }
    }
}

impl Dataset<House> for Houses {
    fn get(&self, index: usize) -> Option<House> {
        self.dataset.get(index)
    }

    fn len(&self) -> usize {
        self.dataset.len()
    }
}

struct Batch<B: Backend> {
    inputs: Tensor<B, 2>,
    targets: Tensor<B, 2>,
}

struct HouseBatcher<B: Backend>(B::Device);

impl<B: Backend> Batcher<House, Batch<B>> for HouseBatcher<B> {
    fn batch(&self, items: Vec<House>) -> Result<Batch<B>, DataError> {
        let rows: Vec<Tensor<B, 2>> = items
            .iter()
            .map(|house| Tensor::<B, 1>::from_floats([house.size, house.rooms], &self.0).unsqueeze())
            .collect();
        let prices: Vec<f32> = items.iter().map(|house| house.price).collect();
        let targets = Tensor::<B, 1>::from_floats(prices.as_slice(), &self.0).unsqueeze_dim(1);
        Ok(Batch { inputs: Tensor::cat(rows, 0), targets })
    }
}

#[test]
fn a_linear_regression_learns_its_line() {
    type B = Autodiff<Flex>;
    let device = Default::default();
    let loader = DataLoaderBuilder::new(HouseBatcher::<B>(device))
        .batch_size(17)
        .shuffle(1)
        .build(Houses::new(85))
        .unwrap();
    let mut model: Linear<B> = LinearConfig::new(2, 1).init(&device);
    let mut optim =
        SgdConfig::new().with_momentum(0.9).with_grad_clipping(Some(GradientClipping::Norm(1.0))).init();
    for _ in 0..60 {
        for batch in loader.iter() {
            let batch = batch.unwrap();
            let loss = MseLoss::new().forward(model.forward(batch.inputs), batch.targets, Reduction::Mean);
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optim.step(0.1, model, grads);
        }
    }
    let weight = model.weight.val().to_data().to_vec::<f32>();
    assert!((weight[0] - 3.0).abs() < 0.02 && (weight[1] + 2.0).abs() < 0.02, "{weight:?}");
    let bias = model.bias.as_ref().unwrap().val().into_scalar::<f32>();
    assert!((bias - 0.5).abs() < 0.02, "{bias}");
}
