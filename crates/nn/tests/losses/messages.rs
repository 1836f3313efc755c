//! Messages of invalid calls name the loss, the shapes and the remedy.

use crate::losses::ints;
use kiln_backends::Flex;
use kiln_nn::loss::*;
use kiln_tensor::Tensor;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Call = Box<dyn FnOnce() -> Tensor<Flex, 1>>;

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
    let cases: Vec<(&[&str], Call)> = vec![
        (
            &["l1", "[2, 3]", "[1, 3]", "reshape or expand"],
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
            &["nll", "[2, 3]", "[4]", "class indices are integers"],
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
