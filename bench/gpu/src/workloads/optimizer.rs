//! A step of AdamW on many parameters.

use super::{Gpu, GpuDevice, Tape, first, normal};
use bench_protocol::{Prepared, Result, failed};
use kiln::nn::{GradientsParams, Module, Param};
use kiln::optim::{AdamWConfig, Optimizer};
use kiln::{DType, Tensor};

#[derive(Module, Clone, Debug)]
struct Weights<B: kiln::Backend> {
    list: Vec<Param<Tensor<B, 2>>>,
}

/// `count` parameters of that shape.
pub(crate) fn adamw((count, shape): (usize, [usize; 2]), device: &GpuDevice) -> Result<Prepared> {
    let weight = |_| Param::from_tensor(normal::<Tape, 2>(shape, DType::F32, device));
    let weights = Weights { list: (0..count).map(weight).collect() };
    let mut gradients = GradientsParams::new();
    for weight in &weights.list {
        gradients.insert(weight.id(), normal::<Gpu, 2>(shape, DType::F32, device).into_any());
    }
    let mut optimizer = AdamWConfig::new().init();
    let mut weights = Some(weights);
    Ok(Prepared::new(move || {
        let old = weights.take().ok_or_else(|| failed("an earlier step failed"))?;
        let new = optimizer.step(1e-3, old, gradients.clone());
        let read = first(new.list[count - 1].val().inner().as_any());
        weights = Some(new);
        read
    }))
}
