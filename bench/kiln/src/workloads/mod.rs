//! The workloads, each for any backend.

mod attention;
mod classifier;
mod conv;
mod elementwise;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod load;
mod matmul;
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

use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result, failed, unknown};
use kiln::{AnyTensor, Backend, DType, Distribution, Tensor};

/// Creates the inputs of a workload of CPUs; `file` is the input of `safetensors_load`.
pub(crate) fn prepare<B: Backend>(row: &'static Row, file: &str) -> Result<Prepared> {
    let device = &B::Device::default();
    B::seed(device, 1);
    match row.operation {
        "additions_eager" => overhead::eager(row),
        "additions_fused" => overhead::fused::<B>(row, device),
        "bmm" => matmul::prepare::<B, 3>(row, device),
        "cnn" => classifier::cnn::<B>(row, device),
        "conv" => conv::prepare::<B>(row, device),
        "encoder_layer" => modules::encoder_layer::<B>(row, device),
        "fused_chain" => elementwise::fused_chain::<B>(row, device),
        "gru" => modules::gru::<B>(row, device),
        "lion" => optimizers::lion::<B>(row, device),
        "load" => load::prepare::<B>(file, device),
        "lstm" => modules::lstm::<B>(row, device),
        "mha_causal" => modules::causal_attention::<B>(row, device),
        "mlp" => classifier::mlp::<B>(row, device),
        "muon" => optimizers::muon::<B>(row, device),
        "resnet" => resnet::infer::<B>(row, device),
        "scatter_add" => memory::scatter_add::<B>(row, device),
        "sum_dim0" => memory::sum_dim0::<B>(row, device),
        "transformer" => transformer::train::<B>(row, device),
        "transpose_copy" => memory::transpose_copy::<B>(row, device),
        _ => shared::<B>(row, device),
    }
}

/// Creates the inputs of a workload that CPUs and GPUs have.
fn shared<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    match row.operation {
        "adamw" => optimizers::adamw::<B>(row, device),
        "attention" => attention::forward::<B>(row, device),
        "cdist" => rows::cdist::<B>(row, device),
        "cumsum" => rows::cumsum::<B>(row, device),
        "gelu" => elementwise::gelu::<B>(row, device),
        "layernorm" => rows::layernorm::<B>(row, device),
        "matmul" => matmul::prepare::<B, 2>(row, device),
        "max_pool" => conv::max_pool::<B>(row, device),
        "rfft" => rows::rfft::<B>(row, device),
        "softmax" => rows::softmax::<B>(row, device),
        "sort" => rows::sort::<B>(row, device),
        "sum" => memory::sum::<B>(row, device),
        "take" => memory::take::<B>(row, device),
        _ => Err(unknown(row.name)),
    }
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
