//! The workloads of `cargo xtask bench vulkan` in Burn, on its backend `vulkan`, with fusion and autotuning.
//!
//! `bench-burn-gpu` answers the requests of [`bench_protocol`] on standard input.
#![forbid(unsafe_code)]
// The types of wgpu nest deeply.
#![recursion_limit = "256"]

mod language;
mod operations;
mod optimizer;

use bench_protocol::{Peer, Prepared, Refusal, Result, failed, serve, serve_absent, unknown, vulkan};
use burn::tensor::{DType, Device, DeviceKind, Distribution, Tensor};
use std::process::ExitCode;

struct Burn {
    device: Device,
}

impl Peer for Burn {
    fn describe(&self) -> (&'static str, String) {
        ("burn", "0.22 (vulkan)".to_owned())
    }

    fn prepare(&self, workload: &str, _file: &str) -> Result<Prepared> {
        let device = &self.device;
        let rounds = vulkan::rounds(workload);
        if let Some(size) = vulkan::matmul(workload) {
            let dtype = if workload.contains("f16") { DType::F16 } else { DType::F32 };
            return Ok(operations::matmul(size, dtype, device, rounds));
        }
        match workload {
            "gelu_f32_64m" => Ok(operations::gelu(device, rounds)),
            "softmax_f32" => Ok(operations::softmax(device, rounds)),
            "layernorm_f32" => Ok(operations::layernorm(device, rounds)),
            "sum_f32" => Ok(operations::sum(device, rounds)),
            "adamw_268m" => Ok(optimizer::adamw(device)),
            "attention_f32" => Ok(operations::attention_forward(DType::F32, device, rounds)),
            "attention_f16" => Ok(operations::attention_forward(DType::F16, device, rounds)),
            "gpt2_train_step_f32" => Ok(language::train(&device.clone().autodiff())),
            _ => Err(unknown(workload)),
        }
    }
}

fn main() -> ExitCode {
    let device = Device::vulkan(DeviceKind::DefaultDevice);
    // A missing device ends the program here.
    match first(Tensor::<1>::ones([1], &device)) {
        Ok(_) => serve(&Burn { device }, 1),
        Err(Refusal::Unsupported(reason) | Refusal::Failed(reason)) => serve_absent(&reason),
    }
}

/// Standard normal numbers of a dtype.
fn normal<const D: usize>(shape: [usize; D], dtype: DType, device: &Device) -> Tensor<D> {
    Tensor::<D>::random(shape, Distribution::Normal(0.0, 1.0), device).cast(dtype)
}

/// The first element of a result.
fn first<const D: usize>(y: Tensor<D>) -> Result<f64> {
    Ok(y.slice(std::array::from_fn::<_, D, _>(|_| 0..1)).try_into_scalar::<f64>()?)
}

/// Waits until the device has completed all work.
fn wait(device: &Device) -> Result<()> {
    device.sync().map_err(|error| failed(format!("{error:?}")))
}
