//! Sizes of the workloads. `torch_cpu.py` has the same.

/// A convolution without bias, of `[batch, channels_in, size, size]`.
pub struct Conv {
    /// Images.
    pub batch: usize,
    /// Channels of the input and of the output.
    pub channels: [usize; 2],
    /// Rows and columns of an image.
    pub size: usize,
    /// Rows and columns of the kernel.
    pub kernel: usize,
    /// Stride of the kernel.
    pub stride: usize,
    /// Zero padding of the image.
    pub padding: usize,
    /// Independent groups of channels.
    pub groups: usize,
}

impl Conv {
    /// The convolution of the workload with that name.
    pub fn named(name: &str) -> Option<Conv> {
        let conv = |batch, channels, size, kernel, stride, padding, groups| {
            Some(Conv { batch, channels, size, kernel, stride, padding, groups })
        };
        match name {
            "conv3x3" => conv(8, [64, 64], 56, 3, 1, 1, 1),
            "conv7x7s2" => conv(1, [3, 64], 224, 7, 2, 3, 1),
            "conv1x1" => conv(8, [256, 64], 56, 1, 1, 0, 1),
            "convdw3x3" => conv(8, [128, 128], 56, 3, 1, 1, 128),
            _ => None,
        }
    }

    /// `[batch, channels, rows, columns]` of the input.
    pub fn input(&self) -> [usize; 4] {
        [self.batch, self.channels[0], self.size, self.size]
    }

    /// `[channels_out, channels_in / groups, rows, columns]` of the kernel.
    pub fn weight(&self) -> [usize; 4] {
        [self.channels[1], self.channels[0] / self.groups, self.kernel, self.kernel]
    }
}

/// The operand shapes of a matmul workload, batch dim first.
pub fn matmul(name: &str) -> Option<([usize; 3], [usize; 3])> {
    let square = |size| Some(([1, size, size], [1, size, size]));
    match name {
        "matmul_512" => square(512),
        "matmul_1024" => square(1024),
        "matmul_2048" => square(2048),
        "bmm_32x128" => Some(([32, 128, 128], [32, 128, 128])),
        "gemv_4096" => Some(([1, 1, 4096], [1, 4096, 4096])),
        "matmul_tall" => Some(([1, 8192, 64], [1, 64, 512])),
        _ => None,
    }
}

/// Input of `maxpool`, with kernel 3, stride 2 and padding 1.
pub const MAXPOOL: [usize; 4] = [8, 64, 112, 112];
/// Elements of `gelu_chain` and `fused_chain`.
pub const CHAIN: usize = 4 << 20;
/// Input of `softmax`, `layernorm` and `cumsum`.
pub const ROWS: [usize; 2] = [4096, 1024];
/// Input of `sum_all`, `sum_dim0`, `transpose_copy` and `rfft`.
pub const SQUARE: [usize; 2] = [4096, 4096];
/// Table of `gather_rows`.
pub const TABLE: [usize; 2] = [32_000, 512];
/// Rows that `gather_rows` takes.
pub const GATHERED: usize = 8192;
/// Elements of `sort_1m`.
pub const SORTED: usize = 1_000_000;
/// Source elements and destination elements of `scatter_add`.
pub const SCATTERED: (usize, usize) = (1_000_000, 10_000);
/// Both inputs of `cdist`.
pub const POINTS: [usize; 2] = [4096, 64];
/// `[batch, heads, length, width]` of `attention_fwd`.
pub const ATTENTION: [usize; 4] = [4, 8, 512, 64];
/// Additions in one repeat of `op_overhead`.
pub const ADDITIONS: usize = 2000;

/// Sizes of `lstm` and `gru`: features and units, layers, sequences, steps.
pub const RECURRENT: (usize, usize, usize, usize) = (512, 2, 32, 128);
/// Sequences, length, width and heads of `mha_causal`.
pub const CAUSAL: (usize, usize, usize, usize) = (4, 512, 512, 8);
/// Sequences, length, width, heads and feed-forward width of `encoder_layer_train_step`.
pub const ENCODER: (usize, usize, usize, usize, usize) = (8, 128, 512, 8, 2048);
/// Number and shape of the tensors of `adamw_1m_in_100_tensors` and `lion`.
pub const TENSORS: (usize, [usize; 2]) = (100, [100, 100]);
/// Number and shape of the matrices of `muon`.
pub const MATRICES: (usize, [usize; 2]) = (8, [512, 512]);

/// Sizes of `mlp_train_step` and `cnn_train_step`.
pub mod classifier {
    /// Examples in a batch.
    pub const BATCH: usize = 64;
    /// Widths of the multi-layer perceptron.
    pub const MLP: [usize; 4] = [784, 512, 512, 10];
    /// Rows and columns of an image.
    pub const IMAGE: usize = 28;
    /// Channels between the convolutions, with kernels of 3 and no padding.
    pub const CHANNELS: [usize; 3] = [1, 8, 16];
    /// Rows and columns after adaptive average pooling.
    pub const POOLED: usize = 8;
    /// Widths of the linear layers after it.
    pub const LINEAR: [usize; 3] = [1024, 512, 10];
    /// Learning rate of Adam.
    pub const LEARNING_RATE: f64 = 1e-3;
}

/// Sizes of `transformer_train_step`: a causal language model.
pub mod transformer {
    /// Sequences in a batch.
    pub const BATCH: usize = 8;
    /// Tokens in a sequence.
    pub const LENGTH: usize = 256;
    /// Vocabulary size.
    pub const VOCABULARY: usize = 8192;
    /// Width of the model.
    pub const WIDTH: usize = 256;
    /// Attention heads.
    pub const HEADS: usize = 8;
    /// Width of the feed-forward layer.
    pub const FEED_FORWARD: usize = 1024;
    /// Pre-norm layers.
    pub const LAYERS: usize = 4;
    /// Learning rate of AdamW.
    pub const LEARNING_RATE: f64 = 3e-4;
    /// Weight decay of AdamW.
    pub const WEIGHT_DECAY: f64 = 0.01;
}
