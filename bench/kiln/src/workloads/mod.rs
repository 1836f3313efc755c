//! The workloads, each for any backend.

mod attention;
mod classifier;
mod conv;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod load;
mod memory;
#[cfg(feature = "models")]
pub(crate) mod models;
mod modules;
mod optimizers;
mod overhead;
mod resnet;
mod rows;
mod training;
mod transformer;

use crate::backend::Eager;
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result, failed, unknown};
use kiln::module::max_pool2d;
use kiln::optim::{AdamWConfig, LionConfig, MuonConfig};
use kiln::{AnyTensor, Backend, DType, Distribution, Tensor, activation};
use std::f64::consts::FRAC_1_SQRT_2;

/// Creates the inputs of a workload of CPUs; `file` is the input of `safetensors_load`.
pub(crate) fn prepare<B: Backend>(row: &'static Row, file: &str) -> Result<Prepared> {
    let device = &B::Device::default();
    B::seed(device, 1);
    match row.operation {
        "additions_eager" => overhead::additions::<Eager>(row, &Default::default()),
        "additions_fused" => overhead::fused::<B>(row, device),
        "bmm" => binary::<B, 3>(row, ["a", "b"], device, Tensor::matmul),
        "cnn" => classifier::cnn::<B>(row, device),
        "conv" => conv::prepare::<B>(row, device),
        "encoder_layer" => modules::encoder_layer::<B>(row, device),
        "fused_chain" => memory::fused_chain::<B>(row, device),
        "gru" => modules::gru::<B>(row, device),
        "lion" => optimizers::update::<B>(row, device, LionConfig::new().init()),
        "load" => load::prepare::<B>(file, device),
        "lstm" => modules::lstm::<B>(row, device),
        "mha_causal" => modules::causal_attention::<B>(row, device),
        "mlp" => classifier::mlp::<B>(row, device),
        "muon" => optimizers::update::<B>(row, device, MuonConfig::new().init()),
        "resnet" => resnet::infer::<B>(row, device),
        "scatter_add" => memory::scatter_add::<B>(row, device),
        "sum_dim0" => unary(row, device, |x: Tensor<B, 2>| x.sum_dim(0)),
        "transformer" => transformer::train::<B>(row, device),
        "transpose_copy" => unary(row, device, |x: Tensor<B, 2>| -> Tensor<B, 1> {
            // Flattening a transposed matrix has to copy it.
            let elements = x.num_elements();
            x.transpose().reshape([elements])
        }),
        _ => shared::<B>(row, device),
    }
}

/// Creates the inputs of a workload that CPUs and GPUs have.
fn shared<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    match row.operation {
        "adamw" => optimizers::update::<B>(row, device, AdamWConfig::new().init()),
        "attention" => attention::forward::<B>(row, device),
        // Distances between all rows of two matrices.
        "cdist" => binary::<B, 2>(row, ["x", "x"], device, |x, y| x.cdist(y, 2.0)),
        "cumsum" => {
            let axis = row.size("axis")?;
            unary(row, device, move |x: Tensor<B, 2>| x.cumsum(axis))
        }
        "gelu" => unary(row, device, |x: Tensor<B, 1>| &x * ((&x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5),
        "layernorm" => rows::layernorm::<B>(row, device),
        "matmul" => binary::<B, 2>(row, ["a", "b"], device, Tensor::matmul),
        "max_pool" => {
            let options = conv::window(row)?;
            unary(row, device, move |x: Tensor<B, 4>| max_pool2d(x, &options))
        }
        "rfft" => rows::rfft::<B>(row, device),
        "softmax" => unary(row, device, |x: Tensor<B, 2>| activation::softmax(x, 1)),
        "sort" => rows::sort::<B>(row, device),
        "sum" => unary(row, device, |x: Tensor<B, 2>| x.sum()),
        "take" => memory::take::<B>(row, device),
        _ => Err(unknown(row.name)),
    }
}

/// An operation of one operand.
fn unary<B: Backend, const D: usize, const E: usize>(
    row: &Row,
    device: &B::Device,
    operation: impl Fn(Tensor<B, D>) -> Tensor<B, E> + 'static,
) -> Result<Prepared> {
    let x = input::<B, D>(row, "x", device)?;
    repeated(row, move || operation(x.clone()))
}

/// An operation of two operands, of the shapes that these settings name.
fn binary<B: Backend, const D: usize>(
    row: &Row,
    [a, b]: [&str; 2],
    device: &B::Device,
    operation: impl Fn(Tensor<B, D>, Tensor<B, D>) -> Tensor<B, D> + 'static,
) -> Result<Prepared> {
    let (a, b) = (input::<B, D>(row, a, device)?, input::<B, D>(row, b, device)?);
    repeated(row, move || operation(a.clone(), b.clone()))
}

/// The type of a row's tensors.
fn dtype(row: &Row) -> Result<DType> {
    match row.dtype {
        "f32" | "tf32" => Ok(DType::F32),
        "f16" => Ok(DType::F16),
        "bf16" | "e4m3" => Ok(DType::BF16),
        other => Err(failed(format!("no tensor is of type {other}"))),
    }
}

/// Standard normal numbers of the shape that a setting names.
fn input<B: Backend, const D: usize>(row: &Row, name: &str, device: &B::Device) -> Result<Tensor<B, D>> {
    Ok(normal(row.sizes(name)?, dtype(row)?, device))
}

/// Standard normal numbers of a dtype.
fn normal<B: Backend, const D: usize>(shape: [usize; D], dtype: DType, device: &B::Device) -> Tensor<B, D> {
    Tensor::<B, D>::random(shape, Distribution::Normal(0.0, 1.0), device).cast(dtype)
}

/// Reads the first element of a result, which stays alive, so that all of it is computed.
fn first(y: &AnyTensor) -> Result<f64> {
    let all = y.clone().reshape([y.ty().num_elements()])?;
    Ok(all.slice([0..1])?.into_scalar::<f64>()?)
}

/// An operation that is done `rounds` times in one repeat, and waited for once.
fn repeated<B: Backend, const D: usize>(
    row: &Row,
    mut operation: impl FnMut() -> Tensor<B, D> + 'static,
) -> Result<Prepared> {
    repeated_all(row, move || vec![operation().into_any()])
}

/// The same of an operation with several results, such as gradients. Dead values need not be computed, and recorded ops
/// run at the next [`submit`](kiln::ir::Engine::submit): all results live until then. Those of a single round live until
/// all are read.
fn repeated_all(row: &Row, mut operation: impl FnMut() -> Vec<AnyTensor> + 'static) -> Result<Prepared> {
    let rounds = row.rounds;
    if rounds == 1 {
        return Ok(Prepared::new(move || operation().iter().map(first).sum()));
    }
    let mut submitted = move || {
        let results = operation();
        results[0].stack().engine().submit();
        results
    };
    let repeat = move || {
        let mut last = submitted();
        for _ in 1..rounds {
            // Those before are dropped when these are submitted.
            last = submitted();
        }
        first(&last[0])
    };
    Ok(Prepared::new(repeat).with_operations(rounds))
}
