//! Ops by index, order, padding, and rearrangements.

use super::call::{Call, Outputs, array, by_rank, one};
use kiln_ir::{Comparison, DType, Extremum, Op, PadAxis, SliceAxis, UpdateMode, Var};
use kiln_tensor::Tensor;

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let x = || call.var("x");
    let axis = || call.count("axis");
    let y = match &*call.op {
        "sort" => {
            return order(
                call,
                Op::Sort { axis: axis(), descending: call.flag("descending"), index: DType::I32 },
            );
        }
        "topk" => {
            let (k, largest) = (call.count("k"), call.flag("largest"));
            return order(call, Op::TopK { axis: axis(), k, largest, index: DType::I32 });
        }
        "argreduce" => arg_reduce(call),
        "gather" => gather(call),
        "scatter" => scatter(call, UpdateMode::Set),
        "scatter_add" => scatter(call, UpdateMode::Add),
        "scatter_reduce" => return scatter_reduce(call),
        "index_select" => {
            return one(by_rank!(call.input("x").clone(), |x| x.select(axis(), call.int_tensor("indices"))));
        }
        "index_add" => x().put(axis(), UpdateMode::Add, &call.var("indices"), &call.var("source")),
        "embedding" => embedding(call),
        "masked_fill" => call.var("mask").select(&x().scalar(call.real("value")), &x()),
        "one_hot" => return one_hot(call),
        "nonzero" => call.emit(Op::NonZero { index: DType::I32 }, &[&x()]).remove(0),
        "pad" => pad(call),
        "unfold" => x().windows(axis(), call.count("size"), call.count("step"), 1),
        "roll" => roll(call),
        "flip" => call.counts("axes").iter().fold(x(), |x, &axis| x.flip(axis)),
        "tril" => triangle(call, true),
        "triu" => triangle(call, false),
        "repeat_interleave" => repeat_interleave(call),
        "pixel_shuffle" => pixel_shuffle(call),
        "pixel_unshuffle" => pixel_unshuffle(call),
        op => panic!("unknown op {op}"),
    };
    one(call.done(y))
}

fn order(call: &Call<'_>, op: Op) -> Outputs {
    Ok(call.emit(op, &[&call.var("x")]).into_iter().map(|var| Some(call.done(var))).collect())
}

/// Without the axis that was searched.
fn arg_reduce<'c>(call: &'c Call<'_>) -> Var<'c> {
    let extremum = Extremum::from_name(call.text("kind")).expect("max or min");
    let axis = call.count("axis");
    let y = call.emit(Op::ArgReduce { extremum, axis, index: DType::I32 }, &[&call.var("x")]).remove(0);
    let shape = y.shape().without(axis);
    y.reshape(shape)
}

/// PyTorch's index may be shorter than the tensor along other axes: only that part is read.
fn part<'e>(x: &Var<'e>, index: &Var<'e>, axis: usize) -> Var<'e> {
    let shape = index.shape();
    let range = |(a, &len): (usize, &usize)| SliceAxis::all(if a == axis { len } else { shape[a] });
    let slices: Vec<SliceAxis> = x.shape().iter().enumerate().map(range).collect();
    x.slice(slices)
}

fn gather<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (x, index, axis) = (call.var("x"), call.var("indices"), call.count("axis"));
    part(&x, &index, axis).gather(axis, &index)
}

fn scatter<'c>(call: &'c Call<'_>, mode: UpdateMode) -> Var<'c> {
    let (x, index, axis) = (call.var("x"), call.var("indices"), call.count("axis"));
    let source = part_of_source(&call.var("source"), &index);
    let changed = part(&x, &index, axis);
    let updated = changed.scatter(axis, mode, &index, &source);
    if changed.shape() == x.shape() {
        return updated;
    }
    let slices: Vec<SliceAxis> = changed.shape().iter().map(|&len| SliceAxis::all(len)).collect();
    x.apply(Op::SliceUpdate { slices, mode: UpdateMode::Set }, &[&updated])
}

/// The source may be longer than the index: only its first part is written.
fn part_of_source<'e>(source: &Var<'e>, index: &Var<'e>) -> Var<'e> {
    source.slice(index.shape().iter().map(|&len| SliceAxis::all(len)).collect())
}

fn scatter_reduce(call: &Call<'_>) -> Outputs {
    let mode = match call.text("reduce") {
        "sum" => UpdateMode::Add,
        "prod" => UpdateMode::Mul,
        "amin" => UpdateMode::Min,
        "amax" => UpdateMode::Max,
        other => panic!("unknown reduction {other}"),
    };
    one(call.done(scatter(call, mode)))
}

/// A padding row gets no gradient: it is taken from a detached copy.
fn embedding<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (weight, index) = (call.var("weight"), call.var("indices"));
    let Some(padding) = call.attributes["padding_index"].as_i64() else { return weight.take(0, &index) };
    let fixed = call.constant(call.golden_tensor("weight"));
    let row = call.iota(weight.shape(), 0);
    let table = row.equal(&row.scalar(padding)).select(&fixed, &weight);
    table.take(0, &index)
}

fn one_hot(call: &Call<'_>) -> Outputs {
    let classes = call.count("classes");
    let index = call.input("indices");
    let shape: Vec<usize> = index.shape().iter().copied().chain([classes]).collect();
    let flat = index.clone().reshape([index.shape().num_elements()]).expect("as many elements");
    let flat: Tensor<_, 1, kiln_tensor::Int> =
        flat.try_into_tensor::<kiln_tensor::Dyn, 1, _>().expect("integers");
    one(flat.one_hot::<2>(classes).into_any().reshape(shape).expect("as many elements"))
}

/// Pairs of (before, after), the last axis first; negative ones crop.
fn pad<'c>(call: &'c Call<'_>) -> Var<'c> {
    let mut x = call.var("x");
    for (i, pair) in call.ints("padding").chunks(2).enumerate() {
        let axis = x.rank() - 1 - i;
        x = pad_axis(call, &x, axis, pair[0], pair[1]);
    }
    x
}

fn pad_axis<'c>(call: &'c Call<'_>, x: &Var<'c>, axis: usize, low: i64, high: i64) -> Var<'c> {
    let crop = |n: i64| n.min(0).unsigned_abs() as usize;
    let (length, grow) = (x.shape()[axis], |n: i64| n.max(0) as usize);
    let kept = SliceAxis { start: crop(low), len: length - crop(low) - crop(high), step: 1 };
    let (low, high) = (grow(low), grow(high));
    if call.text("mode") == "constant" {
        let mut pads = vec![PadAxis::default(); x.rank()];
        pads[axis] = PadAxis::new(low, high);
        return x.slice_axis(axis, kept).pad(pads, call.optional_real("value").unwrap_or(0.0));
    }
    let source = |i: i64| {
        let n = length as i64;
        match call.text("mode") {
            "reflect" if i < 0 => -i,
            "reflect" if i >= n => 2 * (n - 1) - i,
            "replicate" => i.clamp(0, n - 1),
            "circular" => i.rem_euclid(n),
            _ => i,
        }
    };
    let places: Vec<i32> = (-(low as i64)..(length + high) as i64).map(|i| source(i) as i32).collect();
    x.take(axis, &call.constant(places.into()))
}

fn roll<'c>(call: &'c Call<'_>) -> Var<'c> {
    let mut x = call.var("x");
    for (&shift, &axis) in call.ints("shifts").iter().zip(&call.counts("axes")) {
        let length = x.shape()[axis];
        let start = (-shift).rem_euclid(length as i64) as usize;
        let piece = |start, len| x.slice_axis(axis, SliceAxis { start, len, step: 1 });
        x = Var::concat(&[piece(start, length - start), piece(0, start)], axis);
    }
    x
}

fn triangle<'c>(call: &'c Call<'_>, lower: bool) -> Var<'c> {
    let x = call.var("x");
    let (row, column) = (call.iota(x.shape(), x.rank() - 2), call.iota(x.shape(), x.rank() - 1));
    let edge = row + call.full(x.shape(), DType::I32, call.int("diagonal"));
    let kept = match lower {
        true => column.compare(Comparison::Le, &edge),
        false => edge.compare(Comparison::Le, &column),
    };
    kept.select(&x, &x.scalar(0.0))
}

fn repeat_interleave<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (x, axis, times) = (call.var("x"), call.count("axis"), call.count("repeats"));
    let shape = x.shape();
    let spread = shape.inserted(axis + 1, 1);
    x.reshape(spread).broadcast(spread.with(axis + 1, times)).reshape(shape.with(axis, shape[axis] * times))
}

fn pixel_shuffle<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (x, f) = (call.var("x"), call.count("factor"));
    let [n, c, h, w] = array(&x.shape());
    x.reshape([n, c / (f * f), f, f, h, w]).permute(&[0, 1, 4, 2, 5, 3]).reshape([
        n,
        c / (f * f),
        h * f,
        w * f,
    ])
}

fn pixel_unshuffle<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (x, f) = (call.var("x"), call.count("factor"));
    let [n, c, h, w] = array(&x.shape());
    x.reshape([n, c, h / f, f, w / f, f]).permute(&[0, 1, 3, 5, 2, 4]).reshape([n, c * f * f, h / f, w / f])
}
