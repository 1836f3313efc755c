//! Layers of `kiln_nn` that no other family has.

use super::call::{Call, Outputs, array, by_rank, one};
use super::module::{optional_param, param};
use kiln_backends::Dyn;
use kiln_nn::*;
use kiln_tensor::{AnyTensor, Tensor};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let x = || call.input("x").clone();
    let layer = match &*call.op {
        "adaptive_max_pool3d" => return adaptive_max_pool(call),
        "instance_norm" => return instance_norm(call),
        "rrelu" => rrelu(call),
        "softmax2d" => Softmax2d::new().forward(call.tensor::<4>("x")).into_any(),
        "avg_pool2d" => avg_pool2d(call),
        "avg_pool3d" => avg_pool3d(call),
        "lp_pool1d" | "lp_pool2d" | "lp_pool3d" => lp_pool(call),
        "max_unpool" => max_unpool(call),
        "fractional_max_pool" => fractional_max_pool(call),
        "local_response_norm" => {
            let layer: CrossMapLRN2d = LocalResponseNormConfig::new(call.count("size"))
                .with_alpha(call.real("alpha"))
                .with_beta(call.real("beta"))
                .with_k(call.real("k"))
                .init();
            by_rank!(x(), |x| layer.forward(x))
        }
        "unfold" => {
            let config = Unfold4dConfig::new(lengths(call, "kernel_size"))
                .with_stride(lengths(call, "stride"))
                .with_padding(lengths(call, "padding"))
                .with_dilation(lengths(call, "dilation"));
            config.init().forward(call.tensor("x")).into_any()
        }
        "fold" => {
            let config = Fold4dConfig::new(lengths(call, "output_size"), lengths(call, "kernel_size"))
                .with_stride(lengths(call, "stride"))
                .with_padding(lengths(call, "padding"))
                .with_dilation(lengths(call, "dilation"));
            config.init().forward(call.tensor("x")).into_any()
        }
        "embedding_bag" => embedding_bag(call),
        "bilinear" => by_rank!(call.input("a").clone(), |a| {
            let layer = Bilinear::<Dyn> { weight: param(call, "weight"), bias: optional_param(call, "bias") };
            layer.forward(a, call.tensor("b"))
        }),
        "pad" => pad(call),
        "upsample" => upsample(call),
        "channel_shuffle" => {
            let layer = ChannelShuffleConfig::new(call.count("groups")).init();
            layer.forward(call.tensor::<4>("x")).into_any()
        }
        "cosine_similarity" | "pairwise_distance" => similarity(call),
        op => panic!("unknown op {op}"),
    };
    one(layer)
}

fn lengths<const N: usize>(call: &Call<'_>, name: &str) -> [usize; N] {
    array(&call.counts(name))
}

/// A list, or a number for all dimensions.
fn sizes<const N: usize>(call: &Call<'_>, name: &str) -> [usize; N] {
    match call.attributes[name].as_u64() {
        Some(size) => [size as usize; N],
        None => lengths(call, name),
    }
}

fn rrelu(call: &Call<'_>) -> AnyTensor {
    let config: ActivationConfig =
        RReluConfig::new().with_lower(call.real("lower")).with_upper(call.real("upper")).into();
    let layer: Activation<Dyn> = config.init(&call.device).eval();
    by_rank!(call.input("x").clone(), |x| layer.forward(x))
}

fn adaptive_max_pool(call: &Call<'_>) -> Outputs {
    let layer = AdaptiveMaxPool3dConfig::new(lengths(call, "output_size")).init();
    let y = layer.forward(call.tensor("x"));
    let (_, indices) = layer.forward_with_indices(call.tensor("x"));
    Ok(vec![Some(y.into_any()), Some(indices.into_any())])
}

fn avg_pool2d(call: &Call<'_>) -> AnyTensor {
    let layer = AvgPool2dConfig::new(lengths(call, "kernel_size"))
        .with_strides(lengths(call, "stride"))
        .with_padding(lengths(call, "padding"))
        .with_divisor_override(call.count("divisor_override"))
        .init();
    layer.forward(call.tensor("x")).into_any()
}

fn avg_pool3d(call: &Call<'_>) -> AnyTensor {
    let layer = AvgPool3dConfig::new(lengths(call, "kernel_size"))
        .with_strides(lengths(call, "stride"))
        .with_divisor_override(call.count("divisor_override"))
        .init();
    layer.forward(call.tensor("x")).into_any()
}

fn lp_pool(call: &Call<'_>) -> AnyTensor {
    macro_rules! pool {
        ($config:ident $axes:literal) => {
            $config::new(call.real("norm_type"), sizes::<$axes>(call, "kernel_size"))
                .with_strides(sizes::<$axes>(call, "stride"))
                .with_ceil_mode(call.flag("ceil_mode"))
                .init()
                .forward(call.tensor("x"))
                .into_any()
        };
    }
    match &*call.op {
        "lp_pool1d" => pool!(LpPool1dConfig 1),
        "lp_pool2d" => pool!(LpPool2dConfig 2),
        _ => pool!(LpPool3dConfig 3),
    }
}

fn max_unpool(call: &Call<'_>) -> AnyTensor {
    macro_rules! unpool {
        ($config:ident $axes:literal $rank:literal) => {{
            let (x, indices) = (call.tensor::<$rank>("x"), call.int_tensor::<$rank>("indices"));
            let layer = $config::new(lengths::<$axes>(call, "kernel_size"))
                .with_strides(lengths(call, "stride"))
                .with_padding(lengths(call, "padding"))
                .init();
            let y = match call.optional_counts("output_size") {
                Some(size) => layer.forward_with_size(x, indices, array(&size)),
                None => layer.forward(x, indices),
            };
            y.into_any()
        }};
    }
    match call.input("x").rank() {
        3 => unpool!(MaxUnpool1dConfig 1 3),
        4 => unpool!(MaxUnpool2dConfig 2 4),
        5 => unpool!(MaxUnpool3dConfig 3 5),
        rank => panic!("no golden has a tensor of {rank} axes"),
    }
}

fn fractional_max_pool(call: &Call<'_>) -> AnyTensor {
    let samples = call.tensor::<3>("samples");
    if call.input("x").rank() == 5 {
        let config = FractionalMaxPool3dConfig::new(lengths(call, "kernel_size"));
        let layer = config.with_output_size(lengths(call, "output_size")).init();
        return layer.forward_with_samples(call.tensor("x"), samples).into_any();
    }
    let config = FractionalMaxPool2dConfig::new(lengths(call, "kernel_size"));
    let config = match call.optional_reals("output_ratio") {
        Some(ratio) => config.with_output_ratio(array(&ratio)),
        None => config.with_output_size(lengths(call, "output_size")),
    };
    config.init().forward_with_samples(call.tensor("x"), samples).into_any()
}

fn instance_norm(call: &Call<'_>) -> Outputs {
    let (x, state) = (call.input("x"), |name: &str| RunningState::new(call.tensor::<1>(name)));
    let layer = InstanceNorm::<Dyn> {
        weight: optional_param(call, "weight"),
        bias: optional_param(call, "bias"),
        running_mean: Some(state("running_mean")),
        running_var: Some(state("running_var")),
        num_channels: x.shape()[1],
        momentum: call.real("momentum"),
        epsilon: call.real("epsilon"),
        mode: if call.flag("training") { Mode::Train } else { Mode::Eval },
    };
    let y = by_rank!(x.clone(), |x| layer.forward(x));
    let states = [layer.running_mean, layer.running_var];
    let states = states.map(|state| state.map(|state| state.value().into_any()));
    Ok([Some(y)].into_iter().chain(states).collect())
}

fn embedding_bag(call: &Call<'_>) -> AnyTensor {
    let layer = EmbeddingBag::<Dyn> {
        weight: param(call, "weight"),
        mode: match call.text("mode") {
            "sum" => BagMode::Sum,
            "mean" => BagMode::Mean,
            "max" => BagMode::Max,
            other => panic!("unknown mode {other}"),
        },
        padding_idx: call.attributes["padding_idx"].as_u64().map(|index| index as usize),
        max_norm: call.optional_real("max_norm"),
        norm_type: call.real("norm_type"),
        include_last_offset: call.flag("include_last_offset"),
    };
    let y = if call.optional("offsets").is_some() {
        let (indices, offsets) = (call.int_tensor("indices"), call.int_tensor("offsets"));
        layer.forward_with_offsets(indices, offsets, call.optional_tensor("weights"))
    } else if call.optional("weights").is_some() {
        layer.forward_weighted(call.int_tensor("indices"), call.tensor("weights"))
    } else {
        layer.forward(call.int_tensor("indices"))
    };
    y.into_any()
}

fn pad(call: &Call<'_>) -> AnyTensor {
    let list = call.attributes["padding"].as_array().expect("a list of pairs");
    let number = |axis: usize, end: usize| list[axis][end].as_u64().expect("a count") as usize;
    macro_rules! pad {
        ($constant:ident $zero:ident $reflection:ident $replication:ident $circular:ident $axes:literal
         $rank:literal) => {{
            let x = call.tensor::<$rank>("x");
            let padding: [(usize, usize); $axes] =
                std::array::from_fn(|axis| (number(axis, 0), number(axis, 1)));
            let y = match call.text("kind") {
                "Constant" => $constant::new(padding, call.real("value")).forward(x),
                "Zero" => $zero::new(padding).forward(x),
                "Reflection" => $reflection::new(padding).forward(x),
                "Replication" => $replication::new(padding).forward(x),
                "Circular" => $circular::new(padding).forward(x),
                other => panic!("unknown kind {other}"),
            };
            y.into_any()
        }};
    }
    match list.len() {
        1 => pad!(ConstantPad1d ZeroPad1d ReflectionPad1d ReplicationPad1d CircularPad1d 1 3),
        2 => pad!(ConstantPad2d ZeroPad2d ReflectionPad2d ReplicationPad2d CircularPad2d 2 4),
        3 => pad!(ConstantPad3d ZeroPad3d ReflectionPad3d ReplicationPad3d CircularPad3d 3 5),
        axes => panic!("no golden pads {axes} axes"),
    }
}

fn upsample(call: &Call<'_>) -> AnyTensor {
    let mode = match call.text("mode") {
        "nearest" => InterpolateMode::Nearest,
        "nearest-exact" => InterpolateMode::NearestExact,
        "linear" | "bilinear" | "trilinear" => InterpolateMode::Linear,
        "bicubic" => InterpolateMode::Cubic,
        "area" => InterpolateMode::Area,
        other => panic!("unknown mode {other}"),
    };
    let config = UpsampleConfig {
        output_size: call.optional_counts("size"),
        scale_factor: call.optional_real("scale_factor"),
        mode,
        align_corners: call.attributes["align_corners"].as_bool().unwrap_or(false),
    };
    by_rank!(call.input("x").clone(), |x| config.init().forward(x))
}

fn similarity(call: &Call<'_>) -> AnyTensor {
    let (a, b, eps) = (call.tensor::<2>("a"), call.tensor::<2>("b"), call.real("eps"));
    let y: Tensor<Dyn, 1> = if call.op == "cosine_similarity" {
        CosineSimilarityConfig::new().with_dim(call.int("dim") as isize).with_eps(eps).init().forward(a, b)
    } else {
        PairwiseDistanceConfig::new().with_p(call.real("p")).with_eps(eps).init().forward(a, b)
    };
    y.into_any()
}
