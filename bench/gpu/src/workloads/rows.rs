//! Operations along the rows of a matrix of bf16, alone and with their gradients.

use super::{Gpu, GpuDevice, Tape, normal, repeated};
use bench_protocol::Prepared;
use bench_protocol::gpu::ROWS;
use kiln::module::layer_norm;
use kiln::{Backend, DType, Tensor, activation};

pub(crate) fn softmax(device: &GpuDevice, rounds: usize) -> Prepared {
    let x = matrix::<Gpu>(device);
    repeated(rounds, move || activation::softmax(x.clone(), 1))
}

pub(crate) fn softmax_backward(device: &GpuDevice, rounds: usize) -> Prepared {
    let (x, gradient) = (matrix::<Tape>(device).require_grad(), matrix::<Gpu>(device));
    repeated(rounds, move || gradient_of(&x, activation::softmax(x.clone(), 1), &gradient))
}

pub(crate) fn layernorm(device: &GpuDevice, rounds: usize) -> Prepared {
    let (x, [weight, bias]) = (matrix::<Gpu>(device), affine::<Gpu>(device));
    repeated(rounds, move || layer_norm(x.clone(), Some(weight.clone()), Some(bias.clone()), 1e-5))
}

pub(crate) fn layernorm_backward(device: &GpuDevice, rounds: usize) -> Prepared {
    let (x, gradient) = (matrix::<Tape>(device).require_grad(), matrix::<Gpu>(device));
    let [weight, bias] = affine::<Tape>(device).map(Tensor::require_grad);
    repeated(rounds, move || {
        let y = layer_norm(x.clone(), Some(weight.clone()), Some(bias.clone()), 1e-5);
        gradient_of(&x, y, &gradient)
    })
}

fn matrix<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    normal::<B, 2>(ROWS, DType::BF16, device)
}

/// Weight and bias of a layer norm.
fn affine<B: Backend>(device: &B::Device) -> [Tensor<B, 1>; 2] {
    [Tensor::ones([ROWS[1]], device), Tensor::zeros([ROWS[1]], device)]
        .map(|x: Tensor<B, 1>| x.cast(DType::BF16))
}

fn gradient_of(x: &Tensor<Tape, 2>, y: Tensor<Tape, 2>, gradient: &Tensor<Gpu, 2>) -> Tensor<Gpu, 2> {
    let gradients = y.try_backward_from(gradient.clone());
    let gradients = gradients.unwrap_or_else(|error| panic!("{error}"));
    x.grad(&gradients).expect("it requires a gradient")
}
