//! The GPU workloads, with their minimum costs and Kiln's targets.

use super::super::row::{Kind, Must, Row, row};
use Kind::{Contraction, FirstStep, Overhead, Plain, Training};
use Must::{Nanoseconds, Ratio, RatioTo, Seconds};

/// The workload of [`FIRST_STEPS`].
pub(crate) const FIRST_STEP_OF: &str = "gpt2_train_step";

/// The first step of a new process, with an empty kernel cache on disk and with the cache of the previous run.
#[rustfmt::skip]
pub(crate) const FIRST_STEPS: &[Row] = &[
    row("gpt2_first_step_cold", "GPT-2, empty cache on disk", Seconds(10.0), FirstStep, 0.0, 0.0),
    row("gpt2_first_step_warm", "GPT-2, cache on disk", Seconds(2.0), FirstStep, 0.0, 0.0),
];

/// All other workloads, in the order they run. Attention is causal: half of the FLOPs count, and 3.5 times as many with
/// gradients. Bytes of gradients include operands and results of both passes.
#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    row("matmul_bf16_4096", "4096³, bf16", Ratio(0.98), Contraction, 137_439.0, 100.7),
    row("matmul_bf16_8192", "8192³, bf16", Ratio(0.98), Contraction, 1_099_511.6, 402.7),
    row("matmul_tf32_4096", "4096³, tf32", Ratio(0.98), Contraction, 137_439.0, 201.3),
    row("matmul_tf32_8192", "8192³, tf32", Ratio(0.98), Contraction, 1_099_511.6, 805.3),
    row("matmul_e4m3_4096", "4096³, e4m3 to bf16", Ratio(0.98), Contraction, 137_439.0, 67.1),
    row("matmul_e4m3_8192", "8192³, e4m3 to bf16", Ratio(0.98), Contraction, 1_099_511.6, 268.4),
    row("gelu_f32", "x (erf(x / √2) + 1) / 2, 268 M, f32", Ratio(1.0), Plain, 0.0, 2147.5),
    row("gelu_bf16", "x (erf(x / √2) + 1) / 2, 268 M, bf16", Ratio(1.0), Plain, 0.0, 1073.7),
    row("softmax", "[32768, 4096], bf16", Ratio(1.0), Plain, 0.0, 536.9),
    row("softmax_backward", "[32768, 4096], bf16, forward and backward", Ratio(1.0), Plain, 0.0, 1342.2),
    row("layernorm", "[32768, 4096], bf16", Ratio(1.0), Plain, 0.0, 536.9),
    row("layernorm_backward", "[32768, 4096], bf16, forward and backward", Ratio(1.0), Plain, 0.0, 1342.2),
    row("rfft", "rows of [4096, 4096], f32", Ratio(0.8), Plain, 0.0, 134.3),
    row("attention", "[4, 16, 4096, 128], causal, bf16", Ratio(1.0), Contraction, 274_877.9, 268.4),
    row("attention_backward", "the same, forward and backward", Ratio(1.0), Contraction, 962_072.7, 805.3),
    row("conv3x3", "N64, 256→256, 56², p1, bf16", Ratio(0.95), Contraction, 236_760.1, 206.7),
    row("cdist", "[4096, 64]², p = 2, f32", Ratio(0.8), Contraction, 2147.5, 69.2),
    row("bincount", "1 M into 1000", Ratio(0.8), Plain, 0.0, 4.0),
    row("adamw", "1074 M parameters, f32", Ratio(1.0), Plain, 0.0, 30_064.8),
    row("op_overhead", "chained additions on [1]", Nanoseconds(1000.0), Overhead, 0.0, 0.0),
    Row { items: Some((16_384.0, "tokens")), ..row("gpt2_train_step", "GPT-2 124 M, 16 × 1024 tokens, AdamW, mixed", RatioTo("torch", 1.0), Training, 0.0, 0.0) },
    Row { items: Some((256.0, "images")), ..row("resnet50_train_step", "ResNet-50, 256 × 224², SGD, mixed", RatioTo("torch", 1.0), Training, 0.0, 0.0) },
    Row { items: Some((1.0, "tokens")), ..row("llama_decode", "1.1 G parameters, batch 1, cache of 1024, bf16", Ratio(1.0), Plain, 0.0, 2200.0) },
];

#[cfg(test)]
mod tests {
    use super::super::super::row::repeated_name;
    use super::*;

    #[test]
    fn names_are_unique() {
        assert_eq!(repeated_name(ROWS), None);
        assert!(ROWS.iter().any(|row| row.name == FIRST_STEP_OF));
    }
}
