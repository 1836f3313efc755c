//! Sizes of the workloads of `cargo xtask bench gpu`. `torch_gpu.py` has the same.

/// Elements of `gelu_f32` and `gelu_bf16`.
pub const CHAIN: usize = 1 << 28;
/// Input of `softmax`, `layernorm` and their gradients.
pub const ROWS: [usize; 2] = [32_768, 4096];
/// Input of `rfft`.
pub const SIGNALS: [usize; 2] = [4096, 4096];
/// `[batch, heads, length, width]` of `attention` and its gradient.
pub const ATTENTION: [usize; 4] = [4, 16, 4096, 128];
/// Input of `conv3x3`, `[batch, channels, rows, columns]`.
pub const CONV_INPUT: [usize; 4] = [64, 256, 56, 56];
/// Kernel of `conv3x3`, with padding 1.
pub const CONV_WEIGHT: [usize; 4] = [256, 256, 3, 3];
/// Number and shape of the parameters of `adamw`.
pub const ADAMW: (usize, [usize; 2]) = (64, [4096, 4096]);
/// Both inputs of `cdist`.
pub const POINTS: [usize; 2] = [4096, 64];
/// Elements of `bincount`, and number of distinct values.
pub const COUNTED: (usize, usize) = (1_000_000, 1000);
/// Additions in one repeat of `op_overhead`.
pub const ADDITIONS: usize = 2000;

/// The size of the square matrices of a workload such as `matmul_bf16_4096`.
pub fn matmul(workload: &str) -> Option<usize> {
    match workload {
        "matmul_bf16_4096" | "matmul_tf32_4096" | "matmul_e4m3_4096" => Some(4096),
        "matmul_bf16_8192" | "matmul_tf32_8192" | "matmul_e4m3_8192" => Some(8192),
        _ => None,
    }
}

/// Operations per repeat of a workload, which amortize the device synchronization.
pub fn rounds(workload: &str) -> usize {
    match workload {
        "matmul_bf16_4096" | "matmul_e4m3_4096" => 50,
        "rfft" => 100,
        "matmul_tf32_4096" => 20,
        "matmul_bf16_8192" | "matmul_tf32_8192" | "matmul_e4m3_8192" => 5,
        "gelu_f32" | "gelu_bf16" | "softmax" | "softmax_backward" | "layernorm" | "layernorm_backward" => 20,
        "attention" | "attention_backward" | "conv3x3" | "cdist" | "bincount" => 10,
        _ => 1,
    }
}

/// Sizes of `gpt2_train_step`: GPT-2 with 124 million parameters
/// ([Radford et al. 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)).
pub mod gpt2 {
    /// Sequences in a batch.
    pub const BATCH: usize = 16;
    /// Tokens in a sequence.
    pub const LENGTH: usize = 1024;
    /// Vocabulary size, a multiple of 64.
    pub const VOCABULARY: usize = 50_304;
    /// Width of the model.
    pub const WIDTH: usize = 768;
    /// Attention heads.
    pub const HEADS: usize = 12;
    /// Layers.
    pub const LAYERS: usize = 12;
    /// Standard deviation of the initial weights.
    pub const DEVIATION: f64 = 0.02;
    /// Learning rate of AdamW.
    pub const LEARNING_RATE: f64 = 3e-4;
    /// Weight decay of AdamW.
    pub const WEIGHT_DECAY: f64 = 0.1;
}

/// Sizes of `resnet50_train_step`: ResNet-50 ([He et al. 2015](https://arxiv.org/abs/1512.03385)).
pub mod resnet {
    /// Images in a batch, of 3 channels and 224² pixels.
    pub const BATCH: usize = 256;
    /// Classes.
    pub const CLASSES: usize = 1000;
    /// Blocks of each stage.
    pub const BLOCKS: [usize; 4] = [3, 4, 6, 3];
    /// Learning rate of stochastic gradient descent.
    pub const LEARNING_RATE: f64 = 0.1;
    /// Its momentum.
    pub const MOMENTUM: f64 = 0.9;
}

/// Sizes of `llama_decode`: a model of 1.1 billion parameters with the Llama architecture
/// ([Touvron et al. 2023](https://arxiv.org/abs/2302.13971)), as TinyLlama has them.
pub mod llama {
    /// Vocabulary size.
    pub const VOCABULARY: usize = 32_000;
    /// Width of the model.
    pub const WIDTH: usize = 2048;
    /// Attention heads.
    pub const HEADS: usize = 32;
    /// Key and value heads.
    pub const KEY_HEADS: usize = 4;
    /// Width of the gated feed-forward layer.
    pub const FEED_FORWARD: usize = 5632;
    /// Layers.
    pub const LAYERS: usize = 22;
    /// Length of the KV cache.
    pub const CACHE: usize = 1024;
    /// Decoded tokens per repeat, from the middle of the cache on.
    pub const TOKENS: usize = 64;
    /// Base of the rotary embedding's wavelengths.
    pub const ROTARY_BASE: f64 = 10_000.0;
}
