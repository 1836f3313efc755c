//! Losses as modules: goldens of PyTorch, the RNN transducer against all its alignments, derivatives, and messages.

mod messages;
mod pytorch;
mod rnnt;
mod second_order;

use crate::golden::B;
use kiln_backends::Flex;
use kiln_nn::loss::*;
use kiln_nn::{Config, LinearConfig, Module};
use kiln_tensor::transform::{GradcheckOptions, gradcheck};
use kiln_tensor::{Backend, DType, Int, Tensor, TensorData};

type F64 = Vec<f64>;

/// Numbers between -2 and 2 without pattern.
fn spread(count: usize) -> F64 {
    (0..count).map(|i| 2.0 * (1.7 * i as f64 + 0.3 * (i * i % 7) as f64).sin()).collect()
}

fn wide<const D: usize>(data: F64, shape: [usize; D]) -> Tensor<Flex, D> {
    let data = TensorData::new(data, shape).unwrap();
    Tensor::from_data_dtype(data, DType::F64, &Default::default())
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
    assert_eq!(kiln_nn::buffers(&tagger).into_keys().collect::<Vec<_>>(), ["loss.pos_weights"]);
    let x = Tensor::ones([4, 3], &device);
    let y = tagger.loss.forward(tagger.layer.forward(x), Tensor::<B, 2, Int>::ones([4, 2], &device));
    assert!(tagger.layer.weight.grad(&y.backward()).is_some());
    assert!(tagger.to_string().contains("pos_weights") && !tagger.margin.swap);
}
