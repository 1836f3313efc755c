//! The workloads.

mod attention;
mod conv;
mod decode;
mod decode_models;
mod elementwise;
pub(crate) mod kernels;
mod language;
mod matmul;
mod optimizer;
mod points;
mod resnet;
mod rows;
mod training;
mod vulkan;

use crate::device::{Gpu, GpuDevice};
use bench_protocol::{Prepared, Result, gpu, unknown};
use kiln::{AnyTensor, Autocast, Backend, CudaDevice, DType, Distribution, Tensor};

/// The same with gradients.
type Tape = kiln::Autodiff<Gpu>;
/// The same in mixed precision.
type Mixed = kiln::Autodiff<Autocast<Gpu>>;

/// Makes the inputs of the workload with that name.
pub(crate) fn prepare(workload: &str, device: &GpuDevice) -> Result<Prepared> {
    if let Some(prepared) = vulkan::prepare(workload, device) {
        return prepared;
    }
    // As in `torch_gpu.py`.
    CudaDevice::set_tf32(true);
    Gpu::seed(device, 1);
    let rounds = gpu::rounds(workload);
    let size = || gpu::matmul(workload).ok_or_else(|| unknown(workload));
    match workload {
        "matmul_bf16_4096" | "matmul_bf16_8192" => Ok(matmul::prepare(size()?, DType::BF16, device, rounds)),
        "matmul_tf32_4096" | "matmul_tf32_8192" => Ok(matmul::prepare(size()?, DType::F32, device, rounds)),
        "matmul_e4m3_4096" | "matmul_e4m3_8192" => matmul::prepare_float8(size()?, device, rounds),
        "gelu_f32" => Ok(elementwise::gelu(gpu::CHAIN, DType::F32, device, rounds)),
        "gelu_bf16" => Ok(elementwise::gelu(gpu::CHAIN, DType::BF16, device, rounds)),
        "softmax" => Ok(rows::softmax(gpu::ROWS, DType::BF16, device, rounds)),
        "softmax_backward" => Ok(rows::softmax_backward(device, rounds)),
        "layernorm" => Ok(rows::layernorm(gpu::ROWS, DType::BF16, device, rounds)),
        "layernorm_backward" => Ok(rows::layernorm_backward(device, rounds)),
        "rfft" => Ok(rows::rfft(gpu::SIGNALS, device, rounds)),
        "attention" => Ok(attention::forward(gpu::ATTENTION, DType::BF16, device, rounds)),
        "attention_backward" => Ok(attention::backward(gpu::ATTENTION, DType::BF16, device, rounds)),
        "conv3x3" => Ok(conv::forward(device, rounds)),
        "cdist" => Ok(points::cdist(device, rounds)),
        "bincount" => Ok(points::bincount(device, rounds)),
        "adamw" => optimizer::adamw(gpu::ADAMW, device),
        "op_overhead" => Ok(elementwise::additions(device)),
        "gpt2_train_step" => language::train::<Autocast<Gpu>>(gpu::gpt2::BATCH, device),
        "resnet50_train_step" => resnet::train(device),
        "llama_decode" => decode::tokens(device),
        "llama_decode_models" => decode_models::tokens(device),
        _ => Err(unknown(workload)),
    }
}

/// Standard normal numbers of a dtype.
fn normal<B: Backend, const D: usize>(shape: [usize; D], dtype: DType, device: &B::Device) -> Tensor<B, D> {
    Tensor::<B, D>::random(shape, Distribution::Normal(0.0, 1.0), device).cast(dtype)
}

/// The first element of a result, which stays alive while it is read, so that all of it must exist.
fn first(y: &AnyTensor) -> Result<f64> {
    let all = y.clone().reshape([y.ty().num_elements()])?;
    Ok(all.slice([0..1])?.into_scalar::<f64>()?)
}

/// An operation that is done so many times in one repeat, and waited for once.
fn repeated<const D: usize>(
    rounds: usize,
    mut operation: impl FnMut() -> Tensor<Gpu, D> + 'static,
) -> Prepared {
    repeated_all(rounds, move || vec![operation().into_any()])
}

/// The same of an operation with several results, such as gradients. Dead values need not be computed, and recorded ops
/// run at the next [`submit`](kiln::ir::Engine::submit): all results live until then.
fn repeated_all(rounds: usize, mut operation: impl FnMut() -> Vec<AnyTensor> + 'static) -> Prepared {
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
    Prepared::new(repeat).with_operations(rounds)
}

/// The result of an operation, and the gradients of its inputs.
fn with_gradients<const D: usize>(
    y: Tensor<Tape, D>,
    gradient: &Tensor<Gpu, D>,
    inputs: &[AnyTensor],
) -> Vec<AnyTensor> {
    let result = y.clone().inner().into_any();
    let gradients = y.try_backward_from(gradient.clone()).unwrap_or_else(|error| panic!("{error}"));
    let of = |input: &AnyTensor| gradients.get(input).expect("it requires a gradient");
    core::iter::once(result).chain(inputs.iter().map(of)).collect()
}
