//! A step of AdamW on many parameters.

use crate::{first, normal, wait};
use bench_protocol::vulkan::ADAMW;
use bench_protocol::{Prepared, failed};
use burn::module::{Initializer, Module, Param};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{DType, Device, Tensor};

#[derive(Module, Debug)]
struct Weights {
    list: Vec<Param<Tensor<2>>>,
}

pub(crate) fn adamw(device: &Device) -> Prepared {
    let (count, shape) = ADAMW;
    let tape = device.clone().autodiff();
    let initial = Initializer::Normal { mean: 0.0, std: 1.0 };
    let list = (0..count).map(|_| initial.init(shape, &tape)).collect();
    let gradients: Vec<Tensor<2>> = (0..count).map(|_| normal(shape, DType::F32, device)).collect();
    let mut optimizer = AdamWConfig::new().with_epsilon(1e-8).init();
    let mut weights = Some(Weights { list });
    let device = device.clone();
    Prepared::new(move || {
        let old = weights.take().ok_or_else(|| failed("an earlier step failed"))?;
        let mut registered = GradientsParams::new();
        for (weight, gradient) in old.list.iter().zip(&gradients) {
            registered.register(weight.id, gradient.clone());
        }
        let new = optimizer.step(1e-3, old, registered);
        wait(&device)?;
        let read = first(new.list[count - 1].val());
        weights = Some(new);
        read
    })
}
