//! Training LoRA adapters.

use kiln_backends::Flex;
use kiln_nn::reparametrize::{LoraConfig, LoraModel};
use kiln_nn::{GradientsParams, Linear, LinearConfig, Module};
use kiln_optim::{AdamWConfig, Optimizer};
use kiln_tensor::{Autodiff, Backend, Distribution, Tensor};

type B = Autodiff<Flex>;

fn numbers<const D: usize>(x: &Tensor<B, D>) -> Vec<f32> {
    x.to_data().to_vec()
}

/// Adapters of rank 1 learn a change of rank 1.
#[test]
fn an_optimizer_trains_only_adapters() {
    let device = Default::default();
    B::seed(&device, 3);
    let base: Linear<B> = LinearConfig::new(4, 3).init(&device);
    let normal = |shape| Tensor::<B, 2>::random(shape, Distribution::Normal(0.0, 1.0), &device);
    let change = normal([3, 1]).matmul(normal([1, 4]));
    let x = normal([64, 4]);
    let target = base.forward(x.clone()) + x.clone().matmul(change.transpose());
    let mut model: LoraModel<Linear<B>> = LoraConfig::new(1).init(base.clone()).unwrap();
    // Weight decay must not reach the frozen weights.
    let mut optimizer = AdamWConfig::new().with_weight_decay(0.01).init();
    let mut last = f32::MAX;
    for _ in 0..400 {
        let loss = (model.module().forward(x.clone()) - target.clone()).square().mean();
        last = loss.to_data().to_vec::<f32>()[0];
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.03, model, gradients);
    }
    assert!(last < 1e-3, "{last}");
    assert_eq!(numbers(&model.base().weight.val()), numbers(&base.weight.val()));
    assert_eq!(model.num_trainable_parameters(), 4 + 3);
}
