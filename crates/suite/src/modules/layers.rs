//! Linear layers, embeddings, norms and shapes.

use super::{ModuleRow, Twin, one, row, t};
use crate::methods::{ints, normal};
use kiln_backends::Dyn;
use kiln_nn::*;
use kiln_tensor::Tensor;

const PARTS: &str = "a composition of modules with rows";
const VIEW: &str = "a view of the input";

fn layer(op: &'static str) -> Twin {
    Twin::Golden("nn_layer", op)
}

fn norm(op: &'static str) -> Twin {
    Twin::Golden("norm", op)
}

pub(super) fn rows() -> Vec<ModuleRow> {
    let mut rows = tables();
    rows.extend(norms());
    rows.extend(shapes());
    rows
}

fn tables() -> Vec<ModuleRow> {
    vec![
        row!(
            "Linear",
            Twin::Golden("matmul", "linear"),
            |d| LinearConfig::new(3, 2).init::<Dyn>(d),
            2,
            normal(&[4, 3])
        ),
        row!(
            "Bilinear",
            layer("bilinear"),
            |d| BilinearConfig::new(3, 2, 4).init::<Dyn>(d),
            |m, x| one(m.forward(t::<2, _>(&x[0]), t(&x[1]))),
            [normal(&[2, 3]), normal(&[2, 2])]
        ),
        row!(
            "Embedding",
            Twin::Golden("index", "embedding"),
            |d| EmbeddingConfig::new(5, 2).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]))),
            [ints(0, 4, &[2, 3])]
        ),
        row!(
            "EmbeddingBag",
            layer("embedding_bag"),
            |d| EmbeddingBagConfig::new(5, 2).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]))),
            [ints(0, 4, &[2, 3])]
        ),
        row!("Identity", Twin::None(VIEW), |_| Identity::new(), 2, normal(&[2, 3])),
        row!(
            "CosineSimilarity",
            layer("cosine_similarity"),
            |_| CosineSimilarityConfig::new().init(),
            |m, x| one::<1, _>(m.forward(t::<2, _>(&x[0]), t(&x[1]))),
            [normal(&[2, 3]), normal(&[2, 3])]
        ),
        row!(
            "PairwiseDistance",
            layer("pairwise_distance"),
            |_| PairwiseDistanceConfig::new().init(),
            |m, x| one::<1, _>(m.forward(t::<2, _>(&x[0]), t(&x[1]))),
            [normal(&[2, 3]), normal(&[2, 3])]
        ),
    ]
}

fn norms() -> Vec<ModuleRow> {
    vec![
        row!("LayerNorm", norm("layer_norm"), |d| LayerNormConfig::new(4).init::<Dyn>(d), 2, normal(&[3, 4])),
        row!("RmsNorm", norm("rms_norm"), |d| RmsNormConfig::new(4).init::<Dyn>(d), 2, normal(&[3, 4])),
        row!(
            "GroupNorm",
            norm("group_norm"),
            |d| GroupNormConfig::new(2, 4).init::<Dyn>(d),
            3,
            normal(&[2, 4, 3])
        ),
        row!(
            "BatchNorm",
            norm("batch_norm"),
            |d| BatchNormConfig::new(2).init::<Dyn>(d).train(),
            2,
            normal(&[4, 2])
        ),
        row!(
            "BatchNorm",
            norm("batch_norm"),
            |d| BatchNormConfig::new(2).init::<Dyn>(d).eval(),
            2,
            normal(&[4, 2])
        )
        .variant("evaluation mode"),
        row!(
            "SyncBatchNorm",
            Twin::None("a group of one process computes `BatchNorm`"),
            |d| { SyncBatchNormConfig::new(2).init::<Dyn>(d).train() },
            2,
            normal(&[4, 2])
        ),
        row!(
            "InstanceNorm",
            norm("instance_norm"),
            |d| InstanceNormConfig::new(2).init::<Dyn>(d),
            3,
            normal(&[2, 2, 4])
        ),
        row!(
            "LocalResponseNorm",
            norm("local_response_norm"),
            |_| LocalResponseNormConfig::new(3).init(),
            3,
            normal(&[1, 4, 2])
        ),
        row!(
            "Normalization",
            Twin::None(PARTS),
            |d| NormalizationConfig::from(LayerNormConfig::new(4)).init::<Dyn>(d),
            2,
            normal(&[3, 4])
        ),
    ]
}

fn shapes() -> Vec<ModuleRow> {
    vec![
        row!("Flatten", Twin::None(VIEW), |_| Flatten::new(1, 2), 3, normal(&[2, 3, 2])),
        row!(
            "Unflatten",
            Twin::None(VIEW),
            |_| Unflatten::new(1, [2, 3]),
            |m, x| {
                let y: Tensor<Dyn, 3> = m.forward(t::<2, _>(&x[0]));
                one(y)
            },
            [normal(&[2, 6])]
        ),
    ]
}
