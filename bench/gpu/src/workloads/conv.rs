//! Convolution of images in bf16.

use super::{Gpu, GpuDevice, normal, repeated};
use bench_protocol::Prepared;
use bench_protocol::gpu::{CONV_INPUT, CONV_WEIGHT};
use kiln::DType;
use kiln::module::{ConvOptions, conv2d};

pub(crate) fn forward(device: &GpuDevice, rounds: usize) -> Prepared {
    let x = normal::<Gpu, 4>(CONV_INPUT, DType::BF16, device);
    let weight = normal::<Gpu, 4>(CONV_WEIGHT, DType::BF16, device);
    let options = ConvOptions::new([1; 2], [1; 2], [1; 2], 1);
    repeated(rounds, move || conv2d(x.clone(), weight.clone(), None, &options))
}
