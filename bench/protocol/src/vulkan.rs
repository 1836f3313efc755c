//! Sizes of the workloads of `cargo xtask bench vulkan`. No tensor has more than 1 GiB: graphics APIs bind no more than
//! 2 or 4 GiB at once.

/// Elements of `gelu_f32_64m`.
pub const CHAIN: usize = 1 << 26;
/// Input of `softmax_f32`, `layernorm_f32` and `sum_f32`.
pub const ROWS: [usize; 2] = [16_384, 4096];
/// Number and shape of the parameters of `adamw_268m`.
pub const ADAMW: (usize, [usize; 2]) = (16, [4096, 4096]);
/// `[batch, heads, length, width]` of `attention_f32` and `attention_f16`.
pub const ATTENTION: [usize; 4] = [4, 16, 2048, 128];
/// Sequences in a batch of `gpt2_train_step_f32` and `gpt2_train_step_mixed`; other sizes are those of
/// [`gpt2`](crate::gpu::gpt2).
pub const GPT2_BATCH: usize = 4;

/// The size of the square matrices of a workload such as `matmul_f32_2048`.
pub fn matmul(workload: &str) -> Option<usize> {
    match workload {
        "matmul_f32_2048" | "matmul_f16_2048" => Some(2048),
        "matmul_f32_4096" | "matmul_f16_4096" => Some(4096),
        _ => None,
    }
}

/// Operations per repeat of a workload, which amortize the device synchronization.
pub fn rounds(workload: &str) -> usize {
    match workload {
        "gelu_f32_64m" | "softmax_f32" | "layernorm_f32" | "sum_f32" | "matmul_f16_2048" => 20,
        "matmul_f32_2048" | "matmul_f16_4096" => 10,
        "matmul_f32_4096" | "attention_f32" | "attention_f16" => 4,
        _ => 1,
    }
}
