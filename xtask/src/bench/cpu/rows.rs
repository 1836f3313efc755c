//! The CPU workloads, with their minimum costs and Kiln's targets.

use super::super::row::{self, Kind, Must, Row};

const fn row(
    name: &'static str,
    shape: &'static str,
    must: f64,
    kind: Kind,
    megaflops: f64,
    megabytes: f64,
) -> Row {
    row::row(name, shape, Must::Ratio(must), kind, megaflops, megabytes)
}

use Kind::{Contraction, Load, Overhead, Plain, Training};

/// All workloads, in the order they run.
#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    row("matmul_512", "512³", 1.0, Contraction, 268.4, 3.1),
    row("matmul_1024", "1024³", 1.0, Contraction, 2147.5, 12.6),
    row("matmul_2048", "2048³", 1.0, Contraction, 17179.9, 50.3),
    row("bmm_32x128", "32 × 128³", 1.0, Contraction, 134.2, 6.3),
    row("gemv_4096", "[1, 4096] · [4096, 4096]", 1.0, Contraction, 33.6, 67.1),
    row("matmul_tall", "[8192, 64] · [64, 512]", 1.0, Contraction, 536.9, 19.0),
    row("conv3x3", "N8, 64→64, 56², p1", 1.0, Contraction, 1849.7, 13.0),
    row("conv7x7s2", "N1, 3→64, 224², s2 p3", 1.0, Contraction, 236.0, 3.9),
    row("conv1x1", "N8, 256→64, 56²", 1.0, Contraction, 822.1, 32.2),
    row("convdw3x3", "N8, C128, 56², p1", 1.0, Contraction, 57.8, 25.7),
    row("maxpool", "N8, C64, 112², k3 s2 p1", 2.0, Plain, 0.0, 32.1),
    row("gelu_chain", "x (erf(x / √2) + 1) / 2, 4 M", 1.0, Plain, 0.0, 33.6),
    row("fused_chain", "exp(tanh(a b + c) d - a), 4 M", 1.0, Plain, 0.0, 83.9),
    row("softmax", "[4096, 1024]", 1.0, Plain, 0.0, 33.6),
    row("layernorm", "[4096, 1024]", 1.0, Plain, 0.0, 33.6),
    row("sum_all", "[4096, 4096]", 1.0, Plain, 0.0, 67.1),
    row("sum_dim0", "[4096, 4096]", 1.0, Plain, 0.0, 67.1),
    row("transpose_copy", "[4096, 4096]", 1.5, Plain, 0.0, 134.2),
    row("gather_rows", "8192 of [32000, 512]", 1.0, Plain, 0.0, 33.6),
    row("scatter_add", "1 M into 10,000, f32", 0.8, Plain, 0.0, 8.0),
    row("cdist", "[4096, 64]², p = 2", 0.8, Contraction, 2147.5, 69.2),
    row("rfft", "rows of [4096, 4096]", 0.8, Plain, 0.0, 134.3),
    row("sort_1m", "1 M, values and indices", 2.0, Plain, 0.0, 0.0),
    row("cumsum", "[4096, 1024]", 1.0, Plain, 0.0, 33.6),
    row("attention_fwd", "[4, 8, 512, 64]", 1.1, Contraction, 2147.5, 16.8),
    Row { must: Must::Nanoseconds(80.0), ..row("op_overhead", "chained additions on [1]", 0.0, Overhead, 0.0, 0.0) },
    row("mlp_train_step", "batch 64, 784-512-512-10, Adam", 1.1, Training, 0.0, 0.0),
    row("cnn_train_step", "batch 64 of 28², two convolutions, 1024-512-10, Adam", 1.2, Training, 0.0, 0.0),
    row("transformer_train_step", "4 layers of 256, 8 × 256 tokens of 8192, AdamW", 1.25, Training, 0.0, 0.0),
    row("lstm", "2 layers of 512, 32 × 128 steps", 1.0, Contraction, 34359.7, 0.0),
    row("gru", "2 layers of 512, 32 × 128 steps", 1.0, Contraction, 25769.8, 0.0),
    row("mha_causal", "[4, 512, 512], 8 heads", 1.0, Contraction, 6442.5, 0.0),
    row("encoder_layer_train_step", "[8, 128, 512], 8 heads, feed-forward 2048, AdamW", 1.0, Training, 0.0, 0.0),
    row("adamw_1m_in_100_tensors", "one step, 100 of [100, 100]", 1.0, Plain, 0.0, 28.0),
    row("lion", "one step, 100 of [100, 100]", 1.0, Plain, 0.0, 20.0),
    row("muon", "one step, 8 of [512, 512]", 1.0, Contraction, 32212.3, 0.0),
    row("resnet18_infer", "batch 1, 224²", 1.1, Plain, 3628.1, 0.0),
    row("safetensors_load", "512 MiB, loaded and summed", 1.0, Load, 0.0, 536.9),
];

#[cfg(test)]
mod tests {
    use super::super::super::row::{repeated_name, select};
    use super::*;

    #[test]
    fn workloads_are_chosen_by_name_in_their_own_order() {
        assert_eq!(select(ROWS, &[]).unwrap().len(), ROWS.len());
        let chosen: Vec<&str> =
            select(ROWS, &["softmax", "matmul_512"]).unwrap().iter().map(|row| row.name).collect();
        assert_eq!(chosen, ["matmul_512", "softmax"]);
        let error = select(ROWS, &["matmul"]).unwrap_err();
        assert!(error.contains("`matmul`") && error.contains("matmul_512"), "{error}");
    }

    #[test]
    fn names_are_unique() {
        assert_eq!(repeated_name(ROWS), None);
    }
}
