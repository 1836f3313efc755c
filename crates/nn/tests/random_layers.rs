//! Layers that are random in training: statistics, modes and wrong settings.

use kiln_backends::Flex;
use kiln_nn::*;
use kiln_tensor::{Autodiff, Backend, DType, Distribution, Tensor};

type B = Autodiff<Flex>;

fn ones<const D: usize>(shape: [usize; D]) -> Tensor<B, D> {
    Tensor::ones(shape, &Default::default())
}

fn values<const D: usize>(x: Tensor<B, D>) -> Vec<f32> {
    x.into_data().to_vec()
}

/// The fraction of elements equal to a number.
fn fraction(values: &[f32], number: f32) -> f64 {
    values.iter().filter(|&&value| value == number).count() as f64 / values.len() as f64
}

/// Mean and standard deviation.
fn moments(values: &[f32]) -> (f64, f64) {
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
    let square = values.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean, square.sqrt())
}

/// Asserts that each chunk has one value, 0 or `kept`, and that about a quarter are 0.
fn check_chunks(values: &[f32], length: usize, kept: f32) {
    let firsts: Vec<f32> = values.chunks_exact(length).map(|chunk| chunk[0]).collect();
    for chunk in values.chunks_exact(length) {
        assert!(chunk.iter().all(|&x| x == chunk[0]) && (chunk[0] == 0.0 || (chunk[0] - kept).abs() < 1e-6));
    }
    let zeros = fraction(&firsts, 0.0);
    assert!((zeros - 0.25).abs() < 0.03, "{zeros}");
}

#[test]
fn channel_dropout_drops_whole_channels() {
    let kept = 4.0 / 3.0;
    check_chunks(&values(Dropout1dConfig::new(0.25).init().forward(ones([50, 60, 4]))), 4, kept);
    check_chunks(&values(Dropout2dConfig::new(0.25).init().forward(ones([50, 60, 2, 3]))), 6, kept);
    check_chunks(&values(Dropout3dConfig::new(0.25).init().forward(ones([50, 60, 2, 1, 3]))), 6, kept);
}

/// 8 and 11 bits cannot represent these probabilities.
#[test]
fn probabilities_hold_in_16_bits() {
    const MANY: usize = 1 << 20;
    for (dtype, prob) in [(DType::BF16, 0.001), (DType::F16, 0.0002)] {
        let check = |name: &str, dropped: usize| {
            let expected = MANY as f64 * prob;
            let limit = 5.0 * (expected * (1.0 - prob)).sqrt();
            assert!((dropped as f64 - expected).abs() < limit, "{name} in {dtype}: {dropped} of {expected}");
        };
        let x = ones([MANY]).cast(dtype);
        let zeros = |x: Vec<f32>| x.into_iter().filter(|x| *x == 0.0).count();
        check("dropout", zeros(values(DropoutConfig::new(prob).init().forward(x.clone()))));
        let alpha = values(AlphaDropoutConfig::new(prob).init().forward(x.clone()));
        check("alpha dropout", alpha.into_iter().filter(|x| *x < 0.0).count());
        let rows = x.reshape([1024, 1024]);
        let by_feature = values(FeatureAlphaDropoutConfig::new(prob).init().forward(rows.clone()));
        check("feature alpha dropout", by_feature.into_iter().filter(|x| *x < 0.0).count());
        let planes = rows.clone().reshape([1024, 1024, 1]);
        check("dropout1d", zeros(values(Dropout1dConfig::new(prob).init().forward(planes))));
        let examples = rows.reshape([MANY, 1]);
        check("drop path", zeros(values(DropPathConfig::new(prob).init().forward(examples.clone()))));
        check("bernoulli", zeros(values(examples.random_like(Distribution::Bernoulli(1.0 - prob)))));
    }
}

/// Products are rounded once. The factor itself, 1 / 0.9, is 1.1094 in bf16 and 1.1113 in f16.
#[test]
fn dropout_in_16_bits_keeps_the_mean() {
    for (dtype, most) in [(DType::BF16, 3e-4), (DType::F16, 5e-5)] {
        let x = Tensor::<B, 2>::random([1 << 20, 1], Distribution::Uniform(1.0, 2.0), &Default::default());
        let x = x.cast(dtype);
        let before = values(x.clone());
        let results =
            [DropoutConfig::new(0.1).init().forward(x.clone()), DropPathConfig::new(0.1).init().forward(x)];
        for y in results {
            assert_eq!(y.dtype(), dtype);
            let after = values(y);
            let kept = before.iter().zip(&after).filter(|(_, y)| **y != 0.0);
            let sums = kept.fold((0.0, 0.0), |(a, b), (x, y)| (a + f64::from(*x), b + f64::from(*y)));
            let error = sums.1 / sums.0 * 0.9 - 1.0;
            assert!(error.abs() < most, "{dtype}: {error}");
        }
    }
}

#[test]
fn drop_path_drops_whole_examples() {
    let layer = DropPathConfig::new(0.25).init();
    check_chunks(&values(layer.forward(ones([3000, 2, 3]))), 6, 4.0 / 3.0);
    let layer = DropPathConfig::new(0.25).with_scale_by_keep(false).init();
    check_chunks(&values(layer.forward(ones([3000, 4]))), 4, 1.0);
}

#[test]
fn alpha_dropout_keeps_mean_and_variance() {
    let device = Default::default();
    for (prob, tolerance) in [(0.2, 0.03), (0.6, 0.05)] {
        let x = Tensor::<B, 2>::random([400, 100], Distribution::Normal(0.0, 1.0), &device);
        let dropped = values(AlphaDropoutConfig::new(prob).init().forward(x.clone()));
        let by_feature = values(FeatureAlphaDropoutConfig::new(prob).init().forward(x));
        for values in [dropped, by_feature] {
            let (mean, deviation) = moments(&values);
            assert!(mean.abs() < tolerance && (deviation - 1.0).abs() < tolerance, "{mean} {deviation}");
        }
    }
}

#[test]
fn feature_alpha_dropout_drops_whole_channels() {
    let y = values(FeatureAlphaDropoutConfig::new(0.5).init().forward(ones([40, 50, 4])));
    assert!(y.chunks_exact(4).all(|channel| channel.iter().all(|&x| x == channel[0])));
    let firsts: Vec<f32> = y.chunks_exact(4).map(|channel| channel[0]).collect();
    let low = firsts.iter().copied().fold(f32::INFINITY, f32::min);
    assert!((fraction(&firsts, low) - 0.5).abs() < 0.05);
    // PyTorch's value for a dropped element: a (-alpha) + b, with a = (p (1 - p) alpha² + 1 - p)^(-1/2).
    let (p, alpha) = (0.5f64, 1.758_099_340_847_376_7);
    let a = ((1.0 - p) * (1.0 + p * alpha * alpha)).powf(-0.5);
    assert!((f64::from(low) - (-alpha * a + alpha * a * p)).abs() < 1e-6);
}

#[test]
fn gaussian_noise_has_its_standard_deviation() {
    let (mean, deviation) = moments(&values(GaussianNoiseConfig::new(0.5).init().forward(ones([20_000]))));
    assert!((mean - 1.0).abs() < 0.02 && (deviation - 0.5).abs() < 0.02, "{mean} {deviation}");
}

#[test]
fn random_slopes_fill_their_range() {
    let layer = RReluConfig::new().with_lower(0.2).with_upper(0.6).init();
    let slopes: Vec<f32> = values(layer.forward(-ones([10_000]))).into_iter().map(|y| -y).collect();
    assert!(slopes.iter().all(|slope| (0.2..0.6).contains(slope)));
    let (mean, deviation) = moments(&slopes);
    assert!((mean - 0.4).abs() < 0.01 && (deviation - 0.4 / 12f64.sqrt()).abs() < 0.01);
}

#[test]
fn fractional_pools_are_random() {
    let device = Default::default();
    let x = Tensor::<Flex, 4>::random([4, 8, 9, 9], Distribution::Normal(0.0, 1.0), &device);
    let layer = FractionalMaxPool2dConfig::new([2, 2]).with_output_ratio([0.6, 0.5]).init();
    let (a, b) = (layer.forward(x.clone()), layer.forward(x));
    assert_eq!(a.dims(), [4, 8, 5, 4]);
    assert_ne!(a.into_data(), b.into_data());
}

#[test]
fn fractional_pools_return_the_places_of_their_maxima() {
    let x = Tensor::<Flex, 4>::random([2, 3, 9, 8], Distribution::Normal(0.0, 1.0), &Default::default());
    let layer = FractionalMaxPool2dConfig::new([3, 2]).with_output_size([4, 5]).init();
    let (y, indices) = layer.forward_with_indices(x.clone());
    let picked = x.reshape([2, 3, 72]).gather(2, indices.reshape([2, 3, 20]));
    assert_eq!(picked.into_data(), y.reshape([2, 3, 20]).into_data());
}

/// Asserts that a layer is the identity in evaluation mode and on a backend without automatic differentiation, and not
/// in training mode.
fn check_modes<M>(name: &str, layer: M, shape: [usize; 3])
where
    M: ForwardModule<Tensor<B, 3>, Output = Tensor<B, 3>>
        + ForwardModule<Tensor<Flex, 3>, Output = Tensor<Flex, 3>>
        + Clone,
{
    let plain = || Tensor::<Flex, 3>::ones(shape, &Default::default());
    let expected = plain().into_data();
    assert_eq!(layer.forward(plain()).into_data(), expected, "{name} without automatic differentiation");
    assert_ne!(layer.forward(ones(shape)).into_data(), expected, "{name} with it");
    let evaluated = layer.clone().eval();
    assert_eq!(evaluated.forward(ones(shape)).into_data(), expected, "{name} in evaluation mode");
    assert_ne!(layer.train().forward(plain()).into_data(), expected, "{name} in training mode");
}

#[test]
fn random_layers_follow_the_mode() {
    let shape = [20, 20, 2];
    check_modes("Dropout", DropoutConfig::new(0.5).init(), shape);
    check_modes("Dropout1d", Dropout1dConfig::new(0.5).init(), shape);
    check_modes("AlphaDropout", AlphaDropoutConfig::new(0.5).init(), shape);
    check_modes("FeatureAlphaDropout", FeatureAlphaDropoutConfig::new(0.5).init(), shape);
    check_modes("GaussianNoise", GaussianNoiseConfig::new(0.5).init(), shape);
    check_modes("DropPath", DropPathConfig::new(0.5).init(), shape);
}

#[test]
fn random_layers_repeat_by_seed() {
    let device = crate::own_device();
    let layer = DropPathConfig::new(0.5).init().train();
    let draw = || {
        kiln_backends::Dyn::seed(&device, 3);
        layer.forward(Tensor::<kiln_backends::Dyn, 2>::ones([64, 2], &device)).into_data()
    };
    assert_eq!(draw(), draw());
}

#[test]
fn extreme_probabilities() {
    let x = || ones([3, 4, 2]);
    assert_eq!(values(Dropout1dConfig::new(1.0).init().forward(x())), [0.0; 24]);
    assert_eq!(values(AlphaDropoutConfig::new(1.0).init().forward(x())), [0.0; 24]);
    assert_eq!(values(FeatureAlphaDropoutConfig::new(1.0).init().forward(x())), [0.0; 24]);
    assert_eq!(values(DropPathConfig::new(1.0).init().forward(x())), [0.0; 24]);
    assert_eq!(values(DropPathConfig::new(0.0).init().forward(x())), [1.0; 24]);
    assert_eq!(values(GaussianNoiseConfig::new(0.0).init().forward(x())), [1.0; 24]);
}
