//! Inference: `valid` disables dropout and removes automatic differentiation.

use kiln as burn;

use burn::backend::{Autodiff, Flex, flex::FlexDevice};
use burn::module::{AutodiffModule, Devices};
use burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig};
use burn::prelude::*;

type Training = Autodiff<Flex>;

#[derive(Module, Debug, Clone)]
struct Model<B: Backend> {
    linear: Linear<B>,
    norm: BatchNorm<B>,
    dropout: Dropout,
}

impl<B: Backend> Model<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.dropout.forward(self.norm.forward(self.linear.forward(x)))
    }
}

fn model(device: &FlexDevice) -> Model<Training> {
    Model {
        linear: LinearConfig::new(4, 64).init(device),
        norm: BatchNormConfig::new(64).init(device),
        dropout: DropoutConfig::new(0.5).init(),
    }
}

fn zeros(data: TensorData) -> usize {
    data.to_vec::<f32>().iter().filter(|&&x| x == 0.0).count()
}

#[test]
fn dropout_is_disabled_in_the_valid_model() {
    let device = FlexDevice;
    let model = model(&device);
    let x = Tensor::<Training, 2>::random([8, 4], Distribution::Normal(0.0, 1.0), &device);
    let trained = zeros(model.forward(x.clone()).into_data());
    assert!((128..384).contains(&trained), "{trained} of 512 elements");

    let valid: Model<Flex> = model.valid();
    assert_eq!(zeros(valid.forward(x.clone().inner()).into_data()), 0);
    let once = valid.forward(x.clone().inner()).into_data();
    assert_eq!(once, valid.forward(x.inner()).into_data());
}

#[test]
fn a_module_returns_its_devices() {
    let device = FlexDevice;
    let model = model(&device);
    assert_eq!(model.devices(), [device]);
    assert_eq!(model.valid().collect_devices(Devices::<Flex>::new()), [device]);
    assert_eq!(DropoutConfig::new(0.5).init().devices::<Flex>(), []);
    assert_eq!(model.num_params(), 4 * 64 + 64 + 2 * 64);
    let moved = model.fork(&device).to_device(&device).no_grad();
    assert_eq!(moved.num_trainable_parameters(), 0);
}
