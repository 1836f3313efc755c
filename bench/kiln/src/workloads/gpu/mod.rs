//! The workloads of GPUs.

mod backward;
mod decode;
mod decode_models;
mod gpt2;
pub(crate) mod kernels;

use super::conv::options;
use super::memory::indices;
use super::overhead::additions;
use super::resnet::ResNet;
use super::training::cross_entropy;
use super::{dtype, input, normal, repeated, repeated_all, shared, unary};
pub(crate) use crate::gpu::device::{Gpu, GpuDevice};
use bench_protocol::random::Random;
use bench_protocol::workloads::{self, Row};
use bench_protocol::{Prepared, Result};
use kiln::float8::{self, Float8};
use kiln::module::conv2d;
use kiln::optim::SgdConfig;
use kiln::{Autocast, Backend, CudaDevice, DType, Tensor};

/// The same in mixed precision, with gradients.
type Mixed = kiln::Autodiff<Autocast<Gpu>>;

/// Makes the inputs of a workload on a device, which must be there.
pub(crate) fn prepare(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    // A missing device is an error answer, not a panic at the first tensor.
    device.engine()?;
    // As in `pytorch.py`; Vulkan has no TF32.
    CudaDevice::set_tf32(workloads::of("gpu").any(|of_gpu| std::ptr::eq(of_gpu, row)));
    Gpu::seed(device, 1);
    match row.operation {
        "additions" => additions::<Gpu>(row, device),
        "attention_backward" => backward::attention(row, device),
        "bincount" => bincount(row, device),
        "conv_channels_last" => conv_channels_last(row, device),
        "gpt2" if row.dtype == "mixed" => gpt2::train::<Autocast<Gpu>>(row, device),
        "gpt2" => gpt2::train::<Gpu>(row, device),
        "layernorm_backward" => backward::layernorm(row, device),
        "llama" => decode::tokens(row, device),
        "llama_models" => decode_models::tokens(row, device),
        "matmul_float8" => matmul_float8(row, device),
        "resnet" => resnet(row, device),
        "softmax_backward" => backward::softmax(row, device),
        _ => shared::<Gpu>(row, device),
    }
}

/// Of 8-bit floats that are quantised before, the second a weight `[out, in]`; the result is 16 bits.
fn matmul_float8(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let (a, b) = (input::<Gpu, 2>(row, "x", device)?, input::<Gpu, 2>(row, "x", device)?);
    let [a, b] = [a, b].map(|x| float8::quantize(x, Float8::E4M3));
    let weight = b.transpose()?;
    let product = move || a.clone().matmul(weight.clone(), DType::BF16).map(Tensor::<Gpu, 2>::from_any);
    repeated(row, move || product().unwrap_or_else(|error| panic!("{error}")))
}

/// Channels lie together in memory, as in `pytorch.py`.
fn conv_channels_last(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let channels_last = |name: &str| -> Result<Tensor<Gpu, 4>> {
        let [n, c, h, w] = row.sizes(name)?;
        Ok(normal::<Gpu, 4>([n, h, w, c], dtype(row)?, device).permute([0, 3, 1, 2]))
    };
    let (x, weight) = (channels_last("x")?, channels_last("weight")?);
    let options = options(row)?;
    repeated(row, move || conv2d(x.clone(), weight.clone(), None, &options))
}

/// Each waits for the device: the length of the result depends on the numbers.
fn bincount(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let numbers = indices::<Gpu>(row.size("count")?, row.size("places")?, device);
    repeated_all(row, move || vec![numbers.clone().bincount(0).into_any()])
}

/// Training in mixed precision.
fn resnet(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let model = ResNet::<Mixed>::new(row, device)?;
    let images = normal::<Mixed, 4>(row.sizes("x")?, DType::F32, device);
    let labels = Random::new(7).integers(images.dims()[0], row.size("classes")?);
    let optimizer = SgdConfig::new().with_momentum(row.number("momentum")?).init();
    let rate = row.number("learning_rate")?;
    Ok(cross_entropy(model, optimizer, rate, labels, device, move |model| model.forward(images.clone())))
}
