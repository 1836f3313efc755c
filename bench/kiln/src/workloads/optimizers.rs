//! One step of an optimizer, with gradients that do not change.

use super::{first, normal};
use bench_protocol::shapes::{MATRICES, TENSORS};
use bench_protocol::{Prepared, failed};
use kiln::nn::{GradientsParams, Module, Param};
use kiln::optim::{AdamWConfig, LionConfig, MuonConfig, Optimizer};
use kiln::{Autodiff, Backend, Tensor};

#[derive(Module, Debug)]
struct Matrices<B: Backend> {
    tensors: Vec<Param<Tensor<B, 2>>>,
}

pub(crate) fn adamw<B: Backend>(device: &B::Device) -> Prepared {
    update::<B>(AdamWConfig::new().init(), TENSORS, device)
}

pub(crate) fn lion<B: Backend>(device: &B::Device) -> Prepared {
    update::<B>(LionConfig::new().init(), TENSORS, device)
}

pub(crate) fn muon<B: Backend>(device: &B::Device) -> Prepared {
    update::<B>(MuonConfig::new().init(), MATRICES, device)
}

fn update<B: Backend>(
    mut optimizer: impl Optimizer + 'static,
    (count, shape): (usize, [usize; 2]),
    device: &B::Device,
) -> Prepared {
    let tensors = (0..count).map(|_| Param::from_tensor(normal::<Autodiff<B>, 2>(shape, device))).collect();
    let mut model = Matrices::<Autodiff<B>> { tensors };
    let gradients: GradientsParams =
        model.tensors.iter().map(|p| (p.id(), normal::<B, 2>(shape, device).into_any())).collect();
    let device = device.clone();
    Prepared::new(move || {
        optimizer.update(1e-3, &mut model, gradients.clone()).map_err(|error| failed(error.to_string()))?;
        B::sync(&device)?;
        first(&model.tensors[0].val().inner())
    })
}
