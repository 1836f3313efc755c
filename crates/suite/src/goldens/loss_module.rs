//! Losses with parameters.

use super::call::{Call, Outputs};
use super::module::with_state_dict;
use kiln_backends::Dyn;
use kiln_nn::loss::AdaptiveLogSoftmaxWithLossConfig;

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    match &*call.op {
        "adaptive_log_softmax" => adaptive_log_softmax(call),
        op => panic!("unknown op {op}"),
    }
}

fn adaptive_log_softmax(call: &Call<'_>) -> Outputs {
    let x = call.tensor::<2>("x");
    let config =
        AdaptiveLogSoftmaxWithLossConfig::new(x.dims()[1], call.count("n_classes"), call.counts("cutoffs"))
            .with_div_value(call.real("div_value"))
            .with_head_bias(call.optional("head.bias").is_some());
    let model = with_state_dict(call, config.init::<Dyn>(&call.device), &["x", "target"]);
    let output = model.forward(x.clone(), call.int_tensor("target"));
    Ok(vec![
        Some(output.output.into_any()),
        Some(output.loss.into_any()),
        Some(model.log_prob(x.clone()).into_any()),
        Some(model.predict(x).into_any()),
    ])
}
