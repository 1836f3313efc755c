//! The workloads of `cargo xtask bench cpu` in candle.
//!
//! `RAYON_NUM_THREADS=N bench-candle --threads N` answers the requests of [`bench_protocol`] on standard input. Where candle has
//! a fast operation without a gradient (softmax, layer normalisation), inference uses it and training does not.
#![forbid(unsafe_code)]

mod classifier;
mod operations;
mod resnet;
mod transformer;

use bench_protocol::workloads::Row;
use bench_protocol::{Peer, Prepared, Result, serve_threads, unknown};
use candle_core::{DType, Device, Shape, Tensor};
use operations::unary;
use std::f64::consts::FRAC_1_SQRT_2;
use std::process::ExitCode;

struct Candle;

impl Peer for Candle {
    fn describe(&self) -> (&'static str, String) {
        ("candle", "0.11".to_owned())
    }

    fn prepare(&self, row: &'static Row, file: &str) -> Result<Prepared> {
        match row.operation {
            "additions_eager" => operations::overhead(row),
            "attention" => operations::attention(row),
            "bmm" | "matmul" => operations::matmul(row),
            "cnn" => classifier::cnn(row),
            "conv" => operations::conv(row),
            "cumsum" => {
                let axis = row.size("axis")?;
                unary::<2>(row, move |x| x.cumsum(axis))
            }
            "fused_chain" => operations::fused_chain(row),
            "gelu" => unary::<1>(row, |x| (x * ((x * FRAC_1_SQRT_2)?.erf()? + 1.0)?)? * 0.5),
            "layernorm" => operations::layernorm(row),
            "load" => Ok(operations::load(file)),
            "max_pool" => operations::max_pool(row),
            "mlp" => classifier::mlp(row),
            "resnet" => resnet::infer(row),
            "softmax" => unary::<2>(row, candle_nn::ops::softmax_last_dim),
            "sort" => operations::sort(row),
            "sum" => unary::<2>(row, Tensor::sum_all),
            "sum_dim0" => unary::<2>(row, |x| x.sum(0)),
            "take" => operations::take(row),
            "transformer" => transformer::train(row),
            "transpose_copy" => unary::<2>(row, |x| x.t()?.contiguous()),
            _ => Err(unknown(row.name)),
        }
    }
}

fn main() -> ExitCode {
    serve_threads(&Candle, "bench-candle")
}

/// Standard normal numbers of the shape that a setting names.
fn input<const D: usize>(row: &Row, name: &str) -> Result<Tensor> {
    normal(&row.sizes::<D>(name)?[..])
}

/// Standard normal numbers.
fn normal(shape: impl Into<Shape>) -> Result<Tensor> {
    Ok(Tensor::randn(0f32, 1f32, shape, &Device::Cpu)?)
}

/// The first element of a result.
fn first(y: &Tensor) -> Result<f64> {
    Ok(y.flatten_all()?.narrow(0, 0, 1)?.to_dtype(DType::F64)?.get(0)?.to_scalar::<f64>()?)
}
