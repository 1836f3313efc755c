//! A step of AdamW on many parameters.

use crate::{first, input, wait};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result, failed};
use burn::module::{Initializer, Module, Param};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Tensor};

#[derive(Module, Debug)]
struct Weights {
    list: Vec<Param<Tensor<2>>>,
}

pub(crate) fn adamw(row: &Row, device: &Device) -> Result<Prepared> {
    let (count, shape) = (row.size("count")?, row.sizes::<2>("x")?);
    let tape = device.clone().autodiff();
    let initial = Initializer::Normal { mean: 0.0, std: 1.0 };
    let list = (0..count).map(|_| initial.init(shape, &tape)).collect();
    let gradients = (0..count).map(|_| input(row, "x", device)).collect::<Result<Vec<Tensor<2>>>>()?;
    let mut optimizer = AdamWConfig::new().with_epsilon(1e-8).init();
    let mut weights = Some(Weights { list });
    let device = device.clone();
    Ok(Prepared::new(move || {
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
    }))
}
