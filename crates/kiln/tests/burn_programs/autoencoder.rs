//! An autoencoder: eight one-hot vectors through three numbers.

use kiln as burn;

use burn::backend::{Autodiff, Flex, Fusion};
use burn::nn::loss::{MseLoss, Reduction};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::activation::{sigmoid, tanh};

#[derive(Module, Debug, Clone)]
struct Autoencoder<B: Backend> {
    encoder: Vec<nn::Linear<B>>,
    decoder: nn::Linear<B>,
}

#[derive(Config, Debug)]
struct AutoencoderConfig {
    features: usize,
    code: usize,
}

impl AutoencoderConfig {
    fn init<B: Backend>(&self, device: &B::Device) -> Autoencoder<B> {
        let encoder = vec![
            nn::LinearConfig::new(self.features, 16).init(device),
            nn::LinearConfig::new(16, self.code).init(device),
        ];
        Autoencoder { encoder, decoder: nn::LinearConfig::new(self.code, self.features).init(device) }
    }
}

impl<B: Backend> Autoencoder<B> {
    fn encode(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.encoder.iter().fold(x, |x, layer| tanh(layer.forward(x)))
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        sigmoid(self.decoder.forward(self.encode(x)))
    }
}

#[test]
fn an_autoencoder_reconstructs_its_inputs() {
    type B = Autodiff<Fusion<Flex>>;
    let device = Default::default();
    B::seed(&device, 3);
    let x = Tensor::<B, 2>::eye(8, &device);
    let mut model = AutoencoderConfig::new(8, 3).init::<B>(&device);
    let mut optim = AdamConfig::new().with_beta_2(0.99).init();
    for _ in 0..400 {
        let loss = MseLoss::new().forward(model.forward(x.clone()), x.clone(), Reduction::Mean);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optim.step(0.03, model, grads);
    }
    let model = model.valid();
    let x = x.inner();
    assert_eq!(model.encode(x.clone()).dims(), [8, 3]);
    let error = (model.forward(x.clone()) - x).powf_scalar(2.0).mean().into_scalar::<f32>();
    // The best constant gives 7/64.
    assert!(error < 0.04, "{error}");
}
