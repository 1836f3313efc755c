//! Convolution of images in bf16.

use super::{Gpu, GpuDevice, normal, repeated};
use bench_protocol::Prepared;
use bench_protocol::gpu::{CONV_INPUT, CONV_WEIGHT};
use kiln::module::{ConvOptions, conv2d};
use kiln::{DType, Tensor};

pub(crate) fn forward(device: &GpuDevice, rounds: usize) -> Prepared {
    let [x, weight] = [CONV_INPUT, CONV_WEIGHT].map(|shape| channels_last(shape, device));
    let options = ConvOptions::new([1; 2], [1; 2], [1; 2], 1);
    repeated(rounds, move || conv2d(x.clone(), weight.clone(), None, &options))
}

/// Random numbers whose channels lie together in memory, as in `torch_gpu.py`.
fn channels_last([n, c, h, w]: [usize; 4], device: &GpuDevice) -> Tensor<Gpu, 4> {
    normal::<Gpu, 4>([n, h, w, c], DType::BF16, device).permute([0, 3, 1, 2])
}
