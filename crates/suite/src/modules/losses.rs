//! Losses. Targets are constants of their rows.

use super::{ModuleRow, Twin, one, row, t};
use crate::case::Fill;
use crate::methods::{Argument, Method, floats, ints, ints_among, normal, positive};
use kiln_backends::Dyn;
use kiln_nn::loss::*;

const ABSENT: &str = "PyTorch has no such loss; its formula is tested in `f64`";
const KINK: &str = "piecewise linear: the second derivative is 0";
const SIGNS: &[f64] = &[-1.0, 1.0];

fn loss(op: &'static str) -> Twin {
    Twin::Golden("loss", op)
}

fn method(op: &'static str) -> Twin {
    Twin::Golden("method_loss", op)
}

/// Numbers in 0.1 to 0.9.
fn shares(shape: &'static [usize]) -> Argument {
    floats(shape, Fill::Uniform(0.1, 0.9))
}

fn once(method: Method) -> Method {
    method.once(KINK)
}

pub(super) fn rows() -> Vec<ModuleRow> {
    let mut rows = regression();
    rows.extend(likelihood());
    rows.extend(binary());
    rows.extend(classes());
    rows.extend(embeddings());
    rows.extend(sequences());
    rows.extend(images());
    rows
}

/// A row of a loss of predictions and targets with a reduction.
macro_rules! pair {
    ($name:literal, $twin:expr, $build:expr, $predictions:expr, $targets:expr) => {
        row!(
            $name,
            $twin,
            |_| $build,
            |m, x| one(m.forward(t::<2, _>(&x[0]), t(&x[1]), Reduction::Mean)),
            [$predictions, $targets]
        )
    };
}

fn regression() -> Vec<ModuleRow> {
    vec![
        pair!("MseLoss", loss("mse"), MseLoss::new(), normal(&[2, 3]), normal(&[2, 3]).constant()),
        pair!("L1Loss", loss("l1"), L1Loss::new(), normal(&[2, 3]), normal(&[2, 3]).constant()).with(once),
        pair!(
            "LpLoss",
            Twin::None(ABSENT),
            LpLossConfig::new(3.0).init(),
            normal(&[2, 3]),
            normal(&[2, 3]).constant()
        ),
        pair!(
            "HuberLoss",
            loss("huber"),
            HuberLossConfig::new(0.4).init(),
            normal(&[2, 3]),
            normal(&[2, 3]).constant()
        ),
        row!(
            "SmoothL1Loss",
            loss("smooth_l1"),
            |_| SmoothL1LossConfig::new().init(),
            |m, x| one(m.forward_with_reduction(t::<2, _>(&x[0]), t(&x[1]), Reduction::Mean)),
            [normal(&[2, 3]), normal(&[2, 3]).constant()]
        ),
    ]
}

fn likelihood() -> Vec<ModuleRow> {
    vec![
        pair!(
            "KlDivLoss",
            loss("kl_div"),
            KlDivLossConfig::new().init(),
            normal(&[2, 3]),
            shares(&[2, 3]).constant()
        ),
        pair!(
            "PoissonNllLoss",
            loss("poisson_nll"),
            PoissonNllLossConfig::new().init(),
            normal(&[2, 3]),
            positive(&[2, 3]).constant()
        ),
        row!(
            "GaussianNllLoss",
            method("gaussian_nll_loss"),
            |_| GaussianNllLossConfig::new().init(),
            |m, x| one(m.forward(t::<2, _>(&x[0]), t(&x[1]), t(&x[2]), Reduction::Mean)),
            [normal(&[2, 3]), normal(&[2, 3]).constant(), positive(&[2, 3])]
        ),
    ]
}

fn binary() -> Vec<ModuleRow> {
    vec![
        row!(
            "BinaryCrossEntropyLoss",
            loss("bce"),
            |d| BinaryCrossEntropyLossConfig::new().init::<Dyn>(d),
            |m, x| one(m.forward(t::<2, kiln_tensor::Float>(&x[0]), t::<2, kiln_tensor::Float>(&x[1]))),
            [shares(&[2, 3]), shares(&[2, 3]).constant()]
        ),
        row!(
            "BceWithLogitsLoss",
            loss("bce_with_logits"),
            |d| BceWithLogitsLossConfig::new().init::<Dyn>(d),
            |m, x| one(m.forward(t::<2, kiln_tensor::Float>(&x[0]), t::<2, kiln_tensor::Float>(&x[1]))),
            [normal(&[2, 3]), shares(&[2, 3]).constant()]
        ),
        pair!(
            "FocalLoss",
            method("sigmoid_focal_loss"),
            FocalLossConfig::new().init(),
            normal(&[2, 3]),
            shares(&[2, 3]).constant()
        ),
        pair!(
            "SoftMarginLoss",
            method("soft_margin_loss"),
            SoftMarginLoss::new(),
            normal(&[2, 3]),
            floats(&[2, 3], Fill::Among(SIGNS)).constant()
        ),
        row!(
            "MultiLabelSoftMarginLoss",
            method("multilabel_soft_margin_loss"),
            |d| MultiLabelSoftMarginLossConfig::new().init::<Dyn>(d),
            |m, x| one(m.forward(t::<2, _>(&x[0]), t(&x[1]), Reduction::Mean)),
            [normal(&[2, 3]), shares(&[2, 3]).constant()]
        ),
    ]
}

fn classes() -> Vec<ModuleRow> {
    vec![
        row!(
            "CrossEntropyLoss",
            loss("cross_entropy"),
            |d| CrossEntropyLossConfig::new().with_label_smoothing(0.1).init::<Dyn>(d),
            |m, x| one(m.forward(t::<2, _>(&x[0]), t::<1, kiln_tensor::Int>(&x[1]))),
            [normal(&[3, 4]), ints(0, 3, &[3])]
        ),
        row!(
            "NllLoss",
            loss("nll"),
            |d| NllLossConfig::new().init::<Dyn>(d),
            |m, x| one(m.forward(t::<2, _>(&x[0]), t::<1, kiln_tensor::Int>(&x[1]))),
            [normal(&[3, 4]), ints(0, 3, &[3])]
        ),
        row!(
            "MultiMarginLoss",
            method("multi_margin_loss"),
            |d| MultiMarginLossConfig::new().with_p(2).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]), t(&x[1]), Reduction::Mean)),
            [normal(&[3, 4]), ints(0, 3, &[3])]
        ),
        row!(
            "MultiLabelMarginLoss",
            method("multilabel_margin_loss"),
            |_| MultiLabelMarginLoss::new(),
            |m, x| one(m.forward(t(&x[0]), t(&x[1]), Reduction::Mean)),
            [normal(&[2, 4]), ints(-1, 3, &[2, 4])]
        )
        .with(once),
        row!(
            "AdaptiveLogSoftmaxWithLoss",
            Twin::Golden("loss_module", "adaptive_log_softmax"),
            |d| AdaptiveLogSoftmaxWithLossConfig::new(4, 6, vec![2, 4]).with_div_value(2.0).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]), t(&x[1])).loss),
            [normal(&[5, 4]), ints(0, 5, &[5])]
        ),
    ]
}

fn embeddings() -> Vec<ModuleRow> {
    vec![
        row!(
            "CosineEmbeddingLoss",
            loss("cosine_embedding"),
            |_| CosineEmbeddingLossConfig::new().init(),
            |m, x| one(m.forward(t(&x[0]), t(&x[1]), t::<1, kiln_tensor::Int>(&x[2]))),
            [normal(&[3, 4]), normal(&[3, 4]), ints_among(SIGNS, &[3])]
        ),
        pair!(
            "HingeEmbeddingLoss",
            method("hinge_embedding_loss"),
            HingeEmbeddingLossConfig::new().init(),
            normal(&[2, 3]),
            floats(&[2, 3], Fill::Among(SIGNS)).constant()
        )
        .with(once),
        row!(
            "MarginRankingLoss",
            method("margin_ranking_loss"),
            |_| MarginRankingLossConfig::new().init(),
            |m, x| one(m.forward(t::<1, _>(&x[0]), t(&x[1]), t(&x[2]), Reduction::Mean)),
            [normal(&[4]), normal(&[4]), floats(&[4], Fill::Among(SIGNS)).constant()]
        )
        .with(once),
        row!(
            "TripletMarginLoss",
            method("triplet_margin_loss"),
            |_| TripletMarginLossConfig::new().init(),
            |m, x| one(m.forward(t::<2, _>(&x[0]), t(&x[1]), t(&x[2]), Reduction::Mean)),
            [normal(&[3, 4]), normal(&[3, 4]), normal(&[3, 4])]
        ),
        row!(
            "TripletMarginWithDistanceLoss",
            method("triplet_margin_loss_with"),
            |_| TripletMarginWithDistanceLossConfig::new().init(),
            |m, x| {
                let distance = |a: kiln_tensor::Tensor<Dyn, 2>, b: kiln_tensor::Tensor<Dyn, 2>| {
                    (a - b).square().sum_dim(1).squeeze_dim::<1>(1)
                };
                one(m.forward(t::<2, _>(&x[0]), t(&x[1]), t(&x[2]), distance, Reduction::Mean))
            },
            [normal(&[3, 4]), normal(&[3, 4]), normal(&[3, 4])]
        ),
        pair!(
            "InfoNceLoss",
            method("info_nce_loss"),
            InfoNceLossConfig::new().init(),
            normal(&[3, 4]),
            normal(&[3, 4])
        ),
    ]
}

fn sequences() -> Vec<ModuleRow> {
    vec![
        row!(
            "CtcLoss",
            loss("ctc"),
            |_| CtcLossConfig::new().init(),
            |m, x| {
                let log = kiln_tensor::activation::log_softmax(t(&x[0]), 2);
                one(m.forward(log, t::<2, _>(&x[1]), t(&x[2]), t(&x[3])))
            },
            [normal(&[5, 2, 3]), ints(1, 2, &[2, 2]), ints(5, 5, &[2]), ints(2, 2, &[2])]
        ),
        row!(
            "RnntLoss",
            Twin::None(
                "torchaudio is not installed where goldens are made; all alignments are enumerated in `f64`"
            ),
            |_| RnntLossConfig::new().init(),
            |m, x| one(m.forward(t(&x[0]), t(&x[1]), t(&x[2]), t(&x[3]))),
            [normal(&[2, 3, 3, 4]), ints(1, 3, &[2, 2]), ints(3, 3, &[2]), ints(2, 2, &[2])]
        ),
    ]
}

fn images() -> Vec<ModuleRow> {
    vec![
        pair!(
            "DiceLoss",
            method("dice_loss"),
            DiceLossConfig::new().init(),
            shares(&[2, 3]),
            shares(&[2, 3]).constant()
        ),
        row!(
            "GramMatrixLoss",
            Twin::None(ABSENT),
            |_| GramMatrixLoss::new(),
            |m, x| one(m.forward(t(&x[0]), t(&x[1]), Reduction::Mean)),
            [normal(&[1, 2, 2, 2]), normal(&[1, 2, 2, 2]).constant()]
        ),
    ]
}
