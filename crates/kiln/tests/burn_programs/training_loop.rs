//! A training loop by hand: points on both sides of a circle.

use kiln as burn;

use burn::backend::{Autodiff, NdArray, ndarray::NdArrayDevice};
use burn::module::{AutodiffModule, Module};
use burn::nn::loss::CrossEntropyLoss;
use burn::nn::{Gelu, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Int, Tensor};

#[derive(Module, Debug, Clone)]
struct Classifier<B: Backend> {
    input: Linear<B>,
    output: Linear<B>,
    activation: Gelu,
}

impl<B: Backend> Classifier<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            input: LinearConfig::new(2, 24).init(device),
            output: LinearConfig::new(24, 2).init(device),
            activation: Gelu::new(),
        }
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.output.forward(self.activation.forward(self.input.forward(x)))
    }
}

fn points<B: Backend>(n: usize, device: &B::Device) -> (Tensor<B, 2>, Tensor<B, 1, Int>) {
    let points = Tensor::<B, 2>::random([n, 2], Distribution::Uniform(-1.0, 1.0), device);
    let radius = points.clone().powf_scalar(2.0).sum_dim(1).sqrt();
    let inside = radius.lower_elem(0.7).int().squeeze_dim(1);
    (points, inside)
}

fn accuracy<B: Backend>(output: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> f32 {
    let num_items = targets.dims()[0];
    let hits = output.argmax(1).squeeze_dim(1).equal(targets).int().sum().into_scalar::<i32>();
    hits as f32 / num_items as f32
}

fn run<B: AutodiffBackend>(device: &B::Device) -> f32 {
    B::seed(device, 7);
    let mut model = Classifier::<B>::new(device);
    let mut optim = AdamWConfig::new().with_weight_decay(1e-4).init();
    let loss_fn = CrossEntropyLoss::new(None, device);
    for _ in 0..200 {
        let (x, targets) = points::<B>(64, device);
        let loss = loss_fn.forward(model.forward(x), targets);
        let grads = loss.backward();
        let grads = GradientsParams::from_grads(grads, &model);
        model = optim.step(2e-2, model, grads);
    }
    assert_eq!(model.devices(), std::slice::from_ref(device));
    let (x, targets) = points::<B::InnerBackend>(512, device);
    accuracy(model.valid().forward(x), targets)
}

#[test]
fn a_hand_written_loop_learns_to_classify_a_circle() {
    let accuracy = run::<Autodiff<NdArray<f32>>>(&NdArrayDevice::Cpu);
    assert!(accuracy > 0.9, "{accuracy}");
}
