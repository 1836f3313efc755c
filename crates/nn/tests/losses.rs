//! Losses as modules: goldens of PyTorch, the RNN transducer against all its alignments, second derivatives, and messages.

mod golden;

use golden::*;
use kiln_backends::Flex;
use kiln_nn::loss::*;
use kiln_nn::{Config, LinearConfig, Module, Param};
use kiln_tensor::transform::{GradcheckOptions, grad, gradcheck};
use kiln_tensor::{AnyTensor, Autodiff, Backend, DType, Int, Tensor, TensorData, activation};
use std::panic::{AssertUnwindSafe, catch_unwind};

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
        if case.has("weight") || case.rank("x") != 2 {
            // A weight of each element is an argument of the function only.
            return;
        }
        let loss = BceWithLogitsLoss::<B> {
            weights: None,
            pos_weights: weights(case, "pos_weight"),
            reduction: case.reduction(),
        };
        let (x, t) = (case.input::<2>("x"), case.input::<2>("target"));
        case.check(loss.forward(x.clone(), t.clone()), &[("x", any(&x)), ("target", any(&t))]);
        if !case.has("pos_weight") {
            let config =
                BinaryCrossEntropyLossConfig::new().with_logits(true).with_reduction(case.reduction());
            let y = config.init(&Default::default()).forward(x.clone(), t.clone());
            case.check(y, &[("x", any(&x)), ("target", any(&t))]);
        }
    });
    pairs(("loss", "bce"), XT, |case, x, t| {
        if case.name() != "bce_mean" {
            return x.flatten(0, 1);
        }
        BinaryCrossEntropyLossConfig::new().init(&Default::default()).forward(x, t)
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
fn adaptive_log_softmax() {
    each_case("loss_module", &["adaptive_log_softmax"], |case| {
        let numbers = |name: &str| -> Vec<usize> {
            let list = case.json["attributes"][name].as_array().unwrap();
            list.iter().map(|number| number.as_u64().unwrap() as usize).collect()
        };
        let x = case.input::<2>("x");
        let config =
            AdaptiveLogSoftmaxWithLossConfig::new(8, case.number("n_classes") as usize, numbers("cutoffs"))
                .with_div_value(case.number("div_value"))
                .with_head_bias(case.has("head.bias"));
        let mut model: AdaptiveLogSoftmaxWithLoss<B> = config.init(&Default::default());
        let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
        assert!(names.iter().all(|name| case.has(name)), "{names:?}");
        for (name, parameter) in model.named_parameters() {
            assert_eq!(*parameter.value.shape(), *case.data(&name).shape(), "{name}");
        }
        model.head.weight = case.param("head.weight");
        model.head.bias = case.optional("head.bias");
        for (cluster, (projection, scores)) in model.tail.iter_mut().enumerate() {
            projection.weight = case.param(&format!("tail.{cluster}.0.weight"));
            scores.weight = case.param(&format!("tail.{cluster}.1.weight"));
        }
        let output = model.forward(x.clone(), case.constant("target"));
        case.compare("loss", output.loss.to_data());
        case.compare("log_prob", model.log_prob(x.clone()).to_data());
        case.compare("predicted", model.predict(x.clone()).to_data());
        let mut inputs = vec![("x", any(&x)), ("head.weight", any(&model.head.weight))];
        inputs.push(("head.bias", any_param(&model.head.bias)));
        let tail: Vec<(String, Option<AnyTensor>)> = model
            .tail
            .iter()
            .enumerate()
            .flat_map(|(cluster, (projection, scores))| {
                let name = |layer| format!("tail.{cluster}.{layer}.weight");
                [(name(0), any(&projection.weight)), (name(1), any(&scores.weight))]
            })
            .collect();
        inputs.extend(tail.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())));
        case.check(output.output, &inputs);
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

// The RNN transducer.

type F64 = Vec<f64>;

/// Numbers between -2 and 2 without pattern.
fn spread(count: usize) -> F64 {
    (0..count).map(|i| 2.0 * (1.7 * i as f64 + 0.3 * (i * i % 7) as f64).sin()).collect()
}

fn wide<const D: usize>(data: F64, shape: [usize; D]) -> Tensor<Flex, D> {
    let data = TensorData::new(data, shape).unwrap();
    Tensor::from_data_dtype(data, DType::F64, &Default::default())
}

fn log_softmax(scores: &[f64]) -> F64 {
    let sum: f64 = scores.iter().map(|x| x.exp()).sum();
    scores.iter().map(|x| x - sum.ln()).collect()
}

/// One example: the log-probabilities `[time][position][class]` of its lattice, its labels and the blank.
struct Lattice<'a> {
    log: Vec<Vec<F64>>,
    labels: &'a [i32],
    blank: usize,
}

impl Lattice<'_> {
    /// Sums the probabilities of all alignments from a cell on, one by one.
    fn paths(&self, time: usize, position: usize, so_far: f64) -> f64 {
        let here = &self.log[time][position];
        let waited = so_far + here[self.blank];
        let (last_time, last) = (time + 1 == self.log.len(), position == self.labels.len());
        let wait = match (last_time, last) {
            (true, true) => waited.exp(),
            (true, false) => 0.0,
            (false, _) => self.paths(time + 1, position, waited),
        };
        let emit = if last {
            0.0
        } else {
            self.paths(time, position + 1, so_far + here[self.labels[position] as usize])
        };
        wait + emit
    }
}

const TIME: usize = 4;
const LABELS: usize = 3;
const CLASSES: usize = 4;
/// `(time steps, labels)` of each example.
const LENGTHS: [(usize, usize); 6] = [(4, 3), (4, 0), (1, 3), (2, 2), (3, 1), (1, 0)];

fn expected_rnnt(scores: &[f64], targets: &[[i32; LABELS]], blank: usize) -> F64 {
    let cell = |example: usize, time: usize, position: usize| {
        let start = ((example * TIME + time) * (LABELS + 1) + position) * CLASSES;
        log_softmax(&scores[start..start + CLASSES])
    };
    let loss = |(example, &(time, labels)): (usize, &(usize, usize))| {
        let row = |t| (0..=labels).map(|u| cell(example, t, u)).collect();
        let lattice =
            Lattice { log: (0..time).map(row).collect(), labels: &targets[example][..labels], blank };
        -lattice.paths(0, 0, 0.0).ln()
    };
    LENGTHS.iter().enumerate().map(loss).collect()
}

fn lengths(of: impl Fn(&(usize, usize)) -> usize) -> Vec<i32> {
    LENGTHS.iter().map(|pair| of(pair) as i32).collect()
}

fn ints<B: Backend, const D: usize>(data: impl Into<TensorData>) -> Tensor<B, D, Int> {
    Tensor::from_data(data, &Default::default())
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    let near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-9 * (1.0 + b.abs()) || a == b);
    assert!(near, "{found:?} instead of {expected:?}");
}

#[test]
fn rnnt_is_the_sum_over_all_alignments() {
    let shape = [LENGTHS.len(), TIME, LABELS + 1, CLASSES];
    let scores = spread(shape.iter().product());
    for (blank, targets) in [(0, [1, 2, 3]), (3, [0, 2, 0]), (1, [3, 3, 3])] {
        let mut rows = [targets; LENGTHS.len()];
        for (example, row) in rows.iter_mut().enumerate() {
            row.rotate_left(example % LABELS);
        }
        let expected = expected_rnnt(&scores, &rows, blank);
        // Padding may be any number.
        for (row, &(_, labels)) in rows.iter_mut().zip(&LENGTHS) {
            row[labels..].fill(-7);
        }
        let (times, labels) = (ints(lengths(|pair| pair.0)), ints(lengths(|pair| pair.1)));
        let logits = wide(scores.clone(), shape);
        let loss = |logits: bool| RnntLossConfig::new().with_blank(blank as i64).with_logits(logits).init();
        let found = loss(true).forward(logits.clone(), ints(rows), times.clone(), labels.clone());
        close(&found.into_data().to_vec::<f64>(), &expected);
        let log = activation::log_softmax(logits.clone(), 3);
        let found = loss(false).forward(log, ints(rows), times.clone(), labels.clone());
        close(&found.into_data().to_vec::<f64>(), &expected);
        let from_end = RnntLoss { blank: blank as i64 - CLASSES as i64, logits: true };
        let found = from_end.forward_with_reduction(logits, ints(rows), times, labels, Reduction::Mean);
        let mean = expected.iter().sum::<f64>() / expected.len() as f64;
        close(&found.into_data().to_vec::<f64>(), &[mean]);
    }
}

#[test]
fn rnnt_gradients_match_differences() {
    let shape = [LENGTHS.len(), TIME, LABELS + 1, CLASSES];
    let logits = wide(spread(shape.iter().product()), shape);
    let rows = [[0, 2, 1]; LENGTHS.len()];
    let loss = |x: Tensor<B, 4>| {
        let (times, labels) = (ints(lengths(|pair| pair.0)), ints(lengths(|pair| pair.1)));
        RnntLoss::default().forward(x, ints(rows), times, labels)
    };
    gradcheck(loss, logits, GradcheckOptions::default()).unwrap();
}

#[test]
fn rnnt_of_impossible_targets_is_infinite() {
    // The label has probability 0 everywhere.
    let log = Tensor::<B, 4>::from([[[[f32::NEG_INFINITY, 0.0], [f32::NEG_INFINITY, 0.0]]]]).require_grad();
    let one = || ints::<B, 1>([1]);
    let loss = RnntLossConfig::new().with_logits(false).init();
    let y = loss.forward(log.clone(), ints([[0]]), one(), one());
    assert_eq!(y.to_data().to_vec::<f32>(), [f32::INFINITY]);
    let gradient = log.grad(&y.backward()).unwrap().into_data().to_vec::<f32>();
    assert!(gradient.iter().all(|x| x.is_finite()), "{gradient:?}");
}

#[test]
fn rnnt_of_invalid_data_is_an_error() {
    let loss = |class: i32, time: i32, labels: i32| {
        let logits = Tensor::<Flex, 4>::zeros([1, 2, 2, 3], &Default::default());
        let y = RnntLoss::default().forward(logits, ints([[class]]), ints([time]), ints([labels]));
        y.try_into_data().map(|data| data.to_vec::<f32>()[0])
    };
    assert!(loss(0, 2, 1).is_ok());
    for (class, time, labels) in [(3, 2, 1), (-1, 2, 1), (0, 0, 1), (0, 3, 1), (0, 2, 2), (0, 2, -1)] {
        let y = loss(class, time, labels);
        assert!(y.is_err(), "class {class}, {time} time steps, {labels} labels: {y:?}");
    }
}

// Losses without a twin.

#[test]
fn gram_matrix_loss_is_that_of_the_paper() {
    let shape = [2, 3, 2, 2];
    let (x, t) = (spread(24), spread(48).split_off(24));
    let gram = |x: &[f64], example: usize, i: usize, j: usize| -> f64 {
        let row = |channel: usize| &x[(example * 3 + channel) * 4..][..4];
        row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum()
    };
    let expected: F64 = (0..2)
        .map(|example| {
            let entries = (0..9).map(|entry| (entry / 3, entry % 3));
            let squares = entries.map(|(i, j)| (gram(&x, example, i, j) - gram(&t, example, i, j)).powi(2));
            squares.sum::<f64>() / (4.0 * 9.0 * 16.0)
        })
        .collect();
    let matrix = kiln_tensor::loss::gram_matrix(wide(x.clone(), shape));
    assert_eq!(matrix.dims(), [2, 3, 3]);
    close(&matrix.into_data().to_vec::<f64>()[9..11], &[gram(&x, 1, 0, 0), gram(&x, 1, 0, 1)]);
    let y = GramMatrixLoss::new().forward_no_reduction(wide(x.clone(), shape), wide(t.clone(), shape));
    close(&y.into_data().to_vec::<f64>(), &expected);
    let loss = |x: Tensor<B, 4>| {
        GramMatrixLoss::new().forward_no_reduction(x.clone(), x.lift(wide(t.clone(), shape)))
    };
    gradcheck(loss, wide(x, shape), GradcheckOptions::default()).unwrap();
}

#[test]
fn powers_of_the_error_have_gradient_0_where_it_is_0() {
    for p in [0.5, 1.0, 1.5, 2.0, 3.0] {
        let x = Tensor::<B, 1>::from([0.0, -4.0, f32::NAN]).require_grad();
        let y = LpLossConfig::new(p).init().forward_no_reduction(x.clone(), x.zeros_like());
        let values = y.to_data().to_vec::<f64>();
        assert!(
            values[0] == 0.0 && (values[1] - 4f64.powf(p)).abs() < 1e-4 && values[2].is_nan(),
            "{values:?}"
        );
        let slopes = x.grad(&y.backward()).unwrap().into_data().to_vec::<f64>();
        let expected = -p * 4f64.powf(p - 1.0);
        assert!(slopes[0] == 0.0 && (slopes[1] - expected).abs() < 1e-4, "p = {p}: {slopes:?}");
    }
}

#[test]
fn means_over_dims() {
    let x = Tensor::<Flex, 3>::from([[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 2.0]]]);
    let y = LpLossConfig::l2().forward_reduce_dims(x.clone(), x.zeros_like(), &[1, 2]);
    assert_eq!((y.dims(), y.to_vec::<f32>()), ([2, 1, 1], vec![7.5, 1.0]));
    let y = SmoothL1Loss::default().forward_reduce_dims(x.clone(), x.zeros_like(), &[2]);
    assert_eq!((y.dims(), y.to_vec::<f32>()), ([2, 2, 1], vec![1.0, 3.0, 0.0, 0.75]));
}

#[test]
fn binary_cross_entropy_with_the_settings_of_burn() {
    let (x, t) = ([0.2f64, 0.9, 0.4, 0.7], [0, 1, 1, 0]);
    let losses = |targets: [f64; 4], weights: [f64; 4]| -> f64 {
        let loss = |i: usize| -weights[i] * (targets[i] * x[i].ln() + (1.0 - targets[i]) * (1.0 - x[i]).ln());
        (0..4).map(loss).sum::<f64>() / 4.0
    };
    let config = BinaryCrossEntropyLossConfig::new;
    let flat = |config: BinaryCrossEntropyLossConfig| {
        let y = config.init(&Default::default()).forward(wide(x.to_vec(), [4]), ints(t));
        y.into_data().to_vec::<f64>()
    };
    let hard = t.map(f64::from);
    close(&flat(config()), &[losses(hard, [1.0; 4])]);
    close(&flat(config().with_weights(Some(vec![3.0, 7.0]))), &[losses(hard, [3.0, 7.0, 7.0, 3.0])]);
    // The smoothing is an f32.
    close(&flat(config().with_smoothing(Some(0.25))), &[losses(hard.map(|t| t * 0.75 + 0.125), [1.0; 4])]);
    let labels =
        config().with_smoothing(Some(0.25)).with_weights(Some(vec![0.5, 2.0])).init(&Default::default());
    let y = labels.forward(wide(x.to_vec(), [2, 2]), ints([[0, 1], [1, 0]])).into_data().to_vec::<f64>();
    close(&y, &[losses(hard.map(|t| t * 0.75 + 0.125), [0.5, 2.0, 0.5, 2.0])]);
}

#[test]
fn forms_of_forward_agree() {
    let x = || wide(spread(6), [2, 3]).abs() * 0.4 + 0.1;
    let t = || wide(spread(12).split_off(6), [2, 3]).abs() * 0.4 + 0.1;
    type Form = (Tensor<Flex, 2>, fn(Tensor<Flex, 2>, Tensor<Flex, 2>, Reduction) -> Tensor<Flex, 1>);
    let forms: [Form; 9] = [
        (MseLoss.forward_no_reduction(x(), t()), |x, t, r| MseLoss.forward(x, t, r)),
        (L1Loss.forward_no_reduction(x(), t()), |x, t, r| L1Loss.forward(x, t, r)),
        (SmoothL1Loss::default().forward(x(), t()), |x, t, r| {
            SmoothL1Loss::default().forward_with_reduction(x, t, r)
        }),
        (HuberLoss::default().forward_residuals(x() - t()), |x, t, r| HuberLoss::default().forward(x, t, r)),
        (PoissonNllLoss::default().forward_no_reduction(x(), t()), |x, t, r| {
            PoissonNllLoss::default().forward(x, t, r)
        }),
        (FocalLoss::default().forward_no_reduction(x(), t()), |x, t, r| {
            FocalLoss::default().forward(x, t, r)
        }),
        (SoftMarginLoss.forward_no_reduction(x(), t()), |x, t, r| SoftMarginLoss.forward(x, t, r)),
        (MarginRankingLoss::default().forward_no_reduction(x(), t(), t()), |x, t, r| {
            MarginRankingLoss::default().forward(x, t.clone(), t, r)
        }),
        (GaussianNllLoss::default().forward_no_reduction(x(), t(), t()), |x, t, r| {
            GaussianNllLoss::default().forward(x, t.clone(), t, r)
        }),
    ];
    for (losses, forward) in forms {
        assert_eq!(losses.dims(), [2, 3]);
        let losses = losses.to_vec::<f64>();
        let reduced = |reduction| forward(x(), t(), reduction).into_data().to_vec::<f64>();
        close(&reduced(Reduction::None), &losses);
        let sum: f64 = losses.iter().sum();
        close(&reduced(Reduction::Sum), &[sum]);
        close(&reduced(Reduction::Mean), &[sum / 6.0]);
        close(&reduced(Reduction::Auto), &[sum / 6.0]);
        close(&reduced(Reduction::BatchMean), &[sum / 2.0]);
    }
}

// Second derivatives.

type Twice = Autodiff<Autodiff<Flex>>;
type Loss = fn(Tensor<Twice, 2>) -> Tensor<Twice, 1>;

/// Constants of the shape of `x`, between 0.1 and 0.9.
fn shares(x: &Tensor<Twice, 2>) -> Tensor<Twice, 2> {
    let shares = (0..8).map(|i| 0.1 + 0.8 * ((i * 5 % 8) as f64) / 7.0).collect();
    x.lift(wide(shares, [2, 4]))
}

/// Losses of `x [2, 4]`, of elements between 0 and 1, which are differentiable twice there.
const LOSSES: &[(&str, Loss)] = &[
    ("mse", |x| MseLoss.forward(x.clone(), shares(&x), Reduction::Sum)),
    ("lp", |x| LpLossConfig::new(2.5).init().forward(x.clone(), shares(&x), Reduction::Sum)),
    ("smooth_l1", |x| SmoothL1Loss::default().forward_with_reduction(x.clone(), shares(&x), Reduction::Sum)),
    ("huber", |x| HuberLossConfig::new(0.3).init().forward(x.clone(), shares(&x), Reduction::Sum)),
    ("kl_div", |x| KlDivLoss::default().forward(shares(&x), x, Reduction::Sum)),
    ("kl_div of logarithms", |x| KlDivLoss { log_target: true }.forward(shares(&x), x, Reduction::Sum)),
    ("poisson_nll", |x| PoissonNllLoss::default().forward(x.clone(), shares(&x), Reduction::Sum)),
    ("poisson_nll of rates", |x| {
        let loss = PoissonNllLossConfig::new().with_log_input(false).init();
        loss.forward(x.clone(), shares(&x), Reduction::Sum)
    }),
    ("gaussian_nll", |x| GaussianNllLoss::default().forward(shares(&x), shares(&x) * 2.0, x, Reduction::Sum)),
    ("binary_cross_entropy", |x| {
        BinaryCrossEntropyLossConfig::new().init(&x.device()).forward(x.clone(), shares(&x))
    }),
    ("binary_cross_entropy_with_logits", |x| {
        let weights = Some(vec![0.5, 1.0, 2.0, 3.0]);
        let config = BceWithLogitsLossConfig::new().with_pos_weights(weights.clone()).with_weights(weights);
        config.init(&x.device()).forward(x.clone(), shares(&x))
    }),
    ("focal", |x| FocalLoss::default().forward(x.clone(), shares(&x), Reduction::Sum)),
    ("soft_margin", |x| SoftMarginLoss.forward(x.clone(), shares(&x), Reduction::Sum)),
    ("multilabel_soft_margin", |x| {
        MultiLabelSoftMarginLossConfig::new().init(&x.device()).forward(x.clone(), shares(&x), Reduction::Sum)
    }),
    ("dice", |x| DiceLoss::default().forward(x.clone(), shares(&x), Reduction::Sum)),
    ("cross_entropy", |x| {
        let loss = CrossEntropyLossConfig::new().with_label_smoothing(0.1).init(&x.device());
        loss.forward(x, ints::<Twice, 1>([2, 0]))
    }),
    ("nll", |x| {
        NllLossConfig::new()
            .init(&x.device())
            .forward(activation::log_softmax(x, 1), ints::<Twice, 1>([2, 0]))
    }),
    ("multi_margin", |x| {
        let loss = MultiMarginLossConfig::new().with_p(2).init(&x.device());
        loss.forward(x, ints([2, 0]), Reduction::Sum)
    }),
    ("cosine_embedding", |x| {
        CosineEmbeddingLoss::new().forward(x.clone(), shares(&x), ints::<Twice, 1>([1, -1]))
    }),
    ("triplet_margin", |x| {
        TripletMarginLoss::default().forward(x.clone(), shares(&x), shares(&x) + 0.5, Reduction::Sum)
    }),
    ("info_nce", |x| {
        InfoNceLossConfig::new().with_temperature(0.5).init().forward(x.clone(), shares(&x), Reduction::Sum)
    }),
    ("ctc", |x| {
        let log = activation::log_softmax(x.reshape([4, 1, 2]), 2);
        CtcLoss::default().forward(log, ints::<Twice, 2>([[1, 1]]), ints([4]), ints([2]))
    }),
    ("rnnt", |x| RnntLoss::default().forward(x.reshape([1, 2, 2, 2]), ints([[0]]), ints([2]), ints([1]))),
    ("gram_matrix", |x| {
        let (x, t) = (x.clone().reshape([1, 2, 2, 2]), shares(&x).reshape([1, 2, 2, 2]));
        GramMatrixLoss.forward(x, t, Reduction::Sum)
    }),
];

#[test]
fn second_derivatives_match_differences_of_gradients() {
    let x = wide((0..8).map(|i| 0.15 + 0.7 * ((i * 3 % 8) as f64) / 7.0).collect(), [2, 4]);
    for (name, loss) in LOSSES {
        let gradient = |x: Tensor<B, 2>| grad(*loss)(x);
        if let Err(error) = gradcheck(gradient, x.clone(), GradcheckOptions::default()) {
            panic!("{name}: {error}");
        }
    }
}

// Settings, and modules that hold a loss.

#[test]
fn settings_have_the_defaults_of_pytorch() {
    let rnnt = RnntLossConfig::new();
    assert_eq!((rnnt.blank, rnnt.logits), (-1, true));
    let focal = FocalLossConfig::new();
    assert_eq!((focal.alpha, focal.gamma), (Some(0.25), 2.0));
    assert_eq!((HuberLoss::default().delta, SmoothL1Loss::default().beta), (1.0, 1.0));
    assert_eq!((HingeEmbeddingLoss::default().margin, MarginRankingLoss::default().margin), (1.0, 0.0));
    let triplet = TripletMarginLossConfig::new();
    assert_eq!((triplet.margin, triplet.p, triplet.eps, triplet.swap), (1.0, 2.0, 1e-6, false));
    let margin = MultiMarginLossConfig::new();
    assert_eq!((margin.p, margin.margin), (1, 1.0));
    let config = BceWithLogitsLossConfig::new().with_reduction(Reduction::Sum).with_weights(Some(vec![0.5]));
    assert_eq!(BceWithLogitsLossConfig::from_json(&config.to_json()).unwrap(), config);
    assert_eq!(RnntLossConfig::from_json("{}").unwrap(), rnnt);
}

#[derive(Debug, Module)]
struct Tagger<B: Backend> {
    layer: kiln_nn::Linear<B>,
    loss: BceWithLogitsLoss<B>,
    margin: TripletMarginLoss,
}

#[test]
fn losses_are_fields_of_modules() {
    let device = Default::default();
    let tagger = Tagger::<B> {
        layer: LinearConfig::new(3, 2).init(&device),
        loss: BceWithLogitsLossConfig::new().with_pos_weights(Some(vec![2.0, 3.0])).init(&device),
        margin: TripletMarginLoss::default(),
    };
    // Weights of a loss are buffers: saved, and not updated.
    assert_eq!(tagger.num_parameters(), 3 * 2 + 2);
    assert_eq!(
        kiln_nn::buffers(&tagger).into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ["loss.pos_weights"]
    );
    let x = Tensor::ones([4, 3], &device);
    let y = tagger.loss.forward(tagger.layer.forward(x), Tensor::<B, 2, Int>::ones([4, 2], &device));
    assert!(tagger.layer.weight.grad(&y.backward()).is_some());
    assert!(tagger.to_string().contains("pos_weights") && tagger.margin.swap == false);
}

// Messages.

fn zeros<const D: usize>(shape: [usize; D]) -> Tensor<Flex, D> {
    Tensor::zeros(shape, &Default::default())
}

fn message(call: impl FnOnce() -> Tensor<Flex, 1>) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("a panic");
    panic
        .downcast_ref::<String>()
        .cloned()
        .unwrap_or_else(|| panic.downcast_ref::<&str>().unwrap().to_string())
}

#[test]
fn invalid_arguments_are_named() {
    let none = Reduction::None;
    let device = Default::default();
    let cases: Vec<(&[&str], Box<dyn FnOnce() -> Tensor<Flex, 1>>)> = vec![
        (
            &["l1", "[2, 3]", "[3]", "reshape or expand"],
            Box::new(move || L1Loss.forward(zeros([2, 3]), zeros([1, 3]), none)),
        ),
        (
            &["lp", "p is -1", "above 0"],
            Box::new(move || LpLossConfig::new(-1.0).init().forward(zeros([2]), zeros([2]), none)),
        ),
        (
            &["huber", "delta is 0", "above 0"],
            Box::new(move || HuberLossConfig::new(0.0).init().forward(zeros([2]), zeros([2]), none)),
        ),
        (
            &["smooth_l1", "beta is -1", "at least 0"],
            Box::new(move || {
                SmoothL1LossConfig::new().with_beta(-1.0).init().forward_with_reduction(
                    zeros([2]),
                    zeros([2]),
                    none,
                )
            }),
        ),
        (
            &["gaussian_nll", "epsilon is 0", "above 0"],
            Box::new(move || {
                GaussianNllLossConfig::new().with_eps(0.0).init().forward(
                    zeros([2]),
                    zeros([2]),
                    zeros([2]),
                    none,
                )
            }),
        ),
        (
            &["binary_cross_entropy", "3 weights", "[4]", "target 0 and of target 1"],
            Box::new(move || {
                let config = BinaryCrossEntropyLossConfig::new().with_weights(Some(vec![1.0; 3]));
                config.init(&device).forward(zeros([4]), zeros([4]))
            }),
        ),
        (
            &["binary_cross_entropy", "label smoothing 2", "between 0 and 1"],
            Box::new(move || {
                let config = BinaryCrossEntropyLossConfig::new().with_smoothing(Some(2.0));
                config.init(&device).forward(zeros([4]), zeros([4]))
            }),
        ),
        (
            &["binary_cross_entropy_with_logits", "[2, 3]", "[1, 2]", "broadcast", "1 in each axis"],
            Box::new(move || {
                let config = BceWithLogitsLossConfig::new().with_pos_weights(Some(vec![1.0; 2]));
                config.init(&device).forward(zeros([2, 3]), zeros([2, 3]))
            }),
        ),
        (
            &["nll", "[2, 3]", "[4]", "targets are integers"],
            Box::new(move || {
                NllLossConfig::new().init(&device).forward(zeros([2, 3]), ints::<Flex, 1>([0; 4]))
            }),
        ),
        (
            &["multi_margin", "the power is 3", "1 or 2"],
            Box::new(move || {
                MultiMarginLossConfig::new().with_p(3).init(&device).forward(
                    zeros([2, 3]),
                    ints([0, 1]),
                    none,
                )
            }),
        ),
        (
            &["cosine_embedding", "targets must be [2]", "[3]", "1 or -1"],
            Box::new(move || CosineEmbeddingLoss::new().forward(zeros([2, 3]), zeros([2, 3]), zeros([3]))),
        ),
        (
            &["triplet_margin", "p = 0", "above 0"],
            Box::new(move || {
                TripletMarginLossConfig::new().with_p(0.0).init().forward(
                    zeros([2]),
                    zeros([2]),
                    zeros([2]),
                    none,
                )
            }),
        ),
        (
            &["info_nce", "temperature is 0", "above 0"],
            Box::new(move || InfoNceLoss { temperature: 0.0 }.forward(zeros([2, 2]), zeros([2, 2]), none)),
        ),
        (
            &["ctc", "blank 7", "4 classes"],
            Box::new(move || {
                CtcLoss { blank: 7, zero_infinity: false }.forward(
                    zeros([2, 1, 4]),
                    ints::<Flex, 2>([[1]]),
                    ints([2]),
                    ints([1]),
                )
            }),
        ),
        (
            &["rnnt", "blank 4", "4 classes", "-1 for the last"],
            Box::new(move || {
                RnntLoss { blank: 4, logits: true }.forward(
                    zeros([1, 2, 2, 4]),
                    ints([[1]]),
                    ints([2]),
                    ints([1]),
                )
            }),
        ),
        (
            &["rnnt", "targets must be [1, 1]", "[1, 2]", "one position more"],
            Box::new(move || {
                RnntLoss::default().forward(zeros([1, 2, 2, 4]), ints([[1, 1]]), ints([2]), ints([1]))
            }),
        ),
        (
            &["rnnt", "lengths must be [1]", "[2]"],
            Box::new(move || {
                RnntLoss::default().forward(zeros([1, 2, 2, 4]), ints([[1]]), ints([2, 2]), ints([1]))
            }),
        ),
        (
            &["gram_matrix", "differ in shape", "[1, 2, 2, 2]"],
            Box::new(move || GramMatrixLoss.forward(zeros([1, 2, 2, 2]), zeros([1, 2, 2, 3]), none)),
        ),
        (
            &["adaptive_log_softmax", "[4, 2]", "for 10 classes", "increasing"],
            Box::new(move || {
                let model = AdaptiveLogSoftmaxWithLossConfig::new(4, 10, vec![4, 2]).init::<Flex>(&device);
                model.forward(zeros([1, 4]), ints([0])).loss
            }),
        ),
        (
            &["adaptive_log_softmax", "[1, 4]", "[2]", "one class for each input"],
            Box::new(move || {
                let model = AdaptiveLogSoftmaxWithLossConfig::new(4, 10, vec![4]).init::<Flex>(&device);
                model.forward(zeros([1, 4]), ints([0, 1])).loss
            }),
        ),
    ];
    for (parts, call) in cases {
        let message = message(call);
        for part in parts {
            assert!(message.contains(part), "{part:?} is not in: {message}");
        }
    }
}
