//! Normalisation.

use crate::call::{Call, Outputs, by_rank, one};
use kiln_ir::{NormKind, Op, Real, Var};
use kiln_nn::{BatchNorm, Param, RunningState};
use kiln_tensor::module;

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    match &*call.op {
        "layer_norm" | "rms_norm" => one(trailing(call)),
        "batch_norm" => batch_norm(call),
        "group_norm" => one(call.done(group_norm(call, call.count("groups")))),
        "instance_norm" => one(call.done(group_norm(call, call.var("x").shape()[1]))),
        "local_response_norm" => one(call.done(local_response_norm(call))),
        "normalize" => one(call.done(normalize(call))),
        op => panic!("unknown op {op}"),
    }
}

/// Over one trailing axis by the public function, over several by the op.
fn trailing(call: &Call<'_>) -> kiln_tensor::AnyTensor {
    let (epsilon, axes) = (call.real("epsilon"), call.counts("normalized_shape").len());
    let is_layer = call.op == "layer_norm";
    if axes > 1 {
        let kind = if is_layer { NormKind::Layer } else { NormKind::Rms };
        let operands: Vec<Var<'_>> =
            ["x", "weight", "bias"].iter().filter_map(|name| call.optional_var(name)).collect();
        let operands: Vec<&Var<'_>> = operands.iter().collect();
        let op = Op::Norm { kind, axes, epsilon: Real(epsilon) };
        return call.done(call.emit(op, &operands).remove(0));
    }
    let (weight, bias) = (call.optional_tensor::<1>("weight"), call.optional_tensor::<1>("bias"));
    let x = call.input("x").clone();
    match is_layer {
        true => by_rank!(x, |x| module::layer_norm(x, weight, bias, epsilon)),
        false => by_rank!(x, |x| module::rms_norm(x, weight, epsilon)),
    }
}

/// The layer trains on devices with automatic differentiation and uses running statistics on others.
fn batch_norm(call: &Call<'_>) -> Outputs {
    match (call.flag("training"), call.device.is_autodiff()) {
        (true, false) => return Ok(Vec::new()),
        (false, true) => return Ok(vec![Some(call.done(evaluated_batch_norm(call))), None, None]),
        (true, true) | (false, false) => {}
    }
    let parameter = |name: &str| Some(Param::from_tensor(call.optional_tensor::<1>(name)?));
    let layer = BatchNorm {
        weight: parameter("weight"),
        bias: parameter("bias"),
        running_mean: RunningState::new(call.tensor("running_mean")),
        running_var: RunningState::new(call.tensor("running_var")),
        num_features: call.input("x").shape()[1],
        momentum: call.real("momentum"),
        epsilon: call.real("epsilon"),
    };
    let y = by_rank!(call.input("x").clone(), |x| layer.forward(x));
    let (mean, variance) = (layer.running_mean.value(), layer.running_var.value());
    Ok(vec![Some(y), Some(mean.into_any()), Some(variance.into_any())])
}

/// With running statistics, under automatic differentiation.
fn evaluated_batch_norm<'c>(call: &'c Call<'_>) -> Var<'c> {
    let x = call.var("x");
    let mut shape = vec![1; x.rank()];
    shape[1] = x.shape()[1];
    let channel = |name: &str| call.optional_var(name).map(|var| var.reshape(&*shape));
    let statistic = |name: &str| channel(name).expect("running statistics");
    let variance = statistic("running_var");
    let deviation = (&variance + variance.scalar(call.real("epsilon"))).sqrt();
    let mut y = (x - statistic("running_mean")) / deviation;
    if let Some(weight) = channel("weight") {
        y = y * weight;
    }
    match channel("bias") {
        Some(bias) => y + bias,
        None => y,
    }
}

/// Each group of channels is a row; then each channel is scaled.
fn group_norm<'c>(call: &'c Call<'_>, groups: usize) -> Var<'c> {
    let x = call.var("x");
    let shape = x.shape();
    let (batch, channels) = (shape[0], shape[1]);
    let row: usize = shape.num_elements() / (batch * groups).max(1);
    let op = Op::Norm { kind: NormKind::Layer, axes: 1, epsilon: Real(call.real("epsilon")) };
    let mut y = call.emit(op, &[&x.reshape([batch, groups, row])]).remove(0).reshape(shape);
    let mut per_channel = vec![1; shape.rank()];
    per_channel[1] = channels;
    if let Some(weight) = call.optional_var("weight") {
        y = y * weight.reshape(&*per_channel);
    }
    match call.optional_var("bias") {
        Some(bias) => y + bias.reshape(&*per_channel),
        None => y,
    }
}

fn local_response_norm<'c>(call: &'c Call<'_>) -> Var<'c> {
    let x = call.var("x");
    let size = call.count("size");
    let mut pads = vec![kiln_ir::PadAxis::default(); x.rank()];
    pads[1] = kiln_ir::PadAxis::new(size / 2, (size - 1) / 2);
    let squares = x.square().pad(pads, 0.0).windows(1, size, 1, 1);
    let mean = squares.sum(&[x.rank()]).reshape(x.shape()) / size as f64;
    let base = mean * call.real("alpha") + call.full(x.shape(), x.dtype(), call.real("k"));
    let power = base.pow(&base.scalar(call.real("beta")));
    x / power
}

fn normalize<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (x, p) = (call.var("x"), call.real("p"));
    let norm = crate::reduce::vector_norm(&x, p, &[call.count("axis")]);
    let least = norm.scalar(call.real("epsilon"));
    &x / norm.max(&least)
}
