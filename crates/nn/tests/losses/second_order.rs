//! Second derivatives of losses.

use crate::golden::B;
use crate::losses::{ints, wide};
use kiln_backends::Flex;
use kiln_nn::loss::*;
use kiln_tensor::transform::{GradcheckOptions, grad, gradcheck};
use kiln_tensor::{Autodiff, Tensor, activation};

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
