//! Losses, by the methods of `AnyTensor`; cross-entropy and the squared error by the modules of `kiln_nn`.

use super::call::{Call, Outputs, one};
use kiln_backends::Dyn;
use kiln_nn::Param;
use kiln_nn::loss::{CrossEntropyLoss, MseLoss};
use kiln_tensor::loss::{ClassOptions, CtcOptions, Reduction};
use kiln_tensor::{AnyTensor, Result, Tensor};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let y = match &*call.op {
        "cross_entropy" => cross_entropy(call),
        "mse" => mse(call),
        _ => method(call).unwrap_or_else(|error| panic!("{error}")),
    };
    one(in_shape(call, y))
}

fn method(call: &Call<'_>) -> Result<AnyTensor> {
    let real = |name: &str| call.real(name);
    let input = |name: &str| call.input(name).clone();
    let optional = |name: &str| call.optional(name).cloned();
    let reduction = reduction(call);
    if call.op == "cosine_embedding" {
        let target = input("target");
        return input("a").cosine_embedding_loss(input("b"), target, real("margin"), reduction);
    }
    let (x, target) = (input("x"), input("target"));
    match &*call.op {
        "ctc" => {
            let blank = call.count("blank");
            let options = CtcOptions { blank, zero_infinity: call.flag("zero_infinity"), reduction };
            let lengths = (input("input_lengths"), input("target_lengths"));
            x.log_softmax(-1)?.ctc_loss(target, lengths.0, lengths.1, options)
        }
        "nll" => x.nll_loss(target, &class_options(call, 0.0)),
        "l1" => x.l1_loss(target, reduction),
        "smooth_l1" => x.smooth_l1_loss(target, real("beta"), reduction),
        "huber" => x.huber_loss(target, real("delta"), reduction),
        "bce_with_logits" => {
            let (weight, pos_weight) = (optional("weight"), optional("pos_weight"));
            x.binary_cross_entropy_with_logits_loss(target, weight, pos_weight, reduction)
        }
        "bce" => x.binary_cross_entropy_loss(target, None, reduction),
        "kl_div" => x.kl_div_loss(target, call.flag("log_target"), reduction),
        "poisson_nll" => {
            x.poisson_nll_loss(target, call.flag("log_input"), call.flag("full"), real("eps"), reduction)
        }
        op => panic!("unknown op {op}"),
    }
}

fn reduction(call: &Call<'_>) -> Reduction {
    match call.text("reduction") {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        "mean" => Reduction::Mean,
        "batchmean" => Reduction::BatchMean,
        other => panic!("unknown reduction {other}"),
    }
}

fn class_options(call: &Call<'_>, label_smoothing: f64) -> ClassOptions {
    ClassOptions {
        weight: call.optional("weight").cloned(),
        ignore_index: call.attributes["ignore_index"].as_i64(),
        label_smoothing,
        reduction: reduction(call),
    }
}

/// Reshapes a result of shape `[1]` or a flat result to the shape of the golden.
fn in_shape(call: &Call<'_>, y: AnyTensor) -> AnyTensor {
    let shape = *call.golden_tensor("y").shape();
    y.reshape(shape).expect("as many losses as expected")
}

fn cross_entropy(call: &Call<'_>) -> AnyTensor {
    let loss = CrossEntropyLoss {
        pad_tokens: None,
        weights: call.optional_tensor::<1>("weight").map(Param::buffer),
        label_smoothing: call.real("label_smoothing"),
        ignore_index: call.attributes["ignore_index"].as_i64(),
        reduction: reduction(call),
    };
    let probabilities = call.input("target").dtype().is_float();
    macro_rules! of_rank {
        ($rank:literal, $targets:literal) => {
            match probabilities {
                true => loss.forward(call.tensor::<$rank>("x"), call.tensor::<$rank>("target")),
                false => loss.forward(call.tensor::<$rank>("x"), call.int_tensor::<$targets>("target")),
            }
        };
    }
    let y: Tensor<Dyn, 1> = match call.input("x").rank() {
        2 => of_rank!(2, 1),
        3 => of_rank!(3, 2),
        4 => of_rank!(4, 3),
        rank => panic!("no golden has logits of {rank} axes"),
    };
    y.into_any()
}

fn mse(call: &Call<'_>) -> AnyTensor {
    let (x, target) = (call.tensor::<2>("x"), call.tensor::<2>("target"));
    match reduction(call) {
        Reduction::None => MseLoss::new().forward_no_reduction(x, target).into_any(),
        reduction @ (Reduction::Mean | Reduction::Sum | Reduction::BatchMean | Reduction::Auto) => {
            MseLoss::new().forward(x, target, reduction).into_any()
        }
    }
}
