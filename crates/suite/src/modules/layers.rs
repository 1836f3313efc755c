//! Layers with parameters.

use super::{ModuleRow, Twin, one, row, t};
use crate::methods::{ints, normal};
use kiln_backends::Dyn;
use kiln_nn::conv::Conv2dConfig;
use kiln_nn::{BatchNormConfig, EmbeddingConfig, LayerNormConfig, LinearConfig, Module};

pub(super) fn rows() -> Vec<ModuleRow> {
    vec![
        row!(
            "Linear",
            Twin::Golden("matmul", "linear"),
            |d| LinearConfig::new(3, 2).init::<Dyn>(d),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [normal(&[4, 3])]
        ),
        row!(
            "Embedding",
            Twin::Golden("index", "embedding"),
            |d| EmbeddingConfig::new(5, 2).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]))),
            [ints(0, 4, &[2, 3])]
        ),
        row!(
            "Conv2d",
            Twin::Golden("conv", "conv2d"),
            |d| Conv2dConfig::new([2, 3], [2, 2]).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]))),
            [normal(&[1, 2, 3, 4])]
        ),
        row!(
            "LayerNorm",
            Twin::Golden("norm", "layer_norm"),
            |d| LayerNormConfig::new(4).init::<Dyn>(d),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [normal(&[3, 4])]
        ),
        row!(
            "BatchNorm",
            Twin::Golden("norm", "batch_norm"),
            |d| BatchNormConfig::new(2).init::<Dyn>(d).train(),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [normal(&[4, 2])]
        ),
        row!(
            "BatchNorm",
            Twin::Golden("norm", "batch_norm"),
            |d| BatchNormConfig::new(2).init::<Dyn>(d).eval(),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [normal(&[4, 2])]
        )
        .variant("evaluation mode"),
    ]
}
