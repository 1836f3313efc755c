//! The workloads of `bench vulkan`, with their minimum costs and Kiln's targets. Sizes are in `bench/protocol/src/vulkan.rs`.

use super::super::row::{Kind, Must, Row, row};
use Kind::{Contraction, FirstStep, Plain, Training};
use Must::{RatioTo, Seconds};

/// Kiln through CUDA, of whose speed kernels bound by memory must reach a share.
pub(crate) const CUDA: &str = "kiln-cuda";
/// Burn through Vulkan.
pub(crate) const BURN: &str = "burn";

/// The share of Kiln's speed through CUDA, the speed of products in that of Burn, and of training.
const POINTWISE: Must = RatioTo(CUDA, 0.85);
const PRODUCT: Must = RatioTo(BURN, 1.0);
const TRAINING: Must = RatioTo(BURN, 3.0);

/// The workload of [`FIRST_STEPS`].
pub(crate) const FIRST_STEP_OF: &str = "gpt2_train_step_f32";

/// The first step of a new process, with empty caches of kernels and drivers, and with those of the previous process.
#[rustfmt::skip]
pub(crate) const FIRST_STEPS: &[Row] = &[
    row("gpt2_first_step_cold", "GPT-2, empty caches", Seconds(5.0), FirstStep, 0.0, 0.0),
    row("gpt2_first_step_warm", "GPT-2, caches of the process before", Seconds(5.0), FirstStep, 0.0, 0.0),
];

/// All other workloads, in the order they run. Attention is causal: half of the FLOPs count.
#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    row("gelu_f32_64m", "x (erf(x / √2) + 1) / 2, 67 M, f32", POINTWISE, Plain, 0.0, 536.9),
    row("softmax_f32", "[16384, 4096], f32", POINTWISE, Plain, 0.0, 536.9),
    row("layernorm_f32", "[16384, 4096], f32", POINTWISE, Plain, 0.0, 536.9),
    row("sum_f32", "[16384, 4096], f32", POINTWISE, Plain, 0.0, 268.4),
    row("adamw_268m", "268 M parameters, f32", POINTWISE, Plain, 0.0, 7516.2),
    row("matmul_f32_2048", "2048³, f32", PRODUCT, Contraction, 17_179.9, 50.3),
    row("matmul_f32_4096", "4096³, f32", PRODUCT, Contraction, 137_439.0, 201.3),
    row("matmul_f16_2048", "2048³, f16", PRODUCT, Contraction, 17_179.9, 25.2),
    row("matmul_f16_4096", "4096³, f16", PRODUCT, Contraction, 137_439.0, 100.7),
    row("attention_f32", "[4, 16, 2048, 128], causal, f32", PRODUCT, Contraction, 68_719.5, 268.4),
    row("attention_f16", "[4, 16, 2048, 128], causal, f16", PRODUCT, Contraction, 68_719.5, 134.2),
    Row { items: Some((4096.0, "tokens")), ..row("gpt2_train_step_f32", "GPT-2 124 M, 4 × 1024 tokens, AdamW, f32", TRAINING, Training, 0.0, 0.0) },
    Row { items: Some((4096.0, "tokens")), ..row("gpt2_train_step_mixed", "the same, mixed precision, of Kiln alone", TRAINING, Training, 0.0, 0.0) },
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
