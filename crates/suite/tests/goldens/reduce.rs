//! Reductions and running reductions, in ops; `any`, `all` and sums over everything by the typed methods.

use crate::call::{Call, Outputs, one};
use kiln_ir::{DType, Extremum, Op, Reduction, SliceAxis, Var};
use kiln_tensor::{AnyTensor, Bool, Dyn, Tensor};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let x = || call.var("x");
    let keep = || call.flag("keep");
    let over = |reduced: Var<'_>| one(call.done(shaped(reduced, &axes(call), keep())));
    match &*call.op {
        "sum" => over(x().sum(&axes(call))),
        "mean" => over(x().mean(&axes(call))),
        "amin" => over(x().reduce(Reduction::Min, &axes(call))),
        "amax" => over(x().reduce(Reduction::Max, &axes(call))),
        "prod" => over(x().reduce(Reduction::Prod, &axes(call))),
        "logsumexp" => over(logsumexp(&x(), &axes(call))),
        "var" => over(variance(call)),
        "std" => over(variance(call).sqrt()),
        "vector_norm" => over(vector_norm(&x(), call.real("order"), &axes(call))),
        "max" => extreme(call, Extremum::Max),
        "min" => extreme(call, Extremum::Min),
        "median" => median(call),
        "cumsum" => one(call.done(scan(call, Reduction::Sum))),
        "cumprod" => one(call.done(scan(call, Reduction::Prod))),
        // The positions of running extremes are not offered.
        "cummax" => Ok(vec![Some(call.done(scan(call, Reduction::Max))), None]),
        "cummin" => Ok(vec![Some(call.done(scan(call, Reduction::Min))), None]),
        "logcumsumexp" => Err("there is no running log-sum-exp yet"),
        "any" | "all" => one(truth(call)),
        "diff" => one(call.done(diff(call))),
        op => panic!("unknown op {op}"),
    }
}

fn axes(call: &Call<'_>) -> Vec<usize> {
    let mut axes = call.optional_counts("axes").unwrap_or_else(|| (0..call.input("x").rank()).collect());
    axes.sort_unstable();
    axes
}

/// Without the reduced axes, unless they are kept.
fn shaped<'e>(reduced: Var<'e>, axes: &[usize], keep: bool) -> Var<'e> {
    if keep {
        return reduced;
    }
    let shape = reduced.shape();
    let rest: Vec<usize> =
        (0..shape.rank()).filter(|axis| !axes.contains(axis)).map(|axis| shape[axis]).collect();
    reduced.reshape(rest)
}

/// With the greatest element taken out first; where that is infinite it is the result.
fn logsumexp<'e>(x: &Var<'e>, axes: &[usize]) -> Var<'e> {
    let greatest = x.reduce(Reduction::Max, axes);
    let finite = greatest.abs().less(&greatest.scalar(f64::INFINITY));
    let shift = finite.select(&greatest, &greatest.scalar(0.0));
    (x - &shift).exp().sum(axes).ln() + shift
}

fn variance<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (x, axes) = (call.var("x"), axes(call));
    let count: usize = axes.iter().map(|&axis| x.shape()[axis]).product();
    let squares = (&x - x.mean(&axes)).square().sum(&axes);
    squares / (count as f64 - call.real("correction")).max(0.0)
}

/// The `order`-norm over axes, which stay with length 1.
pub(crate) fn vector_norm<'e>(x: &Var<'e>, order: f64, axes: &[usize]) -> Var<'e> {
    if order == f64::INFINITY {
        return x.abs().reduce(Reduction::Max, axes);
    }
    if order == 2.0 {
        return x.square().sum(axes).sqrt();
    }
    if order == 1.0 {
        return x.abs().sum(axes);
    }
    if order == 0.0 {
        let count = x.equal(&x.scalar(0.0)).select(&x.scalar(0.0), &(x * 0.0 + x.scalar(1.0)));
        return count.sum(axes);
    }
    let powers = x.abs();
    let sum = powers.pow(&powers.scalar(order)).sum(axes);
    sum.pow(&sum.scalar(1.0 / order))
}

/// The element at the position of the extreme, so that the gradient goes there alone.
fn extreme(call: &Call<'_>, extremum: Extremum) -> Outputs {
    let (x, axis) = (call.var("x"), call.count("axis"));
    let place = call.emit(Op::ArgReduce { extremum, axis, index: DType::I32 }, &[&x]).remove(0);
    let y = x.gather(axis, &place);
    let finish = |var: Var<'_>| Some(call.done(shaped(var, &[axis], call.flag("keep"))));
    Ok(vec![finish(y), finish(place)])
}

/// The lower of the two in the middle of a sorted axis; a NaN sorts last, where PyTorch would return it.
fn median(call: &Call<'_>) -> Outputs {
    let (x, axis) = (call.var("x"), call.count("axis"));
    let sorted = call.emit(Op::Sort { axis, descending: false, index: DType::I32 }, &[&x]);
    let middle = SliceAxis { start: (x.shape()[axis] - 1) / 2, len: 1, step: 1 };
    let pick =
        |var: &Var<'_>| Some(call.done(shaped(var.slice_axis(axis, middle), &[axis], call.flag("keep"))));
    Ok(vec![pick(&sorted[0]), pick(&sorted[1])])
}

fn scan<'c>(call: &'c Call<'_>, reduction: Reduction) -> Var<'c> {
    call.var("x").scan(reduction, call.count("axis"), false, false)
}

fn truth(call: &Call<'_>) -> AnyTensor {
    let x: Tensor<Dyn, 2, Bool> = call.input("x").clone().try_into_tensor().expect("bools of two axes");
    let axis = call.count("axis");
    let y = if call.op == "any" { x.any_dim(axis) } else { x.all_dim(axis) };
    y.squeeze_dim::<1>(axis).into_any()
}

fn diff<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (mut x, axis) = (call.var("x"), call.count("axis"));
    for _ in 0..call.count("n") {
        let len = x.shape()[axis] - 1;
        let part = |start| x.slice_axis(axis, SliceAxis { start, len, step: 1 });
        x = part(1) - part(0);
    }
    x
}
