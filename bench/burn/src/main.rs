//! The workloads of `cargo xtask bench cpu` in Burn, on its backend `flex`, and with the feature `vulkan` those of
//! `bench vulkan`, on its backend `vulkan`, with fusion and autotuning.
//!
//! `RAYON_NUM_THREADS=N bench-burn --threads N`, or `bench-burn --device vulkan`, answers the requests of
//! [`bench_protocol`] on standard input.
#![forbid(unsafe_code)]
// The types of wgpu nest deeply.
#![recursion_limit = "256"]

#[cfg(feature = "cpu")]
mod classifier;
#[cfg(feature = "cpu")]
mod load;
mod operations;
#[cfg(feature = "vulkan")]
mod optimizer;
#[cfg(feature = "cpu")]
mod resnet;
mod training;
mod transformer;

use bench_protocol::workloads::Row;
use bench_protocol::{Peer, Prepared, Result, failed, unknown};
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{DType, Device, Distribution, Tensor, activation};
use operations::unary;
use std::f64::consts::FRAC_1_SQRT_2;
use std::process::ExitCode;

/// Burn on one device, with the name of its backend.
struct Burn {
    backend: &'static str,
    device: Device,
    benches: &'static [&'static str],
}

impl Peer for Burn {
    fn describe(&self) -> (&'static str, String) {
        ("burn", format!("0.22 ({})", self.backend))
    }

    fn benches(&self) -> &'static [&'static str] {
        self.benches
    }

    #[cfg_attr(not(feature = "cpu"), expect(unused_variables, reason = "no workload of GPUs reads a file"))]
    fn prepare(&self, row: &'static Row, file: &str) -> Result<Prepared> {
        let device = &self.device;
        match row.operation {
            "additions_eager" => operations::overhead(row, device),
            "attention" => operations::attention_forward(row, device),
            "bmm" => operations::matmul::<3>(row, device),
            "conv" => operations::conv(row, device),
            "cumsum" => {
                let axis = row.size("axis")?;
                unary(row, device, move |x: Tensor<2>| x.cumsum(axis))
            }
            "fused_chain" => operations::fused_chain(row, device),
            "gelu" => unary(row, device, |x: Tensor<1>| x.clone() * ((x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5),
            "layernorm" => operations::layernorm(row, device),
            "matmul" => operations::matmul::<2>(row, device),
            "max_pool" => {
                let padding = row.size("padding")?;
                let options = MaxPoolOptions {
                    stride: [row.size("stride")?; 2],
                    padding: [(padding, padding); 2],
                    ..MaxPoolOptions::new([row.size("kernel")?; 2])
                };
                unary(row, device, move |x: Tensor<4>| max_pool2d(x, options.clone()))
            }
            "softmax" => unary(row, device, |x: Tensor<2>| activation::softmax(x, 1)),
            "sort" => operations::sort(row, device),
            "sum" => unary(row, device, |x: Tensor<2>| x.sum()),
            "sum_dim0" => unary(row, device, |x: Tensor<2>| x.sum_dim(0)),
            "take" => operations::take(row, device),
            "transpose_copy" => unary(row, device, |x: Tensor<2>| -> Tensor<1> {
                // Flattening a transposed matrix has to copy it.
                let [rows, columns] = x.dims();
                x.transpose().reshape([rows * columns])
            }),
            "transformer" => transformer::train(row, &device.clone().autodiff()),
            "gpt2" => transformer::gpt2(row, &device.clone().autodiff()),
            #[cfg(feature = "cpu")]
            "mlp" => classifier::mlp(row, &device.clone().autodiff()),
            #[cfg(feature = "cpu")]
            "cnn" => classifier::cnn(row, &device.clone().autodiff()),
            #[cfg(feature = "cpu")]
            "resnet" => resnet::infer(row, device),
            #[cfg(feature = "cpu")]
            "load" => load::prepare(row, file, device.clone()),
            #[cfg(feature = "vulkan")]
            "adamw" => optimizer::adamw(row, device),
            _ => Err(unknown(row.name)),
        }
    }
}

fn main() -> ExitCode {
    #[cfg(feature = "vulkan")]
    if std::env::args().skip(1).eq(["--device", "vulkan"]) {
        let device = Device::vulkan(burn::tensor::DeviceKind::DefaultDevice);
        // A missing device ends the program here.
        return match first(Tensor::<1>::ones([1], &device)) {
            Ok(_) => {
                let benches = bench_protocol::workloads::ON_GPU;
                bench_protocol::serve(&Burn { backend: "vulkan", device, benches }, 1)
            }
            Err(refusal) => bench_protocol::serve_absent(&refusal.reason()),
        };
    }
    #[cfg(feature = "cpu")]
    return bench_protocol::serve_threads(
        &Burn { backend: "flex", device: Device::flex(), benches: bench_protocol::workloads::ON_CPU },
        "bench-burn",
    );
    #[cfg(not(feature = "cpu"))]
    bench_protocol::serve_absent("it is built without the feature cpu; --device vulkan is the other device")
}

/// Standard normal numbers of the shape that a setting names, of the row's type.
fn input<const D: usize>(row: &Row, name: &str, device: &Device) -> Result<Tensor<D>> {
    let dtype = if row.dtype == "f16" { DType::F16 } else { DType::F32 };
    Ok(normal(row.sizes(name)?, device).cast(dtype))
}

/// Standard normal numbers.
fn normal<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// The first element of a result.
fn first<const D: usize>(y: Tensor<D>) -> Result<f64> {
    Ok(y.slice(std::array::from_fn::<_, D, _>(|_| 0..1)).try_into_scalar::<f64>()?)
}

/// Waits until the device has completed all work.
fn wait(device: &Device) -> Result<()> {
    device.sync().map_err(|error| failed(format!("{error:?}")))
}
