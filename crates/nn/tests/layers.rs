//! Layer behaviour that the goldens do not cover: shapes, modes, paddings and wrong arguments.

use kiln_backends::{Dyn, Flex};
use kiln_nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig, MseLoss, Reduction};
use kiln_nn::*;
use kiln_tensor::{Autodiff, Backend, Distribution, Int, Tensor};

type B = Autodiff<Flex>;

#[test]
fn linear_keeps_leading_dims() {
    let device = Default::default();
    let layer: Linear<Flex> = LinearConfig::new(4, 2).with_bias(false).init(&device);
    assert!(layer.bias.is_none());
    assert_eq!(layer.forward(Tensor::<Flex, 1>::ones([4], &device)).dims(), [2]);
    assert_eq!(layer.forward(Tensor::<Flex, 3>::ones([2, 3, 4], &device)).dims(), [2, 3, 2]);
    assert_eq!(layer.forward(Tensor::<Flex, 2>::ones([0, 4], &device)).dims(), [0, 2]);
}

#[test]
fn weights_of_linear_layers_stay_within_pytorchs_bounds() {
    let layer: Linear<Flex> = LinearConfig::new(16, 64).init(&Default::default());
    for values in [layer.weight.val().into_data(), layer.bias.unwrap().val().into_data()] {
        let greatest = values.to_vec::<f32>().into_iter().map(f32::abs).fold(0.0, f32::max);
        assert!(greatest <= 0.25 && greatest > 0.2, "{greatest}");
    }
}

#[test]
fn same_padding_keeps_lengths() {
    let device = Default::default();
    for (kernel, stride, dilation) in
        [([3, 3], [1, 1], [1, 1]), ([4, 5], [1, 2], [1, 1]), ([2, 3], [3, 1], [2, 2])]
    {
        let layer: Conv2d<Flex> = Conv2dConfig::new([1, 1], kernel)
            .with_padding(PaddingConfig2d::Same)
            .with_stride(stride)
            .with_dilation(dilation)
            .init(&device);
        let y = layer.forward(Tensor::ones([1, 1, 7, 9], &device));
        assert_eq!(y.dims(), [1, 1, 7usize.div_ceil(stride[0]), 9usize.div_ceil(stride[1])]);
    }
}

#[test]
#[should_panic(expected = "[conv2d] 3 groups do not divide 4 input and 6 output channels")]
fn groups_must_divide_channels() {
    let _: Conv2d<Flex> = Conv2dConfig::new([4, 6], [3, 3]).with_groups(3).init(&Default::default());
}

#[test]
fn dropout_applies_only_in_training() {
    let device = Default::default();
    let dropout = DropoutConfig::new(0.25).init();
    let x = Tensor::<B, 1>::ones([10_000], &device);
    let y = dropout.forward(x.clone()).into_data().to_vec::<f32>();
    let zeros = y.iter().filter(|&&y| y == 0.0).count();
    assert!((2300..2700).contains(&zeros), "{zeros}");
    assert!(y.iter().all(|&y| y == 0.0 || (y - 4.0 / 3.0).abs() < 1e-6));
    let all = dropout.forward(x.inner()).into_data().to_vec::<f32>();
    assert_eq!(all, vec![1.0; 10_000]);
    let none = DropoutConfig::new(1.0).init().forward(Tensor::<B, 1>::ones([4], &device));
    assert_eq!(none.into_data().to_vec::<f32>(), [0.0; 4]);
}

#[test]
#[should_panic(expected = "probability 1.5 is not between 0 and 1")]
fn a_dropout_probability_above_one_panics() {
    DropoutConfig::new(1.5).init();
}

#[test]
fn batch_norm_trains_and_infers() {
    let device = Default::default();
    let layer: BatchNorm<B> = BatchNormConfig::new(3).with_momentum(1.0).init(&device);
    let x = Tensor::<B, 4>::random([4, 3, 5, 5], Distribution::Normal(2.0, 3.0), &device);
    let trained = layer.forward(x.clone());
    let normal = trained.clone().inner();
    assert!(normal.clone().mean_dims([0, 2, 3]).abs().max().into_scalar::<f32>() < 1e-5);
    assert!(((normal.square().mean_dims([0, 2, 3]) - 1.0).abs()).max().into_scalar::<f32>() < 1e-3);
    // With momentum 1 the running statistics are the batch's, up to the correction of the variance: 100 / 99.
    let inferred = layer.valid().forward(x.inner());
    assert!(inferred.all_close(trained.inner() * (0.99f64).sqrt(), Some(1e-3), Some(1e-4)));
    assert!(!layer.running_mean.value().is_tracked());
}

/// With momentum 1, both statistics are those of the last batch.
#[test]
fn concurrent_batch_norm_updates_are_atomic() {
    let device = Default::default();
    let layer: BatchNorm<B> = BatchNormConfig::new(1).with_momentum(1.0).init(&device);
    // Batch `k` has the mean k and the unbiased variance 2 k².
    let batch = |k: f32| Tensor::<B, 2>::from_floats([[0.0], [2.0 * k]], &device);
    for _ in 0..50 {
        std::thread::scope(|scope| {
            for k in 1..=4 {
                let (layer, batch) = (&layer, batch(k as f32));
                scope.spawn(move || {
                    for _ in 0..10 {
                        let _ = layer.forward(batch.clone());
                    }
                });
            }
        });
        let [mean, variance] =
            [&layer.running_mean, &layer.running_var].map(|state| state.value().into_scalar::<f32>());
        assert_eq!(variance, 2.0 * mean * mean);
    }
}

/// Readers do not block during the computation of a new value, and a panic in it keeps the old value.
#[test]
fn running_state_is_readable_during_an_update() {
    let device = Default::default();
    let state = RunningState::<Tensor<B, 1>>::new(Tensor::from_floats([1.0], &device));
    state.update(|value| {
        let seen = std::thread::scope(|scope| scope.spawn(|| state.value().into_scalar::<f32>()).join());
        assert_eq!(seen.unwrap(), 1.0);
        value + 1.0
    });
    let panic = std::panic::AssertUnwindSafe(|| state.update(|_| panic!("on purpose")));
    assert!(std::panic::catch_unwind(panic).is_err());
    state.update(|value| value * 3.0);
    assert_eq!(state.value().into_scalar::<f32>(), 6.0);
}

/// The first and second gradients of a function.
fn slopes(
    x: &Tensor<Flex, 3>,
    f: impl Fn(Tensor<Autodiff<B>, 3>) -> Tensor<Autodiff<B>, 3>,
) -> [Vec<f32>; 2] {
    let below = Tensor::<B, 3>::from_inner(x.clone()).require_grad();
    let above = Tensor::<Autodiff<B>, 3>::from_inner(below.clone()).require_grad();
    let along = above.clone().detach().cos();
    let first = above.grad(&(f(above.clone()) * along).sum().backward()).unwrap();
    let second = below.grad(&(first.clone() * below.clone().detach().sin()).sum().backward()).unwrap();
    [first.into_data().to_vec::<f32>(), second.into_data().to_vec::<f32>()]
}

#[test]
fn gradients_of_batch_norm_match_its_formula() {
    let device = Default::default();
    let x = Tensor::<Flex, 3>::random([4, 2, 3], Distribution::Normal(1.0, 2.0), &device);
    let layer: BatchNorm<Autodiff<B>> = BatchNormConfig::new(2).init(&device);
    let found = slopes(&x, |x| layer.forward(x));
    let expected = slopes(&x, |x| {
        let centered = x.clone() - x.mean_dims([0, 2]);
        let variance = centered.clone().square().mean_dims([0, 2]);
        centered / (variance + 1e-5).sqrt()
    });
    for (found, expected) in found.iter().zip(&expected) {
        assert!(expected.iter().any(|slope| slope.abs() > 1e-2));
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
    }
}

#[test]
#[should_panic(expected = "training needs more than one value per channel")]
fn batch_norm_training_with_one_value_per_channel_panics() {
    let device = Default::default();
    let layer: BatchNorm<B> = BatchNormConfig::new(2).init(&device);
    layer.forward(Tensor::<B, 2>::ones([1, 2], &device));
}

#[test]
#[should_panic(expected = "[batch_norm] expected [batch, 3, ..]: f32[4, 2]")]
fn channels_must_agree() {
    let device = Default::default();
    let layer: BatchNorm<Flex> = BatchNormConfig::new(3).init(&device);
    layer.forward(Tensor::<Flex, 2>::ones([4, 2], &device));
}

#[test]
fn flatten_merges_dims() {
    let x = Tensor::<Flex, 4>::ones([2, 3, 4, 5], &Default::default());
    let y: Tensor<Flex, 2> = Flatten::new(1, 3).forward(x);
    assert_eq!(y.dims(), [2, 60]);
}

#[test]
fn an_embedding_index_out_of_range_is_an_error() {
    let device = Default::default();
    let layer: Embedding<Flex> = EmbeddingConfig::new(4, 2).init(&device);
    let good = Tensor::<Flex, 2, Int>::from_ints([[0, 3]], &device);
    assert_eq!(layer.forward(good).dims(), [1, 2, 2]);
    let bad = Tensor::<Flex, 2, Int>::from_ints([[0, 4]], &device);
    let error = layer.forward(bad).try_into_data().unwrap_err().to_string();
    assert!(error.contains('4'), "{error}");
}

#[test]
fn labels_out_of_range_poison_the_loss() {
    let device = Default::default();
    let loss: CrossEntropyLoss<B> = CrossEntropyLossConfig::new().init(&device);
    let logits = || Tensor::<B, 2>::ones([2, 3], &device).require_grad();
    for label in [3, -1, 1000] {
        let targets = Tensor::<B, 1, Int>::from_ints([0, label], &device);
        let error = loss.forward(logits(), targets).try_into_data().unwrap_err().to_string();
        assert!(error.contains(&label.to_string()), "{error}");
    }
    let good = loss.forward(logits(), Tensor::from_ints([0, 2], &device)).into_scalar::<f32>();
    assert!((good - 3f32.ln()).abs() < 1e-6);
}

#[test]
fn the_mean_loss_without_counted_targets_is_nan() {
    let device = Default::default();
    let loss: CrossEntropyLoss<Flex> =
        CrossEntropyLossConfig::new().with_ignore_index(Some(-1)).init(&device);
    let targets = Tensor::<Flex, 1, Int>::from_ints([-1, -1], &device);
    let mean: f32 = loss.forward(Tensor::<Flex, 2>::ones([2, 3], &device), targets).into_scalar();
    assert!(mean.is_nan());
}

#[test]
#[should_panic(
    expected = "[cross_entropy] logits [batch, classes, ..] and targets [batch, ..] do not suit: f32[2, 3] x i32[3]"
)]
fn there_is_one_target_per_row() {
    let device = Default::default();
    let loss: CrossEntropyLoss<Flex> = CrossEntropyLossConfig::new().init(&device);
    loss.forward(Tensor::<Flex, 2>::ones([2, 3], &device), Tensor::from_ints([0, 1, 2], &device));
}

#[test]
#[should_panic(expected = "[mse] predictions and targets differ in shape: f32[2, 1] x f32[2, 2]")]
fn squared_errors_do_not_broadcast() {
    let device = Default::default();
    let (a, b) = (Tensor::<Flex, 2>::ones([2, 1], &device), Tensor::<Flex, 2>::ones([2, 2], &device));
    MseLoss::new().forward(a, b, Reduction::Mean);
}

#[test]
fn weights_differ_between_draws_and_repeat_by_seed() {
    let device = crate::own_device();
    let draw = || -> Conv1d<Dyn> { Conv1dConfig::new([2, 3], [3]).init(&device) };
    Dyn::seed(&device, 5);
    let (a, b) = (draw().weight.to_data(), draw().weight.to_data());
    Dyn::seed(&device, 5);
    assert_eq!(draw().weight.to_data(), a);
    assert_ne!(a, b);
}
