//! Positional encodings: the formulas of their papers, tables that are no parameters, and positions on the device.

use super::{B, assert_near, message, random};
use kiln_backends::{Device, Dyn, Flex};
use kiln_nn::attention::{
    AlibiConfig, LearnedPositionalEncodingConfig, PositionalEncodingConfig, RelativePositionBiasConfig,
    RotaryEncodingConfig, RotaryScaling, alibi_slopes,
};
use kiln_nn::{AutodiffModule, Module, Param};
use kiln_tensor::{DType, Int, Tensor, module};

#[test]
fn dynamic_scaling_needs_positions_on_the_host() {
    let scaling = RotaryScaling::DynamicNtk { factor: 2.0, original_max: 16 };
    let rotary = RotaryEncodingConfig::new(8, 4).with_scaling(scaling).init::<Flex>(&Default::default());
    let positions = Tensor::arange(0..3, &Default::default());
    let text = message(|| drop(rotary.apply_at(random::<4>([1, 1, 3, 4]), positions)));
    assert!(text.contains("dynamic scaling needs positions on the host"), "{text}");
}

#[test]
fn rotary_tables_move_to_the_backend_below() {
    let rotary = RotaryEncodingConfig::new(8, 4).init::<B>(&Default::default());
    assert!(rotary.named_parameters().is_empty());
    let x = random::<4>([1, 2, 3, 4]);
    let y = rotary.apply(Tensor::from_inner(x.clone()), 2);
    assert_near(rotary.valid().apply(x, 2), y.inner());
}

#[test]
fn rotary_rotates_the_first_features_of_wider_heads() {
    let rotary = RotaryEncodingConfig::new(16, 4).with_interleaved(false).init::<Flex>(&Default::default());
    let x = random([2, 3, 5, 6]);
    let y = rotary.forward(x.clone());
    assert_near(y.clone().narrow(3, 0, 4), rotary.forward(x.clone().narrow(3, 0, 4)));
    assert_near(y.narrow(3, 4, 2), x.narrow(3, 4, 2));
}

#[test]
fn tables_follow_their_input() {
    let (first, second) = (Device::flex(), Device::cpu());
    let rotary = RotaryEncodingConfig::new(8, 4).init::<Dyn>(&first);
    let x = Tensor::<Dyn, 4>::ones([1, 1, 3, 4], &second);
    let y = rotary.forward(x.clone());
    assert_eq!(y.device(), second);
    assert_near(rotary.forward(x.to_device(&first)), y.to_device(&first));
}

#[test]
fn rotary_scores_depend_on_distances() {
    let rotary = RotaryEncodingConfig::new(100, 8).init::<Flex>(&Default::default());
    let (q, k) = (random([1, 1, 4, 8]), random([1, 1, 4, 8]));
    let scores = |start| rotary.apply(q.clone(), start).matmul(rotary.apply(k.clone(), start).transpose());
    assert_near(scores(0), scores(90));
}

#[test]
fn rotary_accepts_explicit_frequencies() {
    let config = RotaryEncodingConfig::new(8, 4);
    let x = random([1, 1, 8, 4]);
    let rates = [1.0, 0.01];
    let rotary = config.init_with_frequencies::<Flex>(&rates, &Default::default());
    assert_near(rotary.forward(x.clone()), config.init(&Default::default()).forward(x));
}

#[test]
fn rotary_reports_wrong_shapes() {
    let device = Default::default();
    let rotary = RotaryEncodingConfig::new(8, 4).init::<Flex>(&device);
    let text = message(|| drop(rotary.apply(random([1, 1, 4, 4]), 5)));
    assert!(text.contains("positions 5..9 are beyond the table") && text.contains("is 8"), "{text}");
    let text = message(|| drop(rotary.forward(random([1, 1, 4, 2]))));
    assert!(text.contains("the input has 2 features, the encoding rotates 4"), "{text}");
    let text = message(|| drop(RotaryEncodingConfig::new(8, 5).init::<Flex>(&device)));
    assert!(text.contains("d_model is 5, but features are rotated in pairs"), "{text}");
}

#[test]
fn alibi() {
    // The paper's slopes of 8 heads.
    assert_eq!(alibi_slopes(8), [2, 4, 8, 16, 32, 64, 128, 256].map(|divisor| 1.0 / f64::from(divisor)));

    let device = Default::default();
    let alibi = AlibiConfig::new(3).init();
    let bias = alibi.bias::<Flex>(2, 4, &device);
    let slopes = alibi_slopes(3);
    let values: Vec<f64> = bias.clone().into_data().to_vec();
    for head in 0..3 {
        for (query, position) in [2.0, 3.0].into_iter().enumerate() {
            for key in 0..4 {
                let expected = -slopes[head] * (position - key as f64).abs();
                assert!((values[(head * 2 + query) * 4 + key] - expected).abs() < 1e-6);
            }
        }
    }
    let positions = Tensor::<Flex, 1, Int>::from_ints([2, 3], &device);
    assert_near(alibi.bias_at(positions, 4), bias);
}

#[test]
fn relative_position_bias_selects_its_buckets() {
    let mut bias = RelativePositionBiasConfig::new(2).init::<Flex>(&Default::default());
    let table = Tensor::arange(0..64, &Default::default()).float().reshape([32, 2]);
    bias.weight = Param::from_tensor(table);
    let values: Vec<f32> = bias.forward(2, 5).into_data().to_vec();
    for (index, value) in values.into_iter().enumerate() {
        let (head, query, key) = (index / 10, index / 5 % 2, index % 5);
        let bucket = bias.bucket(key as i64 - (query as i64 + 3));
        assert_eq!(value, (2 * bucket + head) as f32);
    }
    let names: Vec<_> = bias.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["weight"]);
}

#[test]
fn sinusoidal() {
    let device = Default::default();
    let encoding = PositionalEncodingConfig::new(6).with_max_sequence_size(20).init::<Flex>(&device);
    let expected = module::sinusoidal_positions::<Flex>(20, 6, 1e4, DType::F32, &device);
    let x = random([2, 5, 6]);
    let sum = |start| x.clone() + expected.clone().narrow(0, start, 5).unsqueeze::<3>();
    assert_near(encoding.forward(x.clone()), sum(0));
    assert_near(encoding.apply(x.clone(), 15), sum(15));
    assert!(encoding.named_parameters().is_empty());
    let text = message(|| drop(encoding.apply(x.clone(), 16)));
    assert!(text.contains("positions 16..21 are beyond the table"), "{text}");
}

#[test]
fn learned() {
    let encoding = LearnedPositionalEncodingConfig::new(8, 4).init::<Flex>(&Default::default());
    let x = random([2, 3, 4]);
    let expected = x.clone() + encoding.weight.val().narrow(0, 2, 3).unsqueeze::<3>();
    assert_near(encoding.apply(x.clone(), 2), expected.clone());
    let positions = Tensor::from_ints([2, 3, 4], &Default::default());
    assert_near(encoding.apply_at(x.clone(), positions), expected);
    let text = message(|| drop(encoding.apply(x, 6)));
    assert!(text.contains("positions 6..9 are beyond the table"), "{text}");
}
