//! The loss of a language model with ignored padding.

use kiln as burn;

use burn::backend::Flex;
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::prelude::*;

fn losses(config: &CrossEntropyLossConfig) -> [f32; 2] {
    let device = Default::default();
    let loss: CrossEntropyLoss<Flex> = config.init(&device);
    let logits = Tensor::<Flex, 2>::from_floats([[2.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 1.0]], &device);
    let targets = |classes: [i64; 3]| Tensor::<Flex, 1, Int>::from_data(classes, &device);
    let of = |classes| loss.forward(logits.clone(), targets(classes));
    [of([0, 1, 2]), of([1, 1, 1])].map(|loss| loss.into_scalar::<f32>())
}

#[test]
fn padding_targets_are_ignored_by_the_loss() {
    let row = |logit: f32, others: f32| (logit.exp() + others).ln() - logit;
    let (first, second, third) = (row(2.0, 2.0), row(3.0, 2.0), row(1.0, 2.0));
    let close = |found: f32, expected: f32| assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    close(losses(&CrossEntropyLossConfig::new())[0], (first + second + third) / 3.0);
    close(losses(&CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![0])))[0], (second + third) / 2.0);
    close(losses(&CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![0, 2])))[0], second);
    assert!(losses(&CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![2, 1])))[1].is_nan());
}
