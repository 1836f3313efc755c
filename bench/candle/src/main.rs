//! The workloads of `cargo xtask bench cpu` in candle.
//!
//! `RAYON_NUM_THREADS=N bench-candle --threads N` answers the requests of [`bench_protocol`] on standard input. Where candle has
//! a fast operation without a gradient (softmax, layer normalisation), inference uses it and training does not.
#![forbid(unsafe_code)]

mod classifier;
mod operations;
mod resnet;
mod transformer;

use bench_protocol::{Peer, Prepared, Result, serve, unknown};
use candle_core::{DType, Device, Shape, Tensor};
use std::process::ExitCode;

const USAGE: &str = "usage: RAYON_NUM_THREADS=N bench-candle --threads N";

struct Candle;

impl Peer for Candle {
    fn describe(&self) -> (&'static str, String) {
        ("candle", "0.11".to_owned())
    }

    fn prepare(&self, workload: &str, file: &str) -> Result<Prepared> {
        match workload {
            "matmul_512" | "matmul_1024" | "matmul_2048" | "bmm_32x128" | "gemv_4096" | "matmul_tall" => {
                operations::matmul(workload)
            }
            "conv3x3" | "conv7x7s2" | "conv1x1" | "convdw3x3" => operations::conv(workload),
            "maxpool" => operations::maxpool(),
            "gelu_chain" => operations::gelu_chain(),
            "fused_chain" => operations::fused_chain(),
            "softmax" => operations::softmax(),
            "layernorm" => operations::layernorm(),
            "cumsum" => operations::cumsum(),
            "sum_all" => operations::sum_all(),
            "sum_dim0" => operations::sum_dim0(),
            "transpose_copy" => operations::transpose_copy(),
            "gather_rows" => operations::gather_rows(),
            "sort_1m" => operations::sort(),
            "attention_fwd" => operations::attention(),
            "op_overhead" => operations::overhead(),
            "mlp_train_step" => classifier::mlp(),
            "cnn_train_step" => classifier::cnn(),
            "transformer_train_step" => transformer::train(),
            "resnet18_infer" => resnet::infer(),
            "safetensors_load" => Ok(operations::load(file)),
            _ => Err(unknown(workload)),
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--threads", threads] if threads.parse::<usize>().is_ok() => {
            serve(&Candle, threads.parse().unwrap_or(1))
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::FAILURE
        }
    }
}

/// Standard normal numbers.
fn normal(shape: impl Into<Shape>) -> Result<Tensor> {
    Ok(Tensor::randn(0f32, 1f32, shape, &Device::Cpu)?)
}

/// The first element of a result.
fn first(y: &Tensor) -> Result<f64> {
    Ok(y.flatten_all()?.narrow(0, 0, 1)?.to_dtype(DType::F64)?.get(0)?.to_scalar::<f64>()?)
}
