//! Operations with their gradients.

use super::super::attention::options;
use super::super::rows::affine;
use super::{Gpu, GpuDevice, dtype, input, repeated_all};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::module::{attention as attend, layer_norm};
use kiln::{AnyTensor, Tensor, activation};

/// The backend with gradients.
type Tape = kiln::Autodiff<Gpu>;

pub(crate) fn softmax(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let (x, gradient) = (input::<Tape, 2>(row, "x", device)?.require_grad(), input(row, "x", device)?);
    repeated_all(row, move || {
        with_gradients(activation::softmax(x.clone(), 1), &gradient, &[x.clone().into_any()])
    })
}

pub(crate) fn layernorm(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let (x, gradient) = (input::<Tape, 2>(row, "x", device)?.require_grad(), input(row, "x", device)?);
    let [weight, bias] = affine::<Tape>(x.dims()[1], dtype(row)?, device).map(Tensor::require_grad);
    repeated_all(row, move || {
        let y = layer_norm(x.clone(), Some(weight.clone()), Some(bias.clone()), 1e-5);
        let inputs = [x.clone().into_any(), weight.clone().into_any(), bias.clone().into_any()];
        with_gradients(y, &gradient, &inputs)
    })
}

pub(crate) fn attention(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let options = options(row)?;
    let operand = || -> Result<_> { Ok(input::<Tape, 4>(row, "x", device)?.require_grad()) };
    let (q, k, v) = (operand()?, operand()?, operand()?);
    let gradient = input(row, "x", device)?;
    repeated_all(row, move || {
        let y = attend(q.clone(), k.clone(), v.clone(), None, options);
        with_gradients(y, &gradient, &[&q, &k, &v].map(|x| x.clone().into_any()))
    })
}

/// The result of an operation, and the gradients of its inputs.
fn with_gradients<const D: usize>(
    y: Tensor<Tape, D>,
    gradient: &Tensor<Gpu, D>,
    inputs: &[AnyTensor],
) -> Vec<AnyTensor> {
    let result = y.clone().inner().into_any();
    let gradients = y.try_backward_from(gradient.clone()).unwrap_or_else(|error| panic!("{error}"));
    let of = |input: &AnyTensor| gradients.get(input).expect("it requires a gradient");
    core::iter::once(result).chain(inputs.iter().map(of)).collect()
}
