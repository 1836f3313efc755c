//! Operations along the rows of a matrix, alone and with their gradients.

use super::{Gpu, GpuDevice, Tape, normal, repeated, repeated_all, with_gradients};
use bench_protocol::Prepared;
use bench_protocol::gpu::ROWS;
use kiln::fft::{self, FftNorm};
use kiln::module::layer_norm;
use kiln::{Backend, DType, Tensor, activation};

pub(crate) fn softmax(shape: [usize; 2], dtype: DType, device: &GpuDevice, rounds: usize) -> Prepared {
    let x = normal::<Gpu, 2>(shape, dtype, device);
    repeated(rounds, move || activation::softmax(x.clone(), 1))
}

pub(crate) fn softmax_backward(device: &GpuDevice, rounds: usize) -> Prepared {
    let (x, gradient) = (matrix::<Tape>(device).require_grad(), matrix::<Gpu>(device));
    repeated_all(rounds, move || {
        with_gradients(activation::softmax(x.clone(), 1), &gradient, &[x.clone().into_any()])
    })
}

pub(crate) fn layernorm(shape: [usize; 2], dtype: DType, device: &GpuDevice, rounds: usize) -> Prepared {
    let (x, [weight, bias]) =
        (normal::<Gpu, 2>(shape, dtype, device), affine::<Gpu>(shape[1], dtype, device));
    repeated(rounds, move || layer_norm(x.clone(), Some(weight.clone()), Some(bias.clone()), 1e-5))
}

pub(crate) fn layernorm_backward(device: &GpuDevice, rounds: usize) -> Prepared {
    let (x, gradient) = (matrix::<Tape>(device).require_grad(), matrix::<Gpu>(device));
    let [weight, bias] = affine::<Tape>(ROWS[1], DType::BF16, device).map(Tensor::require_grad);
    repeated_all(rounds, move || {
        let y = layer_norm(x.clone(), Some(weight.clone()), Some(bias.clone()), 1e-5);
        let inputs = [x.clone().into_any(), weight.clone().into_any(), bias.clone().into_any()];
        with_gradients(y, &gradient, &inputs)
    })
}

/// The sum of all elements.
pub(crate) fn sum(shape: [usize; 2], dtype: DType, device: &GpuDevice, rounds: usize) -> Prepared {
    let x = normal::<Gpu, 2>(shape, dtype, device);
    repeated(rounds, move || x.clone().sum())
}

/// Real and imaginary parts are tensors of their own.
pub(crate) fn rfft(shape: [usize; 2], device: &GpuDevice, rounds: usize) -> Prepared {
    let x = normal::<Gpu, 2>(shape, DType::F32, device);
    repeated_all(rounds, move || {
        let (re, im) = fft::rfft(x.clone(), None, -1, FftNorm::Backward).into_parts();
        vec![re.into_any(), im.into_any()]
    })
}

fn matrix<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    normal::<B, 2>(ROWS, DType::BF16, device)
}

/// Weight and bias of a layer norm.
fn affine<B: Backend>(width: usize, dtype: DType, device: &B::Device) -> [Tensor<B, 1>; 2] {
    [Tensor::ones([width], device), Tensor::zeros([width], device)].map(|x: Tensor<B, 1>| x.cast(dtype))
}
