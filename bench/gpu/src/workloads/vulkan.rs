//! The workloads of `cargo xtask bench vulkan`, which run on every device.

use super::{Gpu, GpuDevice, attention, elementwise, language, matmul, optimizer, rows};
use bench_protocol::vulkan::{ADAMW, ATTENTION, CHAIN, GPT2_BATCH, ROWS};
use bench_protocol::{Prepared, Result, vulkan};
use kiln::{Autocast, Backend, CudaDevice, DType};

/// Makes the inputs of the workload with that name; `None` if it is none of these.
pub(crate) fn prepare(workload: &str, device: &GpuDevice) -> Option<Result<Prepared>> {
    // Vulkan has no TF32.
    let exact = || {
        CudaDevice::set_tf32(false);
        Gpu::seed(device, 1);
    };
    let rounds = vulkan::rounds(workload);
    if let Some(size) = vulkan::matmul(workload) {
        let dtype = if workload.contains("f16") { DType::F16 } else { DType::F32 };
        exact();
        return Some(Ok(matmul::prepare(size, dtype, device, rounds)));
    }
    let make: fn(&GpuDevice, usize) -> Result<Prepared> = match workload {
        "gelu_f32_64m" => |device, rounds| Ok(elementwise::gelu(CHAIN, DType::F32, device, rounds)),
        "softmax_f32" => |device, rounds| Ok(rows::softmax(ROWS, DType::F32, device, rounds)),
        "layernorm_f32" => |device, rounds| Ok(rows::layernorm(ROWS, DType::F32, device, rounds)),
        "sum_f32" => |device, rounds| Ok(rows::sum(ROWS, DType::F32, device, rounds)),
        "adamw_268m" => |device, _| optimizer::adamw(ADAMW, device),
        "attention_f32" => |device, rounds| Ok(attention::forward(ATTENTION, DType::F32, device, rounds)),
        "attention_f16" => |device, rounds| Ok(attention::forward(ATTENTION, DType::F16, device, rounds)),
        "gpt2_train_step_f32" => |device, _| language::train::<Gpu>(GPT2_BATCH, device),
        "gpt2_train_step_mixed" => |device, _| language::train::<Autocast<Gpu>>(GPT2_BATCH, device),
        _ => return None,
    };
    exact();
    Some(make(device, rounds))
}
