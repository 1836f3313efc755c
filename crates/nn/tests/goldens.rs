//! Layers and losses match PyTorch, forward and backward, in all goldens that they cover.

use crate::golden::{B, Case, any, any_param, each_case, with_rank};
use kiln_nn::loss::{CrossEntropyLoss, MseLoss};
use kiln_nn::*;
use kiln_tensor::loss::CrossEntropyTargets;
use kiln_tensor::{DType, Float, Int, Tensor};

macro_rules! conv_tests {
    ($($test:ident $transposed_test:ident $op:literal $transposed_op:literal $layer:ident $transposed:ident
       $padding:ident $axes:literal $rank:literal;)*) => {$(
        #[test]
        fn $test() {
            each_case("conv", &[$op], |case| {
                let x = case.input::<$rank>("x");
                let layer = $layer::<B> {
                    weight: case.param("weight"),
                    bias: case.optional("bias"),
                    stride: case.lengths("stride"),
                    dilation: case.lengths("dilation"),
                    groups: case.number("groups") as usize,
                    padding: case.lengths::<$axes>("padding").into(),
                };
                let inputs = [("x", any(&x)), ("weight", any(&layer.weight)), ("bias", any_param(&layer.bias))];
                case.check(layer.forward(x), &inputs);
            });
        }

        #[test]
        fn $transposed_test() {
            each_case("conv", &[$transposed_op], |case| {
                let x = case.input::<$rank>("x");
                let layer = $transposed::<B> {
                    weight: case.param("weight"),
                    bias: case.optional("bias"),
                    stride: case.lengths("stride"),
                    dilation: case.lengths("dilation"),
                    groups: case.number("groups") as usize,
                    padding: case.lengths("padding"),
                    output_padding: case.lengths::<$axes>("output_padding"),
                };
                let inputs = [("x", any(&x)), ("weight", any(&layer.weight)), ("bias", any_param(&layer.bias))];
                case.check(layer.forward(x), &inputs);
            });
        }
    )*};
}

conv_tests! {
    conv1d conv_transpose1d "conv1d" "conv_transpose1d" Conv1d ConvTranspose1d PaddingConfig1d 1 3;
    conv2d conv_transpose2d "conv2d" "conv_transpose2d" Conv2d ConvTranspose2d PaddingConfig2d 2 4;
    conv3d conv_transpose3d "conv3d" "conv_transpose3d" Conv3d ConvTranspose3d PaddingConfig3d 3 5;
}

macro_rules! pool_tests {
    ($($max:ident $average:ident $adaptive:ident $max_layer:ident $average_layer:ident $adaptive_layer:ident
       $rank:literal;)*) => {$(
        #[test]
        fn $max() {
            each_case("pool", &[stringify!($max)], |case| {
                let x = case.input::<$rank>("x");
                let layer = $max_layer {
                    kernel_size: case.lengths("kernel"),
                    stride: case.lengths("stride"),
                    padding: case.lengths::<{ $rank - 2 }>("padding").into(),
                    dilation: case.lengths("dilation"),
                    ceil_mode: case.flag("ceil_mode"),
                };
                case.check(layer.forward(x.clone()), &[("x", any(&x))]);
                let (y, indices) = layer.forward_with_indices(x.inner());
                case.compare("y", y.into_data());
                case.compare("indices", indices.into_data());
            });
        }

        #[test]
        fn $average() {
            each_case("pool", &[stringify!($average)], |case| {
                let x = case.input::<$rank>("x");
                let layer = $average_layer {
                    kernel_size: case.lengths("kernel"),
                    stride: case.lengths("stride"),
                    padding: case.lengths::<{ $rank - 2 }>("padding").into(),
                    ceil_mode: case.flag("ceil_mode"),
                    count_include_pad: case.flag("count_include_pad"),
                    divisor_override: None,
                };
                case.check(layer.forward(x.clone()), &[("x", any(&x))]);
            });
        }

        #[test]
        fn $adaptive() {
            each_case("pool", &[stringify!($adaptive)], |case| {
                let x = case.input::<$rank>("x");
                let layer = $adaptive_layer { output_size: case.lengths("output_size") };
                case.check(layer.forward(x.clone()), &[("x", any(&x))]);
            });
        }
    )*};
}

pool_tests! {
    max_pool1d avg_pool1d adaptive_avg_pool1d MaxPool1d AvgPool1d AdaptiveAvgPool1d 3;
    max_pool2d avg_pool2d adaptive_avg_pool2d MaxPool2d AvgPool2d AdaptiveAvgPool2d 4;
    max_pool3d avg_pool3d adaptive_avg_pool3d MaxPool3d AvgPool3d AdaptiveAvgPool3d 5;
}

#[test]
fn linear() {
    each_case("matmul", &["linear"], |case| {
        with_rank!(case, D => {
            let x = case.input::<D>("x");
            let layer = Linear::<B> { weight: case.param("weight"), bias: case.optional("bias") };
            let inputs = [("x", any(&x)), ("weight", any(&layer.weight)), ("bias", any_param(&layer.bias))];
            case.check(layer.forward(x), &inputs);
        });
    });
}

#[test]
fn layer_norm_and_rms_norm() {
    each_case("norm", &["layer_norm", "rms_norm"], |case| {
        if case.json["attributes"]["normalized_shape"].as_array().unwrap().len() != 1 {
            return;
        }
        with_rank!(case, D => {
            let x = case.input::<D>("x");
            let epsilon = case.number("epsilon");
            if case.op() == "rms_norm" {
                let length = x.dims()[D - 1];
                let ones = || Param::from_tensor(Tensor::<B, 1>::ones([length], &Default::default()).cast(x.dtype()));
                let layer = RmsNorm::<B> { weight: case.optional("weight").unwrap_or_else(ones), epsilon };
                let inputs = [("x", any(&x)), ("weight", any(&layer.weight))];
                case.check(layer.forward(x), &inputs);
            } else {
                let (weight, bias) = (case.optional("weight"), case.optional("bias"));
                let layer = LayerNorm::<B> { weight, bias, epsilon };
                let inputs = [("x", any(&x)), ("weight", any_param(&layer.weight)), ("bias", any_param(&layer.bias))];
                case.check(layer.forward(x), &inputs);
            }
        });
    });
}

#[test]
fn group_norm() {
    each_case("norm", &["group_norm"], |case| {
        with_rank!(case, D => {
            let x = case.input::<D>("x");
            let layer = GroupNorm::<B> {
                weight: case.optional("weight"),
                bias: case.optional("bias"),
                num_groups: case.number("groups") as usize,
                num_channels: x.shape()[1],
                epsilon: case.number("epsilon"),
            };
            let inputs = [("x", any(&x)), ("weight", any_param(&layer.weight)), ("bias", any_param(&layer.bias))];
            case.check(layer.forward(x), &inputs);
        });
    });
}

#[test]
fn batch_norm() {
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
                mode: Mode::Auto,
            };
            if case.flag("training") {
                let inputs = [("x", any(&x)), ("weight", any_param(&layer.weight)), ("bias", any_param(&layer.bias))];
                case.check(layer.forward(x), &inputs);
            } else {
                case.compare("y", layer.valid().forward(x.inner()).into_data());
            }
            case.compare("new_running_mean", layer.running_mean.value().into_data());
            case.compare("new_running_var", layer.running_var.value().into_data());
        });
    });
}

#[test]
fn embedding() {
    each_case("index", &["embedding"], |case| {
        let without_padding = case.json["attributes"]["padding_index"].is_null();
        if !without_padding || case.rank("indices") != 2 {
            return;
        }
        let weight = case.param("weight");
        let layer = Embedding::<B> { weight, padding_idx: None, max_norm: None, norm_type: 2.0 };
        let inputs = [("weight", any(&layer.weight))];
        case.check(layer.forward(case.constant::<2, Int>("indices")), &inputs);
    });
}

#[test]
fn activations() {
    each_case(
        "activation",
        &["relu", "silu", "tanh", "sigmoid", "gelu", "leaky_relu", "softmax", "log_softmax"],
        |case| {
            with_rank!(case, D => {
                let x = case.input::<D>("x");
                let axis = || case.number("axis") as usize;
                let y = match case.op() {
                    "relu" => Relu::new().forward(x.clone()),
                    "silu" => Silu::new().forward(x.clone()),
                    "tanh" => Tanh::new().forward(x.clone()),
                    "sigmoid" => Sigmoid::new().forward(x.clone()),
                    "gelu" => Gelu { approximate: case.json["attributes"]["approximate"] == "tanh" }.forward(x.clone()),
                    "leaky_relu" => LeakyRelu { negative_slope: case.number("negative_slope") }.forward(x.clone()),
                    "softmax" => Softmax::new(axis()).forward(x.clone()),
                    _ => LogSoftmax::new(axis()).forward(x.clone()),
                };
                case.check(y, &[("x", any(&x))]);
            });
        },
    );
}

#[test]
fn mse() {
    each_case("loss", &["mse"], |case| {
        with_rank!(case, D => {
            let (x, target) = (case.input::<D>("x"), case.input::<D>("target"));
            let y = MseLoss::new().forward(x.clone(), target.clone(), case.reduction());
            case.check(y, &[("x", any(&x)), ("target", any(&target))]);
        });
    });
}

#[test]
fn cross_entropy() {
    each_case("loss", &["cross_entropy"], |case| {
        let attributes = &case.json["attributes"];
        let loss = CrossEntropyLoss::<B> {
            weights: case.has("weight").then(|| Param::buffer(case.constant("weight"))),
            label_smoothing: case.number("label_smoothing"),
            ignore_index: attributes["ignore_index"].as_i64(),
            pad_tokens: None,
            reduction: case.reduction(),
        };
        match case.rank("x") {
            2 => check_cross_entropy::<2, 1>(case, &loss),
            3 => check_cross_entropy::<3, 2>(case, &loss),
            4 => check_cross_entropy::<4, 3>(case, &loss),
            rank => panic!("no golden has logits of {rank} axes"),
        }
    });
}

fn check_cross_entropy<const D: usize, const T: usize>(case: &Case, loss: &CrossEntropyLoss<B>)
where
    Tensor<B, T, Int>: CrossEntropyTargets<B, D>,
{
    let x = case.input::<D>("x");
    let y = if case.data("target").dtype() == DType::I32 {
        loss.forward(x.clone(), case.constant::<T, Int>("target"))
    } else {
        loss.forward(x.clone(), case.constant::<D, Float>("target"))
    };
    case.check(y, &[("x", any(&x))]);
}
