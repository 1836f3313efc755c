//! The workloads of models from files, with Kiln's targets.

use std::borrow::Borrow;

use super::super::row::{Kind, Must, Row};

/// A workload with the model that it runs.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) row: Row,
    pub(crate) model: Model,
}

impl Borrow<Row> for Workload {
    fn borrow(&self) -> &Row {
        &self.row
    }
}

/// A model, or the file of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Model {
    /// SmolLM2-135M with its weights in 4 bits, as the package has it.
    SmolLm2Q4,
    /// The same with all matrices in 8 bits.
    SmolLm2Q8,
    /// all-MiniLM-L6-v2.
    MiniLm,
    /// EfficientNet-Lite0.
    EfficientNet,
    /// A safetensors file of 512 MiB.
    Weights,
}

const fn workload(
    model: Model,
    name: &'static str,
    shape: &'static str,
    items: (f64, &'static str),
) -> Workload {
    let (must, kind) = match model {
        Model::SmolLm2Q4 | Model::SmolLm2Q8 | Model::MiniLm | Model::EfficientNet => {
            (Must::Ratio(1.0), Kind::Model)
        }
        Model::Weights => (Must::Seconds(0.2), Kind::Load),
    };
    Workload {
        row: Row { name, shape, must, kind, megaflops: 0.0, megabytes: 0.0, items: Some(items) },
        model,
    }
}

/// All workloads, in the order they run.
#[rustfmt::skip]
pub(crate) const WORKLOADS: &[Workload] = &[
    workload(Model::SmolLm2Q4, "smollm2_q4_1_prompt", "135 M parameters, Q4_1, 512 tokens", (512.0, "tokens")),
    workload(Model::SmolLm2Q4, "smollm2_q4_1_decode", "the same, 16 tokens, then 128 one by one", (128.0, "tokens")),
    workload(Model::SmolLm2Q8, "smollm2_q8_0_prompt", "135 M parameters, Q8_0, 512 tokens", (512.0, "tokens")),
    workload(Model::SmolLm2Q8, "smollm2_q8_0_decode", "the same, 16 tokens, then 128 one by one", (128.0, "tokens")),
    workload(Model::MiniLm, "minilm_1", "all-MiniLM-L6-v2, 1 × 128 tokens", (1.0, "sentences")),
    workload(Model::MiniLm, "minilm_32", "all-MiniLM-L6-v2, 32 × 128 tokens", (32.0, "sentences")),
    workload(Model::EfficientNet, "efficientnet_lite0", "EfficientNet-Lite0, 1 × 224²", (1.0, "images")),
    workload(Model::Weights, "load_500mb", "512 MiB of safetensors, loaded and summed", (0.5, "GiB")),
];

#[cfg(test)]
mod tests {
    use super::super::super::row::repeated_name;
    use super::*;

    #[test]
    fn names_are_unique() {
        assert_eq!(repeated_name(WORKLOADS), None);
    }
}
