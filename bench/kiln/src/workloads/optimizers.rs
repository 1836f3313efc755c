//! One step of an optimizer, with gradients that do not change.

use super::{first, input};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result, failed};
use kiln::nn::{GradientsParams, Module, Param};
use kiln::optim::Optimizer;
use kiln::{Autodiff, Backend, Tensor};

#[derive(Module, Debug)]
struct Matrices<B: Backend> {
    tensors: Vec<Param<Tensor<B, 2>>>,
}

pub(crate) fn update<B: Backend>(
    row: &'static Row,
    device: &B::Device,
    mut optimizer: impl Optimizer + 'static,
) -> Result<Prepared> {
    let weight = |_| Ok(Param::from_tensor(input::<Autodiff<B>, 2>(row, "x", device)?));
    let tensors = (0..row.size("count")?).map(weight).collect::<Result<_>>()?;
    let mut model = Matrices::<Autodiff<B>> { tensors };
    let gradient =
        |p: &Param<Tensor<Autodiff<B>, 2>>| Ok((p.id(), input::<B, 2>(row, "x", device)?.into_any()));
    let gradients: GradientsParams = model.tensors.iter().map(gradient).collect::<Result<_>>()?;
    let device = device.clone();
    Ok(Prepared::new(move || {
        optimizer.update(1e-3, &mut model, gradients.clone()).map_err(|error| failed(error.to_string()))?;
        B::sync(&device)?;
        first(model.tensors[0].val().inner().as_any())
    }))
}
