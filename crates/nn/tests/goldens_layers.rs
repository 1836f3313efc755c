//! Layers match PyTorch's functions, forward and backward. The suite runs those with goldens of their own.

use crate::golden::{B, Case, any, any_param, each_case, with_rank};
use kiln_nn::*;
use kiln_tensor::Int;

/// An activation of the enum of activations, by the op of a case.
fn activation(case: &Case<'_>) -> Option<ActivationConfig> {
    let number = |attribute| case.number(attribute);
    Some(match case.op() {
        "relu" => ActivationConfig::Relu,
        "relu6" => ActivationConfig::Relu6,
        "silu" => ActivationConfig::Silu,
        "tanh" => ActivationConfig::Tanh,
        "sigmoid" => ActivationConfig::Sigmoid,
        "log_sigmoid" => ActivationConfig::LogSigmoid,
        "hard_swish" => ActivationConfig::HardSwish,
        "mish" => ActivationConfig::Mish,
        "selu" => ActivationConfig::Selu,
        "softsign" => ActivationConfig::Softsign,
        "tanh_shrink" => ActivationConfig::Tanhshrink,
        "gelu" if case.json["attributes"]["approximate"] == "tanh" => ActivationConfig::GeluApproximate,
        "gelu" => ActivationConfig::Gelu,
        "hard_sigmoid" => HardSigmoidConfig::new().into(),
        "hard_tanh" => HardtanhConfig::new().with_min_val(number("min")).with_max_val(number("max")).into(),
        "elu" => EluConfig::new().with_alpha(number("alpha")).into(),
        "celu" => CeluConfig::new().with_alpha(number("alpha")).into(),
        "leaky_relu" => LeakyReluConfig::new().with_negative_slope(number("negative_slope")).into(),
        // The layer has no threshold; at 20 it does not show.
        "softplus" if number("threshold") != 20.0 => return None,
        "softplus" => SoftplusConfig::new().with_beta(number("beta")).into(),
        "hard_shrink" => HardShrinkConfig::new().with_lambda(number("lambda")).into(),
        "soft_shrink" => SoftShrinkConfig::new().with_lambda(number("lambda")).into(),
        "threshold" => ThresholdConfig::new(number("threshold"), number("value")).into(),
        other => panic!("{other}"),
    })
}

#[test]
fn activations() {
    let ops = [
        "relu",
        "relu6",
        "silu",
        "tanh",
        "sigmoid",
        "log_sigmoid",
        "hard_swish",
        "mish",
        "selu",
        "softsign",
        "tanh_shrink",
        "gelu",
        "hard_sigmoid",
        "hard_tanh",
        "elu",
        "celu",
        "leaky_relu",
        "softplus",
        "hard_shrink",
        "soft_shrink",
        "threshold",
    ];
    each_case("activation", &ops, check_activation);
}

fn check_activation(case: &Case<'_>) {
    let Some(config) = activation(case) else { return };
    let layer: Activation<B> = config.init(&Default::default()).eval();
    with_rank!(case, D => {
        let x = case.input::<D>("x");
        case.check(layer.forward(x.clone()), &[("x", any(&x))]);
    });
}

#[test]
fn activations_along_a_dimension() {
    each_case("activation", &["softmax", "log_softmax", "softmin", "glu"], |case| {
        with_rank!(case, D => {
            let (x, axis) = (case.input::<D>("x"), case.number("axis") as usize);
            let y = match case.op() {
                "softmax" => Softmax::new(axis).forward(x.clone()),
                "log_softmax" => LogSoftmax::new(axis).forward(x.clone()),
                "softmin" => Softmin::new(axis).forward(x.clone()),
                _ => Glu::new(axis).forward(x.clone()),
            };
            case.check(y, &[("x", any(&x))]);
        });
    });
}

#[test]
fn prelu() {
    each_case("activation", &["prelu"], |case| {
        with_rank!(case, D => {
            let x = case.input::<D>("x");
            let layer = PRelu::<B> { weight: case.param("weight") };
            let inputs = [("x", any(&x)), ("weight", any(&layer.weight))];
            case.check(layer.forward(x), &inputs);
        });
    });
}

#[test]
fn adaptive_max_pools() {
    each_case("pool", &["adaptive_max_pool1d"], |case| {
        let x = case.input::<3>("x");
        let layer = AdaptiveMaxPool1dConfig::new(case.lengths("output_size")).init();
        case.check(layer.forward(x.clone()), &[("x", any(&x))]);
        case.compare("indices", layer.forward_with_indices(x).1.into_data());
    });
    each_case("pool", &["adaptive_max_pool2d"], |case| {
        let x = case.input::<4>("x");
        let layer = AdaptiveMaxPool2dConfig::new(case.lengths("output_size")).init();
        case.check(layer.forward(x.clone()), &[("x", any(&x))]);
        case.compare("indices", layer.forward_with_indices(x).1.into_data());
    });
    each_case("nn_layer", &["adaptive_max_pool3d"], |case| {
        let x = case.input::<5>("x");
        let layer = AdaptiveMaxPool3dConfig::new(case.lengths("output_size")).init();
        case.check(layer.forward(x.clone()), &[("x", any(&x))]);
        case.compare("indices", layer.forward_with_indices(x).1.into_data());
    });
}

#[test]
fn average_pools_with_a_divisor() {
    each_case("nn_layer", &["avg_pool2d"], |case| {
        let x = case.input::<4>("x");
        let layer = AvgPool2dConfig::new(case.lengths("kernel_size"))
            .with_strides(case.lengths("stride"))
            .with_padding(case.lengths("padding"))
            .with_divisor_override(case.number("divisor_override") as usize)
            .init();
        case.check(layer.forward(x.clone()), &[("x", any(&x))]);
    });
    each_case("nn_layer", &["avg_pool3d"], |case| {
        let x = case.input::<5>("x");
        let layer = AvgPool3dConfig::new(case.lengths("kernel_size"))
            .with_strides(case.lengths("stride"))
            .with_divisor_override(case.number("divisor_override") as usize)
            .init();
        case.check(layer.forward(x.clone()), &[("x", any(&x))]);
    });
}

macro_rules! check_unpool {
    ($case:ident $config:ident $axes:literal $rank:literal) => {{
        let (x, indices) = ($case.input::<$rank>("x"), $case.constant::<$rank, Int>("indices"));
        let layer = $config::new($case.lengths::<$axes>("kernel_size"))
            .with_strides($case.lengths("stride"))
            .with_padding($case.lengths("padding"))
            .init();
        let y = if $case.json["attributes"]["output_size"].is_null() {
            layer.forward(x.clone(), indices)
        } else {
            layer.forward_with_size(x.clone(), indices, $case.lengths("output_size"))
        };
        $case.check(y, &[("x", any(&x))]);
    }};
}

#[test]
fn max_unpools() {
    each_case("nn_layer", &["max_unpool"], |case| match case.rank("x") {
        3 => check_unpool!(case MaxUnpool1dConfig 1 3),
        4 => check_unpool!(case MaxUnpool2dConfig 2 4),
        5 => check_unpool!(case MaxUnpool3dConfig 3 5),
        rank => panic!("{rank}"),
    });
}

#[test]
fn fractional_max_pools() {
    each_case("nn_layer", &["fractional_max_pool"], |case| {
        let samples = case.constant::<3, kiln_tensor::Float>("samples");
        let has_size = !case.json["attributes"]["output_size"].is_null();
        if case.rank("x") == 4 {
            let x = case.input::<4>("x");
            let config = FractionalMaxPool2dConfig::new(case.lengths("kernel_size"));
            let config = if has_size {
                config.with_output_size(case.lengths("output_size"))
            } else {
                let ratios = case.json["attributes"]["output_ratio"].as_array().unwrap();
                config.with_output_ratio([ratios[0].as_f64().unwrap(), ratios[1].as_f64().unwrap()])
            };
            case.check(config.init().forward_with_samples(x.clone(), samples), &[("x", any(&x))]);
        } else {
            let x = case.input::<5>("x");
            let config = FractionalMaxPool3dConfig::new(case.lengths("kernel_size"));
            let layer = config.with_output_size(case.lengths("output_size")).init();
            case.check(layer.forward_with_samples(x.clone(), samples), &[("x", any(&x))]);
        }
    });
}

macro_rules! check_fractional_indices {
    ($case:ident $config:ident $unpool:ident $axes:literal $rank:literal) => {{
        let x = $case.input::<$rank>("x");
        let samples = $case.constant::<3, kiln_tensor::Float>("samples");
        let config = $config::new($case.lengths("kernel_size"));
        let layer = config.with_output_size($case.lengths::<$axes>("output_size")).init();
        let (y, indices) = layer.forward_with_samples_and_indices(x.clone(), samples);
        $case.compare("indices", indices.clone().into_data());
        // Unpooling writes the maxima back to their places.
        let size = std::array::from_fn(|axis| x.dims()[axis + 2]);
        let unpool = $unpool::new($case.lengths::<$axes>("kernel_size")).init();
        let unpooled = unpool.forward_with_size(y.clone(), indices, size);
        let is_kept = (unpooled.clone() - x.clone()).abs().equal_scalar(0.0);
        let is_right = unpooled.equal_scalar(0.0).bool_or(is_kept).into_data().to_vec::<bool>();
        assert!(is_right.into_iter().all(|is_right| is_right), "{}", $case.name());
        $case.check(y, &[("x", any(&x))]);
    }};
}

#[test]
fn fractional_max_pools_with_indices() {
    each_case("pool_indices", &["fractional_max_pool"], |case| match case.rank("x") {
        4 => check_fractional_indices!(case FractionalMaxPool2dConfig MaxUnpool2dConfig 2 4),
        5 => check_fractional_indices!(case FractionalMaxPool3dConfig MaxUnpool3dConfig 3 5),
        rank => panic!("{rank}"),
    });
}

macro_rules! check_lp_pool {
    ($case:ident $config:ident $axes:literal $rank:literal) => {{
        let x = $case.input::<$rank>("x");
        let layer = $config::new($case.number("norm_type"), sizes::<$axes>($case, "kernel_size"))
            .with_strides(sizes::<$axes>($case, "stride"))
            .with_ceil_mode($case.flag("ceil_mode"))
            .init();
        $case.check(layer.forward(x.clone()), &[("x", any(&x))]);
    }};
}

/// A list, or a number for all dimensions.
fn sizes<const N: usize>(case: &Case<'_>, attribute: &str) -> [usize; N] {
    match case.json["attributes"][attribute].as_u64() {
        Some(size) => [size as usize; N],
        None => case.lengths(attribute),
    }
}

#[test]
fn power_pools() {
    each_case("nn_layer", &["lp_pool1d", "lp_pool2d", "lp_pool3d"], |case| match case.rank("x") {
        3 => check_lp_pool!(case LpPool1dConfig 1 3),
        4 => check_lp_pool!(case LpPool2dConfig 2 4),
        5 => check_lp_pool!(case LpPool3dConfig 3 5),
        rank => panic!("{rank}"),
    });
}

#[test]
fn instance_norm() {
    each_case("norm", &["instance_norm"], |case| {
        with_rank!(case, D => {
            let x = case.input::<D>("x");
            let config = InstanceNormConfig::new(x.shape()[1]).with_epsilon(case.number("epsilon"));
            let layer = InstanceNorm::<B> {
                weight: case.optional("weight"),
                bias: case.optional("bias"),
                ..config.init(&Default::default())
            };
            let inputs = [("x", any(&x)), ("weight", any_param(&layer.weight)), ("bias", any_param(&layer.bias))];
            case.check(layer.forward(x), &inputs);
        });
    });
}

#[test]
fn synchronized_batch_norm_of_one_member() {
    each_case("norm", &["batch_norm"], |case| {
        with_rank!(case, D => {
            let x = case.input::<D>("x");
            let layer = BatchNorm::<B> {
                weight: case.optional("weight"),
                bias: case.optional("bias"),
                running_mean: RunningState::new(case.constant("running_mean")),
                running_var: RunningState::new(case.constant("running_var")),
                num_features: x.shape()[1],
                momentum: case.number("momentum"),
                epsilon: case.number("epsilon"),
                mode: if case.flag("training") { Mode::Train } else { Mode::Eval },
            };
            let layer = SyncBatchNorm::from_batch_norm(layer, SyncGroup::ALONE);
            let inputs = [("x", any(&x)), ("weight", any_param(&layer.weight)), ("bias", any_param(&layer.bias))];
            let y = layer.forward(x);
            if case.flag("training") {
                case.check(y, &inputs);
            } else {
                case.compare("y", y.into_data());
            }
            case.compare("new_running_mean", layer.running_mean.value().into_data());
            case.compare("new_running_var", layer.running_var.value().into_data());
        });
    });
}

#[test]
fn local_response_norm() {
    let check = |case: &Case<'_>| {
        with_rank!(case, D => {
            let x = case.input::<D>("x");
            let layer: CrossMapLRN2d = LocalResponseNormConfig::new(case.number("size") as usize)
                .with_alpha(case.number("alpha"))
                .with_beta(case.number("beta"))
                .with_k(case.number("k"))
                .init();
            case.check(layer.forward(x.clone()), &[("x", any(&x))]);
        });
    };
    each_case("norm", &["local_response_norm"], check);
}

#[test]
fn deformable_convolution() {
    each_case("method_module", &["deform_conv2d"], |case| {
        let (x, offset, mask) = (case.input::<4>("a"), case.input::<4>("b"), case.input::<4>("d"));
        // The fixed arguments of the case.
        let layer = DeformConv2d::<B> {
            weight: case.param("c"),
            bias: case.optional("e"),
            stride: [1, 1],
            dilation: [1, 1],
            weight_groups: 2,
            offset_groups: 2,
            padding: [1, 1].into(),
        };
        let inputs = [
            ("a", any(&x)),
            ("b", any(&offset)),
            ("c", any(&layer.weight)),
            ("d", any(&mask)),
            ("e", any_param(&layer.bias)),
        ];
        case.check(layer.forward(x, offset, Some(mask)), &inputs);
    });
}

#[test]
fn bilinear() {
    let check = |case: &Case<'_>| match case.rank("a") {
        1 => check_bilinear::<1>(case),
        2 => check_bilinear::<2>(case),
        3 => check_bilinear::<3>(case),
        rank => panic!("{rank}"),
    };
    each_case("matmul", &["bilinear"], check);
}

fn check_bilinear<const D: usize>(case: &Case<'_>) {
    let (a, b) = (case.input::<D>("a"), case.input::<D>("b"));
    let layer = Bilinear::<B> { weight: case.param("weight"), bias: case.optional("bias") };
    let inputs =
        [("a", any(&a)), ("b", any(&b)), ("weight", any(&layer.weight)), ("bias", any_param(&layer.bias))];
    case.check(layer.forward(a, b), &inputs);
}

fn interpolation(case: &Case<'_>) -> (InterpolateMode, bool) {
    let mode = match case.json["attributes"]["mode"].as_str().unwrap() {
        "nearest" => InterpolateMode::Nearest,
        "nearest-exact" => InterpolateMode::NearestExact,
        "linear" | "bilinear" | "trilinear" => InterpolateMode::Linear,
        "bicubic" => InterpolateMode::Cubic,
        "area" => InterpolateMode::Area,
        other => panic!("{other}"),
    };
    (mode, case.json["attributes"]["align_corners"].as_bool().unwrap_or(false))
}

macro_rules! check_interpolate {
    ($case:ident $config:ident $axes:literal $rank:literal) => {{
        let x = $case.input::<$rank>("x");
        let (mode, align_corners) = interpolation($case);
        let config = $config::new()
            .with_mode(mode)
            .with_align_corners(align_corners)
            .with_antialias($case.flag("antialias"));
        let config = match $case.json["attributes"]["scale_factor"].as_array() {
            Some(list) => {
                let factors: [f64; $axes] = std::array::from_fn(|axis| list[axis].as_f64().unwrap());
                config.with_scale_factor(factors)
            }
            None => config.with_output_size($case.lengths::<$axes>("size")),
        };
        $case.check(config.init().forward(x.clone()), &[("x", any(&x))]);
    }};
}

#[test]
fn interpolations() {
    each_case("resize", &["resize"], |case| match case.rank("x") {
        3 => check_interpolate!(case Interpolate1dConfig 1 3),
        4 => check_interpolate!(case Interpolate2dConfig 2 4),
        5 => check_interpolate!(case Interpolate3dConfig 3 5),
        rank => panic!("{rank}"),
    });
}

#[test]
fn shuffles() {
    each_case("index", &["pixel_shuffle", "pixel_unshuffle"], |case| {
        with_rank!(case, D => {
            let (x, factor) = (case.input::<D>("x"), case.number("factor") as usize);
            let y = match case.op() {
                "pixel_shuffle" => PixelShuffleConfig::new(factor).init().forward(x.clone()),
                _ => PixelUnshuffleConfig::new(factor).init().forward(x.clone()),
            };
            case.check(y, &[("x", any(&x))]);
        });
    });
}
