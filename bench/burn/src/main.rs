//! The workloads of `cargo xtask bench cpu` in Burn, on its backend `flex`.
//!
//! `RAYON_NUM_THREADS=N bench-burn --threads N` answers the requests of [`bench_protocol`] on standard input.
#![forbid(unsafe_code)]

mod classifier;
mod load;
mod operations;
mod resnet;
mod transformer;

use bench_protocol::{Peer, Prepared, Result, serve, unknown};
use burn::tensor::{Device, Distribution, Tensor};
use std::process::ExitCode;

const USAGE: &str = "usage: RAYON_NUM_THREADS=N bench-burn --threads N";

struct Burn;

impl Peer for Burn {
    fn describe(&self) -> (&'static str, String) {
        ("burn", "0.22 (flex)".to_owned())
    }

    fn prepare(&self, workload: &str, file: &str) -> Result<Prepared> {
        let device = Device::flex();
        match workload {
            "matmul_512" | "matmul_1024" | "matmul_2048" | "bmm_32x128" | "gemv_4096" | "matmul_tall" => {
                operations::matmul(workload, &device)
            }
            "conv3x3" | "conv7x7s2" | "conv1x1" | "convdw3x3" => operations::conv(workload, &device),
            "maxpool" => Ok(operations::maxpool(&device)),
            "gelu_chain" => Ok(operations::gelu_chain(&device)),
            "fused_chain" => Ok(operations::fused_chain(&device)),
            "softmax" => Ok(operations::softmax(&device)),
            "layernorm" => Ok(operations::layernorm(&device)),
            "cumsum" => Ok(operations::cumsum(&device)),
            "sum_all" => Ok(operations::sum_all(&device)),
            "sum_dim0" => Ok(operations::sum_dim0(&device)),
            "transpose_copy" => Ok(operations::transpose_copy(&device)),
            "gather_rows" => Ok(operations::gather_rows(&device)),
            "sort_1m" => Ok(operations::sort(&device)),
            "attention_fwd" => Ok(operations::attention_forward(&device)),
            "op_overhead" => Ok(operations::overhead(&device)),
            "mlp_train_step" => Ok(classifier::mlp(&device.autodiff())),
            "cnn_train_step" => Ok(classifier::cnn(&device.autodiff())),
            "transformer_train_step" => Ok(transformer::train(&device.autodiff())),
            "resnet18_infer" => Ok(resnet::infer(&device)),
            "safetensors_load" => Ok(load::prepare(file, device)),
            _ => Err(unknown(workload)),
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--threads", threads] if threads.parse::<usize>().is_ok() => {
            serve(&Burn, threads.parse().unwrap_or(1))
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::FAILURE
        }
    }
}

/// Standard normal numbers.
fn normal<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// The first element of a result.
fn first<const D: usize>(y: Tensor<D>) -> Result<f64> {
    Ok(y.slice(std::array::from_fn::<_, D, _>(|_| 0..1)).try_into_scalar::<f64>()?)
}
