//! Values and gradients are those of PyTorch.

use crate::golden::*;
use kiln_backends::Flex;
use kiln_nn::Param;
use kiln_nn::loss::*;
use kiln_tensor::{Int, Tensor, activation};

/// Checks a loss of two matrices on each golden of an op.
fn pairs(
    (family, op): (&str, &str),
    [x, target]: [&str; 2],
    loss: impl Fn(&Case, Tensor<B, 2>, Tensor<B, 2>) -> Tensor<B, 1>,
) {
    each_case(family, &[op], |case| {
        let (a, b) = (case.input::<2>(x), case.input::<2>(target));
        let inputs = [(x, any(&a)), (target, any(&b))];
        case.check(loss(case, a, b), &inputs);
    });
}

/// Checks a loss of vectors or matrices `a`, `b` and `c` on each golden of an op.
fn triples<const C: usize, const D: usize>(
    op: &str,
    loss: impl Fn(Tensor<B, D>, Tensor<B, D>, Tensor<B, C>) -> Tensor<B, 1>,
) {
    each_case("method_loss", &[op], |case| {
        let (a, b, c) = (case.input::<D>("a"), case.input::<D>("b"), case.input::<C>("c"));
        let inputs = [("a", any(&a)), ("b", any(&b)), ("c", any(&c))];
        case.check(loss(a, b, c), &inputs);
    });
}

/// Checks a loss of vectors `a` and `b` on each golden of an op.
fn vectors(op: &str, loss: impl Fn(Tensor<B, 1>, Tensor<B, 1>) -> Tensor<B, 1>) {
    each_case("method_loss", &[op], |case| {
        let (a, b) = (case.input::<1>("a"), case.input::<1>("b"));
        let inputs = [("a", any(&a)), ("b", any(&b))];
        case.check(loss(a, b), &inputs);
    });
}

const XT: [&str; 2] = ["x", "target"];
const AB: [&str; 2] = ["a", "b"];

#[test]
fn regression() {
    pairs(("loss", "mse"), XT, |case, x, t| MseLoss::new().forward(x, t, case.reduction()));
    pairs(("loss", "l1"), XT, |case, x, t| L1Loss::new().forward(x, t, case.reduction()));
    pairs(("loss", "mse"), XT, |case, x, t| LpLossConfig::l2().forward(x, t, case.reduction()));
    pairs(("loss", "l1"), XT, |case, x, t| LpLossConfig::l1().forward(x, t, case.reduction()));
    pairs(("loss", "smooth_l1"), XT, |case, x, t| {
        let loss = SmoothL1LossConfig::new().with_beta(case.number("beta")).init();
        loss.forward_with_reduction(x, t, case.reduction())
    });
    pairs(("method_loss", "smooth_l1_loss"), AB, |_, x, t| {
        SmoothL1LossConfig::new().with_beta(0.5).init().forward_with_reduction(x, t, Reduction::BatchMean)
    });
    pairs(("loss", "huber"), XT, |case, x, t| {
        HuberLossConfig::new(case.number("delta")).init().forward(x, t, case.reduction())
    });
}

#[test]
fn likelihoods() {
    pairs(("loss", "kl_div"), XT, |case, x, t| {
        let loss = KlDivLossConfig::new().with_log_target(case.flag("log_target")).init();
        loss.forward(x, t, case.reduction())
    });
    pairs(("method_loss", "kl_div_loss"), AB, |_, x, t| KlDivLoss::default().forward(x, t, Reduction::Auto));
    pairs(("method_loss", "kl_div_loss/log_target"), AB, |_, x, t| {
        KlDivLoss { log_target: true }.forward(x, t, Reduction::Sum)
    });
    pairs(("loss", "poisson_nll"), XT, |case, x, t| {
        let config = PoissonNllLossConfig::new().with_log_input(case.flag("log_input"));
        config.with_full(case.flag("full")).with_eps(case.number("eps")).init().forward(
            x,
            t,
            case.reduction(),
        )
    });
    pairs(("method_loss", "poisson_nll_loss/full"), AB, |_, x, t| {
        PoissonNllLossConfig::new().with_log_input(false).with_full(true).init().forward(
            x,
            t,
            Reduction::None,
        )
    });
    triples::<2, 2>("gaussian_nll_loss", |x, t, variance| {
        GaussianNllLossConfig::new().with_full(true).init().forward(x, t, variance, Reduction::Mean)
    });
}

/// The weights of a golden, as a buffer.
fn weights(case: &Case, name: &str) -> Option<Param<Tensor<B, 1>>> {
    case.has(name).then(|| Param::buffer(case.constant(name)))
}

#[test]
fn binary() {
    each_case("loss", &["bce_with_logits"], |case| {
        if case.has("weight") {
            // A weight of each element is an argument of the function only.
            return;
        }
        with_rank!(case, D => {
            let (x, t) = (case.input::<D>("x"), case.input::<D>("target"));
            let inputs = [("x", any(&x)), ("target", any(&t))];
            let (pos_weights, reduction) = (weights(case, "pos_weight"), case.reduction());
            let simple = pos_weights.is_none();
            let loss = BceWithLogitsLoss::<B> { weights: None, pos_weights, reduction };
            case.check(loss.forward(x.clone(), t.clone()), &inputs);
            if simple {
                let config = BinaryCrossEntropyLossConfig::new().with_logits(true).with_reduction(reduction);
                case.check(config.init(&Default::default()).forward(x, t), &inputs);
            }
        });
    });
    each_case("loss", &["bce"], |case| {
        with_rank!(case, D => {
            let (x, t) = (case.input::<D>("x"), case.input::<D>("target"));
            let config = BinaryCrossEntropyLossConfig::new().with_reduction(case.reduction());
            let y = config.init(&Default::default()).forward(x.clone(), t.clone());
            case.check(y, &[("x", any(&x)), ("target", any(&t))]);
        });
    });
    each_case("method_loss", &["binary_cross_entropy_loss"], |case| {
        let (x, t) = (case.input::<2>("a"), case.constant::<2, kiln_tensor::Float>("b"));
        let mut loss: BinaryCrossEntropyLoss<B> =
            BinaryCrossEntropyLossConfig::new().init(&Default::default());
        loss.weights = weights(case, "c");
        case.check(loss.forward(x.clone(), t), &[("a", any(&x))]);
    });
    pairs(("method_loss", "sigmoid_focal_loss"), AB, |_, x, t| {
        FocalLoss::default().forward(x, t, Reduction::Mean)
    });
    vectors("soft_margin_loss", |x, t| SoftMarginLoss::new().forward(x, t, Reduction::Mean));
    each_case("method_loss", &["multilabel_soft_margin_loss"], |case| {
        let (x, t) = (case.input::<2>("a"), case.constant("b"));
        let loss = MultiLabelSoftMarginLoss::<B> { weights: weights(case, "c") };
        case.check(loss.forward_no_reduction(x.clone(), t), &[("a", any(&x))]);
    });
    pairs(("method_loss", "dice_loss"), AB, |_, x, t| DiceLoss::default().forward_no_reduction(x, t));
}

#[test]
fn classes() {
    each_case("loss", &["nll"], |case| {
        let loss = NllLoss::<B> {
            weights: weights(case, "weight"),
            ignore_index: case.json["attributes"]["ignore_index"].as_i64(),
            reduction: case.reduction(),
        };
        if case.rank("x") == 2 {
            let x = case.input::<2>("x");
            case.check(loss.forward(x.clone(), case.constant::<1, Int>("target")), &[("x", any(&x))]);
        } else {
            let x = case.input::<3>("x");
            case.check(loss.forward(x.clone(), case.constant::<2, Int>("target")), &[("x", any(&x))]);
        }
    });
    each_case("method_loss", &["multi_margin_loss", "multi_margin_loss/p = 1"], |case| {
        let (squared, x) = (case.has("c"), case.input::<2>("a"));
        let (p, margin) = if squared { (2, 0.03) } else { (1, 1.0) };
        let loss = MultiMarginLoss::<B> { p, margin, weights: weights(case, "c") };
        let reduction = if squared { Reduction::Mean } else { Reduction::None };
        case.check(loss.forward(x.clone(), case.constant("b"), reduction), &[("a", any(&x))]);
    });
    each_case("method_loss", &["multilabel_margin_loss"], |case| {
        let x = case.input::<2>("a");
        let y = MultiLabelMarginLoss::new().forward(x.clone(), case.constant("b"), Reduction::Sum);
        case.check(y, &[("a", any(&x))]);
    });
}

#[test]
fn margins_and_embeddings() {
    triples::<1, 1>("margin_ranking_loss", |a, b, t| {
        MarginRankingLossConfig::new().with_margin(0.1).init().forward(a, b, t, Reduction::Mean)
    });
    triples::<1, 1>("margin_ranking_loss/margin 0.5", |a, b, t| {
        MarginRankingLoss { margin: 0.5 }.forward_no_reduction(a, b, t)
    });
    vectors("hinge_embedding_loss", |x, t| HingeEmbeddingLoss::default().forward(x, t, Reduction::Mean));
    triples::<1, 2>("cosine_embedding_loss", |a, b, t| {
        CosineEmbeddingLossConfig::new().with_margin(0.1).init().forward(a, b, t)
    });
    each_case("loss", &["cosine_embedding"], |case| {
        let (a, b) = (case.input::<2>("a"), case.input::<2>("b"));
        let config = CosineEmbeddingLossConfig::new().with_margin(case.number("margin"));
        let loss = config.with_reduction(case.reduction()).init();
        let y = loss.forward(a.clone(), b.clone(), case.constant::<1, Int>("target"));
        case.check(y, &[("a", any(&a)), ("b", any(&b))]);
    });
    triples::<2, 2>("triplet_margin_loss", |a, p, n| {
        TripletMarginLoss::default().forward(a, p, n, Reduction::Mean)
    });
    triples::<2, 2>("triplet_margin_loss/swapped, p = 3", |a, p, n| {
        let config = TripletMarginLossConfig::new().with_margin(5.0).with_p(3.0).with_swap(true);
        config.init().forward_no_reduction(a, p, n)
    });
    triples::<2, 2>("triplet_margin_loss_with", |a, p, n| {
        let manhattan = |a: Tensor<B, 2>, b: Tensor<B, 2>| (a - b).abs().sum_dim(1);
        TripletMarginWithDistanceLoss::default().forward(a, p, n, manhattan, Reduction::Sum)
    });
    pairs(("method_loss", "info_nce_loss"), AB, |_, a, b| {
        InfoNceLossConfig::new().with_temperature(0.5).init().forward(a, b, Reduction::Mean)
    });
}

#[test]
fn ctc() {
    each_case("loss", &["ctc"], |case| {
        let x = case.input::<3>("x");
        let config = CtcLossConfig::new().with_blank(case.number("blank") as usize);
        let loss = config.with_zero_infinity(case.flag("zero_infinity")).init();
        let log = activation::log_softmax(x.clone(), 2);
        let targets = case.constant::<2, Int>("target");
        let (times, lengths) = (case.constant("input_lengths"), case.constant("target_lengths"));
        let y = match case.reduction() {
            Reduction::None => loss.forward(log, targets, times, lengths),
            reduction @ (Reduction::Mean | Reduction::Sum | Reduction::BatchMean | Reduction::Auto) => {
                loss.forward_with_reduction(log, targets, times, lengths, reduction)
            }
        };
        case.check(y, &[("x", any(&x))]);
    });
}

#[test]
fn adaptive_log_softmax_of_a_class_out_of_range_is_an_error() {
    let model = AdaptiveLogSoftmaxWithLossConfig::new(4, 10, vec![2, 6]).init::<Flex>(&Default::default());
    for class in [-1, 10, 100] {
        let (x, target) = (Tensor::ones([1, 4], &Default::default()), Tensor::<Flex, 1, Int>::from([class]));
        assert!(model.forward(x, target).loss.try_into_data().is_err(), "{class}");
    }
}
