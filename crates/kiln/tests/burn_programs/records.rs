//! Weights and the state of an optimizer in files, in place of records and recorders.

use kiln as burn;

use burn::backend::{Autodiff, Flex};
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::store::{load_module, load_optimizer, save_module, save_optimizer};

type B = Autodiff<Flex>;

fn step(model: nn::Linear<B>, optim: &mut Adam) -> nn::Linear<B> {
    let x = Tensor::<B, 2>::ones([3, 2], &Default::default());
    let loss = model.forward(x).powf_scalar(2.0).mean();
    let grads = GradientsParams::from_grads(loss.backward(), &model);
    optim.step(0.05, model, grads)
}

#[test]
fn training_resumes_from_files() {
    let device = Default::default();
    let folder = std::env::temp_dir().join(format!("kiln-burn-records-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (weights, state) = (folder.join("model.safetensors"), folder.join("adam.safetensors"));

    let mut optim = AdamConfig::new().init();
    let model = step(nn::LinearConfig::new(2, 4).init(&device), &mut optim);
    save_module(&model, &weights).unwrap();
    save_optimizer(&optim, &model, &state).unwrap();
    let expected = step(model, &mut optim).weight.val().into_data();

    let model = load_module(nn::LinearConfig::new(2, 4).init::<B>(&device), &weights).unwrap();
    let mut optim = AdamConfig::new().init();
    load_optimizer(&mut optim, &model, &state).unwrap();
    assert_eq!(step(model, &mut optim).weight.val().into_data(), expected);
    std::fs::remove_dir_all(&folder).unwrap();
}
