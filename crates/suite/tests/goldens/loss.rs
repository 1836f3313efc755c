//! Losses: cross-entropy and the squared error by `kiln_nn`, the others as formulas in ops.

use crate::call::{Call, Outputs, one};
use kiln_ir::{Comparison, Op, Var};
use kiln_nn::Param;
use kiln_nn::loss::{CrossEntropyLoss, MseLoss, Reduction};
use kiln_tensor::{AnyTensor, Dyn, Tensor};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let losses = match &*call.op {
        "cross_entropy" => return one(cross_entropy(call)),
        "mse" => return one(mse(call)),
        "ctc" => return Err("kiln-nn has no CTC loss yet"),
        "nll" => return one(call.done(nll(call))),
        "l1" => distance(call).abs(),
        "smooth_l1" => smooth_l1(call),
        "huber" => huber(call),
        "bce_with_logits" => bce_with_logits(call),
        "bce" => bce(call),
        "kl_div" => kl_div(call),
        "poisson_nll" => poisson_nll(call),
        "cosine_embedding" => cosine_embedding(call),
        op => panic!("unknown op {op}"),
    };
    one(call.done(reduced(call, losses)))
}

fn reduced<'c>(call: &'c Call<'_>, losses: Var<'c>) -> Var<'c> {
    let axes: Vec<usize> = (0..losses.rank()).collect();
    match call.text("reduction") {
        "none" => losses,
        "sum" => losses.sum(&axes).reshape([]),
        "mean" => losses.mean(&axes).reshape([]),
        "batchmean" => losses.sum(&axes).reshape([]) / losses.shape()[0] as f64,
        other => panic!("unknown reduction {other}"),
    }
}

fn reduction(call: &Call<'_>) -> Reduction {
    match call.text("reduction") {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        "mean" => Reduction::Mean,
        other => panic!("unknown reduction {other}"),
    }
}

/// The result of a loss of `kiln_nn`, `[1]` or flat, in the shape of the golden.
fn in_shape<const D: usize>(call: &Call<'_>, y: Tensor<Dyn, D>) -> AnyTensor {
    let shape = *call.golden_tensor("y").shape();
    y.into_any().reshape(shape).expect("as many losses as expected")
}

fn cross_entropy(call: &Call<'_>) -> AnyTensor {
    let loss = CrossEntropyLoss {
        weights: call.optional_tensor::<1>("weight").map(Param::buffer),
        label_smoothing: call.real("label_smoothing"),
        ignore_index: call.attributes["ignore_index"].as_i64(),
        reduction: reduction(call),
    };
    let probabilities = call.input("target").dtype().is_float();
    macro_rules! of_rank {
        ($rank:literal, $targets:literal) => {
            match probabilities {
                true => loss.forward_probabilities(call.tensor::<$rank>("x"), call.tensor::<$rank>("target")),
                false => {
                    loss.forward_spatial(call.tensor::<$rank>("x"), call.int_tensor::<$targets>("target"))
                }
            }
        };
    }
    let y = match call.input("x").rank() {
        2 => of_rank!(2, 1),
        3 => of_rank!(3, 2),
        4 => of_rank!(4, 3),
        rank => panic!("no golden has logits of {rank} axes"),
    };
    in_shape(call, y)
}

fn mse(call: &Call<'_>) -> AnyTensor {
    macro_rules! of_rank {
        ($rank:literal) => {{
            let (x, target) = (call.tensor::<$rank>("x"), call.tensor::<$rank>("target"));
            match reduction(call) {
                Reduction::None => MseLoss::new().forward_no_reduction(x, target).into_any(),
                reduction => in_shape(call, MseLoss::new().forward(x, target, reduction)),
            }
        }};
    }
    match call.input("x").rank() {
        1 => of_rank!(1),
        2 => of_rank!(2),
        3 => of_rank!(3),
        rank => panic!("no golden has predictions of {rank} axes"),
    }
}

/// The mean divides by the weights of the targets that count.
fn nll<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (x, target) = (call.var("x"), call.var("target"));
    let ignored = call.attributes["ignore_index"].as_i64().unwrap_or(-100);
    let ignored = target.equal(&target.scalar(ignored));
    let target = ignored.select(&target.scalar(0), &target);
    let shape = target.shape();
    let picked = x.gather(1, &target.reshape(shape.inserted(1, 1))).reshape(shape);
    let weight = match call.optional_var("weight") {
        Some(weight) => weight.take(0, &target),
        None => call.full(shape, x.dtype(), 1.0),
    };
    let weight = ignored.select(&weight.scalar(0.0), &weight);
    let losses = -(picked * &weight);
    let axes: Vec<usize> = (0..shape.rank()).collect();
    match call.text("reduction") {
        "mean" => losses.sum(&axes).reshape([]) / weight.sum(&axes).reshape([]),
        _ => reduced(call, losses),
    }
}

fn distance<'c>(call: &'c Call<'_>) -> Var<'c> {
    call.var("x") - call.var("target")
}

fn smooth_l1<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (d, beta) = (distance(call), call.real("beta"));
    let near = d.abs().less(&d.scalar(beta));
    near.select(&(d.square() / (2.0 * beta)), &(d.abs() - d.abs().scalar(beta / 2.0)))
}

fn huber<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (d, delta) = (distance(call), call.real("delta"));
    let near = d.abs().compare(Comparison::Le, &d.scalar(delta));
    near.select(&(d.square() * 0.5), &((d.abs() - d.scalar(delta / 2.0)) * delta))
}

/// `(1 - t) x + (1 + (p - 1) t) softplus(-x)`.
fn bce_with_logits<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (x, t) = (call.var("x"), call.var("target"));
    let negative = -&x;
    let softplus = negative.max(&x.scalar(0.0)) + (-x.abs()).exp().log1p();
    let softplus = match call.optional_var("pos_weight") {
        Some(weight) => ((weight - t.scalar(1.0)) * &t + t.scalar(1.0)) * softplus,
        None => softplus,
    };
    let losses = (1.0 - &t) * x + softplus;
    match call.optional_var("weight") {
        Some(weight) => losses * weight,
        None => losses,
    }
}

fn bce<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (x, t) = (call.var("x"), call.var("target"));
    let held = |log: Var<'c>| log.max(&log.scalar(-100.0));
    -(&t * held(x.ln()) + (1.0 - &t) * held((1.0 - &x).ln()))
}

fn kl_div<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (x, t) = (call.var("x"), call.var("target"));
    if call.flag("log_target") {
        return t.exp() * (&t - x);
    }
    let zero = t.equal(&t.scalar(0.0));
    let safe = zero.select(&t.scalar(1.0), &t);
    &t * (safe.ln() - x)
}

fn poisson_nll<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (x, t) = (call.var("x"), call.var("target"));
    match call.flag("log_input") {
        true => x.exp() - t * x,
        false => &x - t * (&x + x.scalar(call.real("eps"))).ln(),
    }
}

fn cosine_embedding<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (a, b, target) = (call.var("a"), call.var("b"), call.var("target"));
    let rows = a.shape()[0];
    // PyTorch adds a small number to each squared length, so that zeros have a cosine.
    let squared = |x: &Var<'c>| x.square().sum(&[1]) + x.scalar(f64::from(f32::EPSILON) * 1e-5);
    let cosine = (&a * &b).sum(&[1]) / (squared(&a) * squared(&b)).sqrt();
    let cosine = cosine.reshape([rows]);
    let apart = (&cosine - cosine.scalar(call.real("margin"))).max(&cosine.scalar(0.0));
    let together = target.cast(a.dtype()).equal(&a.scalar(1.0));
    together.select(&(1.0 - &cosine), &apart)
}

/// For modules.
pub(crate) fn softmax<'c>(call: &'c Call<'_>, x: &Var<'c>) -> Var<'c> {
    call.emit(Op::Softmax { axis: x.rank() - 1, log: false }, &[x]).remove(0)
}
