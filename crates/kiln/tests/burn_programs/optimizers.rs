//! Weight decay, momentum and gradient clipping as configurations. Expected values are from PyTorch 1.13.

use kiln as burn;

use burn::backend::{Autodiff, Flex};
use burn::grad_clipping::GradientClippingConfig;
use burn::module::Param;
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, Optimizer, RmsPropConfig, SgdConfig};
use burn::prelude::*;

type B = Autodiff<Flex>;

/// Three steps with learning rate 0.1 from `[1, -2]` on the loss `sum((p - 3)²)`.
fn steps(mut optim: impl Optimizer) -> Vec<f32> {
    let device = Default::default();
    let mut model = Param::from_tensor(Tensor::<B, 1>::from_floats([1.0, -2.0], &device));
    for _ in 0..3 {
        let loss = (model.val() - 3.0).powf_scalar(2.0).sum();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optim.step(0.1, model, grads);
    }
    model.val().into_data().to_vec()
}

fn near(found: Vec<f32>, expected: [f32; 2]) {
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} is not {expected:?}");
}

#[test]
fn options_have_burns_types() {
    let sgd = SgdConfig::new()
        .with_weight_decay(Some(WeightDecayConfig::new(5e-2)))
        .with_momentum(Some(MomentumConfig::new()))
        .with_gradient_clipping(Some(GradientClippingConfig::Norm(100.0)));
    near(steps(sgd.init()), [2.772_321_7, 2.531_759_3]);
    let nesterov = MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: true };
    near(steps(SgdConfig::new().with_momentum(Some(nesterov)).init()), [3.216_704, 3.541_76]);
    let adam = AdamConfig::new().with_weight_decay(Some(WeightDecayConfig::new(0.5)));
    near(steps(adam.init()), [1.299_009_9, -1.700_245_9]);
}

#[test]
fn numbers_and_none_are_options_too() {
    assert_eq!(
        AdamWConfig::new().with_weight_decay(1e-4),
        AdamWConfig::new().with_weight_decay(WeightDecayConfig::new(1e-4))
    );
    assert_eq!(AdamWConfig::new().with_weight_decay(None).weight_decay, 0.0);
    assert_eq!(SgdConfig::new().with_momentum(0.9).with_momentum(None), SgdConfig::new());
    let clipping = RmsPropConfig::new().with_grad_clipping(Some(GradientClippingConfig::Value(0.5)));
    assert_eq!(clipping.grad_clipping, Some(burn::optim::grad_clipping::GradientClipping::Value(0.5)));
}
