//! The workloads, each for any backend.

mod attention;
mod classifier;
mod conv;
mod elementwise;
mod load;
mod matmul;
mod memory;
mod modules;
mod optimizers;
mod order;
mod overhead;
mod resnet;
mod rows;
mod training;
mod transformer;

use bench_protocol::{Prepared, Result, unknown};
use kiln::{Backend, Distribution, Kind, Tensor};

/// Creates the inputs of a workload; `file` is the input of `safetensors_load`.
pub(crate) fn prepare<B: Backend>(workload: &str, file: &str) -> Result<Prepared> {
    let device = B::Device::default();
    B::seed(&device, 1);
    match workload {
        "matmul_512" | "matmul_1024" | "matmul_2048" | "bmm_32x128" | "gemv_4096" | "matmul_tall" => {
            matmul::prepare::<B>(workload, &device)
        }
        "conv3x3" | "conv7x7s2" | "conv1x1" | "convdw3x3" => conv::prepare::<B>(workload, &device),
        "maxpool" => Ok(conv::maxpool::<B>(&device)),
        "gelu_chain" => Ok(elementwise::gelu_chain::<B>(&device)),
        "fused_chain" => Ok(elementwise::fused_chain::<B>(&device)),
        "softmax" => Ok(rows::softmax::<B>(&device)),
        "layernorm" => Ok(rows::layernorm::<B>(&device)),
        "cumsum" => Ok(rows::cumsum::<B>(&device)),
        "sum_all" => Ok(memory::sum_all::<B>(&device)),
        "sum_dim0" => Ok(memory::sum_dim0::<B>(&device)),
        "transpose_copy" => Ok(memory::transpose_copy::<B>(&device)),
        "gather_rows" => Ok(memory::gather_rows::<B>(&device)),
        "scatter_add" => Ok(memory::scatter_add::<B>(&device)),
        "cdist" => Ok(rows::cdist::<B>(&device)),
        "rfft" => Ok(rows::rfft::<B>(&device)),
        "sort_1m" => Ok(order::sort::<B>(&device)),
        "attention_fwd" => Ok(attention::forward::<B>(&device)),
        "op_overhead" => Ok(overhead::eager()),
        "op_overhead_fused" => overhead::fused::<B>(&device),
        "mlp_train_step" => classifier::mlp::<B>(&device),
        "cnn_train_step" => classifier::cnn::<B>(&device),
        "transformer_train_step" => transformer::train::<B>(&device),
        "lstm" => Ok(modules::lstm::<B>(&device)),
        "gru" => Ok(modules::gru::<B>(&device)),
        "mha_causal" => Ok(modules::causal_attention::<B>(&device)),
        "encoder_layer_train_step" => modules::encoder_layer::<B>(&device),
        "adamw_1m_in_100_tensors" => Ok(optimizers::adamw::<B>(&device)),
        "lion" => Ok(optimizers::lion::<B>(&device)),
        "muon" => Ok(optimizers::muon::<B>(&device)),
        "resnet18_infer" => Ok(resnet::infer::<B>(&device)),
        "safetensors_load" => load::prepare::<B>(file, &device),
        _ => Err(unknown(workload)),
    }
}

/// Standard normal numbers.
fn normal<B: Backend, const D: usize>(shape: [usize; D], device: &B::Device) -> Tensor<B, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Reads the first element of a result, which stays alive, so that all of it is computed.
fn first<B: Backend, const D: usize, K: Kind>(y: &Tensor<B, D, K>) -> Result<f64> {
    Ok(y.clone().reshape([y.num_elements()]).slice([0..1]).try_into_scalar::<f64>()?)
}
