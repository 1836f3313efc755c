//! Layers that goldens do not cover: shapes, settings and wrong arguments by message.

use kiln_backends::Flex;
use kiln_nn::*;
use kiln_tensor::{Backend, Distribution, Int, Tensor};

type B = Flex;

fn ones<const D: usize>(shape: [usize; D]) -> Tensor<B, D> {
    Tensor::ones(shape, &Default::default())
}

fn device() -> <B as Backend>::Device {
    Default::default()
}

macro_rules! wrong_arguments {
    ($($test:ident $expected:literal $call:expr;)*) => {$(
        #[test]
        #[should_panic(expected = $expected)]
        fn $test() {
            let _ = $call;
        }
    )*};
}

wrong_arguments! {
    a_probability_of_channels "[dropout2d] the probability 1.5 is not between 0 and 1"
        Dropout2dConfig::new(1.5).init();
    a_probability_of_alpha_dropout "[alpha_dropout] the probability -0.1 is not between 0 and 1"
        AlphaDropoutConfig::new(-0.1).init();
    a_probability_of_paths "[drop_path] the probability 2 is not between 0 and 1" DropPathConfig::new(2.0).init();
    a_negative_deviation "[gaussian_noise] the standard deviation is -1" GaussianNoiseConfig::new(-1.0).init();
    slopes_that_are_no_range "[rrelu] the slopes from 0.5 to 0.1 are not a range"
        RReluConfig::new().with_lower(0.5).with_upper(0.1).init();
    an_axis_of_odd_length "[glu]" Glu::new(0).forward(ones([3]));
    softmax2d_of_a_matrix "[softmax2d] expected [.., channels, height, width]: f32[2, 3]"
        Softmax2d::new().forward(ones([2, 3]));
    slopes_of_other_channels "[prelu]"
        PReluConfig::new().with_num_parameters(3).init::<B>(&device()).forward(ones([2, 4]));
    an_empty_window_of_channels "[local_response_norm] the size is 0" LocalResponseNormConfig::new(0).init();
    channels_of_instance_norm "[instance_norm] expected [batch, 3, ..]: f32[2, 4, 5]"
        InstanceNormConfig::new(3).init::<B>(&device()).forward(ones([2, 4, 5]));
    statistics_of_one_value "[instance_norm] training needs more than one value per channel: f32[2, 4, 1]"
        InstanceNormConfig::new(4).with_track_running_stats(true).init::<B>(&device()).train()
            .forward(ones([2, 4, 1]));
    statistics_of_one_value_in_a_group "[sync_batch_norm] training needs more than one value per channel: f32[1, 4]"
        SyncBatchNormConfig::new(4).init::<B>(&device()).train().forward(ones([1, 4]));
    offset_groups "[deform_conv2d] 3 offset groups do not divide 4 input channels"
        DeformConv2dConfig::new([4, 2], [3, 3]).with_offset_groups(3).init::<B>(&device());
    a_size_and_a_factor "[interpolate1d] expected either `output_size` or `scale_factor`"
        Interpolate1dConfig::new().with_output_size([3]).with_scale_factor([2.0]).init();
    no_size "[upsample] expected either `output_size` or `scale_factor`" UpsampleConfig::new().init();
    corners_of_nearest "[interpolate2d] Nearest has neither `align_corners` nor `antialias`"
        Interpolate2dConfig::new().with_output_size([3, 3]).with_align_corners(true).init();
    a_factor_of_zero "[pixel_shuffle] `upscale_factor` is 0" PixelShuffleConfig::new(0).init();
    a_fractional_size "[fractional_max_pool] expected either `output_size` or `output_ratio`"
        FractionalMaxPool2dConfig::new([2, 2]).init();
    a_fractional_ratio "[fractional_max_pool] the ratios [0.5, 1.0] are not between 0 and 1"
        FractionalMaxPool2dConfig::new([2, 2]).with_output_ratio([0.5, 1.0]).init();
    a_divisor_of_zero "[avg_pool] the divisor is 0"
        AvgPool2dConfig::new([1, 1]).with_divisor_override(0).init().forward(ones([1, 1, 2, 2]));
    an_exponent_of_zero "[lp_pool]" LpPool1dConfig::new(0.0, [2]).init().forward(ones([1, 1, 4]));
    reflection_beyond_the_length "[pad]" ReflectionPad1d::uniform(3).forward(ones([1, 1, 3]));
    indices_of_another_shape "elements and indices differ in shape"
        MaxUnpool1dConfig::new([2]).init()
            .forward(ones([1, 1, 2]), Tensor::<B, 3, Int>::from_ints([[[0]]], &device()));
    lengths_that_do_not_multiply "12 elements do not fill shape [2, 4, 2] of 16" {
        let y: Tensor<B, 3> = Unflatten::new(1, [4, 2]).forward(ones([2, 6]));
        y
    };
    weights_of_a_mean "[embedding_bag] weights are only supported for sums, not for Mean"
        EmbeddingBagConfig::new(4, 2).init::<B>(&device())
        .forward_weighted(Tensor::from_ints([[0, 1]], &device()), ones([1, 2]));
    no_last_offset "[embedding_bag] expected offsets that end with the number of indices"
        EmbeddingBagConfig::new(4, 2).with_include_last_offset(true).init::<B>(&device())
            .forward_with_offsets(Tensor::from_ints([0, 1], &device()), Tensor::from_ints([0; 0], &device()), None);
    a_dimension_of_similarity "[cosine_similarity] dimension 2 is out of range: f32[2, 3]" {
        let y: Tensor<B, 1> = CosineSimilarityConfig::new().with_dim(2).init().forward(ones([2, 3]), ones([2, 3]));
        y
    };
}

#[test]
fn gated_layers_multiply_by_their_gates() {
    let x = Tensor::<B, 2>::random([3, 4], Distribution::Normal(0.0, 1.0), &device());
    let layer = SwiGluConfig::new(4, 2).with_bias(true).init::<B>(&device());
    let expected =
        Silu::new().forward(layer.linear_inner.forward(x.clone())) * layer.linear_outer.forward(x.clone());
    assert_eq!(layer.forward(x.clone()).into_data(), expected.into_data());
    let layer = GeGluConfig::new(4, 2).init::<B>(&device());
    let expected =
        Gelu::new().forward(layer.linear_inner.forward(x.clone())) * layer.linear_outer.forward(x.clone());
    assert_eq!(layer.forward(x.clone()).into_data(), expected.into_data());
    let layer = ReGluConfig::new(4, 2).init::<B>(&device());
    let expected =
        Relu::new().forward(layer.linear_inner.forward(x.clone())) * layer.linear_outer.forward(x.clone());
    assert_eq!(layer.forward(x).into_data(), expected.into_data());
    let names: Vec<String> = layer.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["linear_inner.weight", "linear_outer.weight"]);
}

#[test]
fn elementwise_formulas_of_onnx() {
    let x = Tensor::<B, 1>::from_floats([-3.0, -0.25, 0.75, 3.0], &device());
    let values = |y: Tensor<B, 1>| y.into_data().to_vec::<f32>();
    let shrink = ShrinkConfig::new().with_lambda(1.0).with_bias(0.5).init();
    assert_eq!(values(shrink.forward(x.clone())), [-2.5, 0.0, 0.0, 2.5]);
    assert_eq!(values(ThresholdedReluConfig::new().init().forward(x.clone())), [0.0, 0.0, 0.0, 3.0]);
    let onnx = HardSigmoidConfig::new().with_alpha(0.25).init();
    assert_eq!(values(onnx.forward(x.clone())), [0.0, 0.4375, 0.6875, 1.0]);
    let quiet = QuietSoftmax::new(0).forward(Tensor::<B, 1>::zeros([3], &device()));
    assert!(values(quiet).iter().all(|y| (y - 0.25).abs() < 1e-6));
}

/// Activations are read from JSON, and are modules with a layer table.
#[test]
fn choices_are_read_from_json() {
    let configs = [
        r#""Relu""#,
        r#""HardSwish""#,
        r#""GeluApproximate""#,
        r#"{"LeakyRelu": {"negative_slope": 0.2}}"#,
        r#"{"PRelu": {}}"#,
        r#"{"SwiGlu": {"d_input": 3, "d_output": 3}}"#,
    ];
    for json in configs {
        let config = ActivationConfig::from_json(json).unwrap();
        assert_eq!(ActivationConfig::from_json(&config.to_json()).unwrap(), config);
        let layer: Activation<B> = config.init(&device());
        assert_eq!(layer.forward(ones([2, 3])).dims(), [2, 3]);
        assert!(!layer.to_string().is_empty());
    }
}

#[test]
fn normalizations_have_a_number_of_features() {
    let configs: [NormalizationConfig; 6] = [
        NormalizationConfig::Identity,
        BatchNormConfig::new(0).into(),
        GroupNormConfig::new(2, 0).into(),
        InstanceNormConfig::new(0).into(),
        LayerNormConfig::new(0).into(),
        RmsNormConfig::new(0).into(),
    ];
    for config in configs {
        let features = if config == NormalizationConfig::Identity { 0 } else { 4 };
        let config = config.with_num_features(4);
        let layer = config.init::<B>(&device());
        assert_eq!((config.num_features(), layer.num_features()), (features, features));
        assert_eq!(layer.forward(ones([2, 4, 4])).dims(), [2, 4, 4]);
        assert_eq!(NormalizationConfig::from_json(&config.to_json()).unwrap(), config);
    }
}

#[test]
fn pads_of_one_width() {
    assert_eq!(ZeroPad2d::uniform(1).forward(ones([1, 1, 2, 3])).dims(), [1, 1, 4, 5]);
    assert_eq!(
        ConstantPad3d::uniform(2, 1.0).forward(ones([1, 1, 1, 1, 1])).sum().into_scalar::<f32>(),
        125.0
    );
    assert_eq!(CircularPad1d::uniform(2).forward(ones([1, 2, 2])).dims(), [1, 2, 6]);
}

/// Zeros that are part of the input are read like the zeros outside it.
#[test]
fn deformable_convolution_pads_unequally() {
    let x = Tensor::<B, 4>::random([1, 2, 5, 5], Distribution::Normal(0.0, 1.0), &device());
    let offset = Tensor::<B, 4>::zeros([1, 2 * 2 * 2, 5, 5], &device());
    let layer: DeformConv2d<B> =
        DeformConv2dConfig::new([2, 3], [2, 2]).with_padding(PaddingConfig2d::Same).init(&device());
    let plain = Conv2d::<B> {
        weight: layer.weight.clone(),
        bias: layer.bias.clone(),
        stride: [1, 1],
        dilation: [1, 1],
        groups: 1,
        padding: PaddingConfig2d::Same,
    };
    let (y, expected) = (layer.forward(x.clone(), offset, None), plain.forward(x));
    assert!(y.all_close(expected, Some(1e-5), Some(1e-5)));
}

#[test]
fn layers_of_several_inputs_are_modules_of_tuples() {
    let pool = MaxPool2dConfig::new([2, 2]).init();
    let x = Tensor::<B, 4>::random([1, 2, 4, 4], Distribution::Uniform(1.0, 2.0), &device());
    let restored =
        ForwardModule::forward(&MaxUnpool2dConfig::new([2, 2]).init(), pool.forward_with_indices(x.clone()));
    assert_eq!(pool.forward(restored).into_data(), pool.forward(x).into_data());
    let pair = || (ones([2, 3]), ones([2, 3]));
    let bilinear: Bilinear<B> = BilinearConfig::new(3, 3, 4).init(&device());
    assert_eq!(ForwardModule::forward(&bilinear, pair()).dims(), [2, 4]);
    let similarity: Tensor<B, 1> = ForwardModule::forward(&CosineSimilarityConfig::new().init(), pair());
    assert!(similarity.into_data().to_vec::<f32>().iter().all(|y| (y - 1.0).abs() < 1e-6));
    let distance: Tensor<B, 1> =
        ForwardModule::forward(&PairwiseDistanceConfig::new().with_eps(0.0).init(), pair());
    assert_eq!(distance.into_data().to_vec::<f32>(), [0.0, 0.0]);
}

#[test]
fn new_layers_are_elements_of_chains() {
    let chain = Sequential::<B, Tensor<B, 2>>::new()
        .push(LinearConfig::new(3, 8).init::<B>(&device()))
        .push(Unflatten::new(1, [2, 2, 2]))
        .push(Upsample::nearest(2.0))
        .push(ReflectionPad2d::uniform(1))
        .push(InstanceNormConfig::new(2).init::<B>(&device()))
        .push(Activation::<B>::from(Mish::new()))
        .push(Normalization::<B>::from(Identity::new()))
        .push(Dropout2dConfig::new(0.1).init())
        .push(Unfold4dConfig::new([2, 2]).with_stride([2, 2]).init())
        .push(Identity::new());
    assert_eq!(chain.forward(ones([5, 3])).dims(), [5, 8, 9]);
}
