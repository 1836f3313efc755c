//! Operations along the rows of a matrix, and sorting.

use super::{dtype, input, repeated, repeated_all};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::fft::{self, FftNorm};
use kiln::module::layer_norm;
use kiln::{Backend, DType, Tensor};

pub(crate) fn layernorm<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let x = input::<B, 2>(row, "x", device)?;
    let [weight, bias] = affine::<B>(x.dims()[1], dtype(row)?, device);
    repeated(row, move || layer_norm(x.clone(), Some(weight.clone()), Some(bias.clone()), 1e-5))
}

/// Weight and bias of a layer norm.
pub(super) fn affine<B: Backend>(width: usize, dtype: DType, device: &B::Device) -> [Tensor<B, 1>; 2] {
    [Tensor::ones([width], device), Tensor::zeros([width], device)].map(|x: Tensor<B, 1>| x.cast(dtype))
}

/// Real FFT: real and imaginary parts are tensors of their own.
pub(crate) fn rfft<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let x = input::<B, 2>(row, "x", device)?;
    repeated_all(row, move || {
        let (re, im) = fft::rfft(x.clone(), None, -1, FftNorm::Backward).into_parts();
        vec![re.into_any(), im.into_any()]
    })
}

pub(crate) fn sort<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let x = input::<B, 1>(row, "x", device)?;
    repeated_all(row, move || {
        let (values, indices) = x.clone().sort_with_indices(0);
        vec![values.into_any(), indices.into_any()]
    })
}
