//! The workloads of models from files, with Kiln's targets.

use super::super::row::{Kind, Must, Row};

/// The model that a workload runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Model {
    /// SmolLM2-135M with its weights in 4 bits, as the package has it.
    SmolLm2Q4,
    /// The same with all matrices in 8 bits, written by `kiln weights quantize`.
    SmolLm2Q8,
    /// all-MiniLM-L6-v2.
    MiniLm,
    /// EfficientNet-Lite0.
    EfficientNet,
    /// A safetensors file of 512 MiB.
    Weights,
}

const fn row(name: &'static str, shape: &'static str, kind: Kind, items: (f64, &'static str)) -> Row {
    Row { name, shape, must: Must::Ratio(1.0), kind, megaflops: 0.0, megabytes: 0.0, items: Some(items) }
}

/// All workloads, in the order they run.
#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    row("smollm2_q4_1_prompt", "135 M parameters, Q4_1, 512 tokens", Kind::Model, (512.0, "tokens")),
    row("smollm2_q4_1_decode", "the same, 16 tokens, then 128 one by one", Kind::Model, (128.0, "tokens")),
    row("smollm2_q8_0_prompt", "135 M parameters, Q8_0, 512 tokens", Kind::Model, (512.0, "tokens")),
    row("smollm2_q8_0_decode", "the same, 16 tokens, then 128 one by one", Kind::Model, (128.0, "tokens")),
    row("minilm_1", "all-MiniLM-L6-v2, 1 × 128 tokens", Kind::Model, (1.0, "sentences")),
    row("minilm_32", "all-MiniLM-L6-v2, 32 × 128 tokens", Kind::Model, (32.0, "sentences")),
    row("efficientnet_lite0", "EfficientNet-Lite0, 1 × 224²", Kind::Model, (1.0, "images")),
    Row { must: Must::Seconds(0.2), ..row("load_500mb", "512 MiB of safetensors, one number of each tensor", Kind::Load, (0.512, "GiB")) },
];

/// Returns the model of a workload.
pub(crate) fn model(row: &Row) -> Model {
    match row.name {
        "smollm2_q4_1_prompt" | "smollm2_q4_1_decode" => Model::SmolLm2Q4,
        "smollm2_q8_0_prompt" | "smollm2_q8_0_decode" => Model::SmolLm2Q8,
        "efficientnet_lite0" => Model::EfficientNet,
        "load_500mb" => Model::Weights,
        _ => Model::MiniLm,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::row::repeated_name;
    use super::*;

    #[test]
    fn names_are_unique_and_each_has_its_model() {
        assert_eq!(repeated_name(ROWS), None);
        let of_minilm = ROWS.iter().filter(|row| model(row) == Model::MiniLm);
        assert!(of_minilm.map(|row| row.name).eq(["minilm_1", "minilm_32"]));
    }
}
