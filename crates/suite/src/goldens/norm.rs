//! Normalisation.

use super::call::{Call, Outputs, by_rank, one};
use kiln_nn::{BatchNorm, Mode, Param, RunningState};
use kiln_tensor::{AnyTensor, Result};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    match &*call.op {
        "batch_norm" => batch_norm(call),
        "normalize" => one(normalize(call)),
        _ => one(method(call).unwrap_or_else(|error| panic!("{error}"))),
    }
}

fn method(call: &Call<'_>) -> Result<AnyTensor> {
    let optional = |name: &str| call.optional(name).cloned();
    let (x, weight, bias) = (call.input("x").clone(), optional("weight"), optional("bias"));
    match &*call.op {
        "layer_norm" => {
            x.layer_norm(call.counts("normalized_shape").len(), weight, bias, call.real("epsilon"))
        }
        "rms_norm" => x.rms_norm(call.counts("normalized_shape").len(), weight, call.real("epsilon")),
        "group_norm" => x.group_norm(call.count("groups"), weight, bias, call.real("epsilon")),
        "instance_norm" => x.instance_norm(weight, bias, call.real("epsilon")),
        "local_response_norm" => {
            x.local_response_norm(call.count("size"), call.real("alpha"), call.real("beta"), call.real("k"))
        }
        op => panic!("unknown op {op}"),
    }
}

fn batch_norm(call: &Call<'_>) -> Outputs {
    let parameter = |name: &str| Some(Param::from_tensor(call.optional_tensor::<1>(name)?));
    let layer = BatchNorm {
        weight: parameter("weight"),
        bias: parameter("bias"),
        running_mean: RunningState::new(call.tensor("running_mean")),
        running_var: RunningState::new(call.tensor("running_var")),
        num_features: call.input("x").shape()[1],
        momentum: call.real("momentum"),
        epsilon: call.real("epsilon"),
        mode: if call.flag("training") { Mode::Train } else { Mode::Eval },
    };
    let y = by_rank!(call.input("x").clone(), |x| layer.forward(x));
    let (mean, variance) = (layer.running_mean.value(), layer.running_var.value());
    Ok(vec![Some(y), Some(mean.into_any()), Some(variance.into_any())])
}

fn normalize(call: &Call<'_>) -> AnyTensor {
    let x = call.input("x").clone();
    let y = x.vector_normalize(call.real("p"), call.count("axis"), call.real("epsilon"));
    y.unwrap_or_else(|error| panic!("{error}"))
}
