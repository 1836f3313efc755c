//! Argmin and argmax, scans, and sorting.

use super::{around, counter, nan, narrow};
use crate::{Binary, Comparison, DType, Extremum, Reduction, Scalar, SliceAxis, TensorType, Var};
use alloc::vec::Vec;

pub(super) fn arg_reduce<'e>(x: &Var<'e>, extremum: Extremum, axis: usize, index: DType) -> Var<'e> {
    let reduction = match extremum {
        Extremum::Min => Reduction::Min,
        Extremum::Max => Reduction::Max,
    };
    let len = x.shape()[axis];
    let extreme = x.equal(&x.reduce(reduction, &[axis]));
    // A NaN makes the extreme NaN, which equals nothing.
    let extreme = nan(x).map_or_else(|| extreme.clone(), |nan| extreme.or(&nan));
    let place = Var::iota(x.engine(), TensorType::new(x.shape(), counter(len)), axis);
    extreme.select(&place, &place.scalar(len)).reduce(Reduction::Min, &[axis]).cast(index)
}

/// A scan by doubling: each step doubles the range that an element combines (Hillis-Steele).
pub(super) fn scan<'e>(
    x: &Var<'e>,
    reduction: Reduction,
    axis: usize,
    reverse: bool,
    exclusive: bool,
) -> Var<'e> {
    let (shape, dtype) = (x.shape(), x.dtype());
    let [before, len, after] = around(&shape, axis);
    let mut y = x.cast(dtype.accumulator()).reshape([before, len, after]);
    if exclusive && len > 0 {
        let ty = y.ty().with_shape([before, 1, after]);
        let first = Var::full(x.engine(), ty, reduction.identity(y.dtype()));
        let rest = narrow(&y, 1, reverse as usize, len - 1);
        y = Var::concat(&if reverse { [rest, first] } else { [first, rest] }, 1);
    }
    let mut reach = 1;
    while reach < len {
        let (near, far) = (narrow(&y, 1, reach, len - reach), narrow(&y, 1, 0, len - reach));
        let sum = combine(reduction, &far, &near);
        y = if reverse {
            Var::concat(&[sum, narrow(&y, 1, len - reach, reach)], 1)
        } else {
            Var::concat(&[narrow(&y, 1, 0, reach), sum], 1)
        };
        reach *= 2;
    }
    y.reshape(shape).cast(dtype)
}

/// Combines two tensors elementwise; for `bool`, minimum and maximum are `and` and `or`.
fn combine<'e>(reduction: Reduction, a: &Var<'e>, b: &Var<'e>) -> Var<'e> {
    let function = match (a.dtype().is_bool(), reduction) {
        (true, Reduction::Min) => Binary::And,
        (true, Reduction::Max) => Binary::Or,
        (_, reduction) => reduction.binary(),
    };
    a.binary(function, b)
}

/// The first `k` values and indices of a stable sort along an axis, by a bitonic network
/// ([Batcher 1968](https://doi.org/10.1145/1468075.1468121)) over integer keys; the index breaks ties.
pub(super) fn sort<'e>(x: &Var<'e>, axis: usize, k: usize, descending: bool, index: DType) -> Vec<Var<'e>> {
    let shape = x.shape();
    let [before, len, after] = around(&shape, axis);
    let padded = len.next_power_of_two();
    let flat = x.reshape([before, len, after]);
    let mut key = sort_key(&flat);
    if descending {
        key = key.not();
    }
    let last = Reduction::Min.identity(key.dtype());
    let place = TensorType::new([before, padded, after], counter(padded));
    let mut lanes = alloc::vec![lengthened(&key, padded, last), Var::iota(x.engine(), place, 1)];
    lanes.push(lengthened(&flat, padded, super::zero(x.dtype())));
    let mut block = 2;
    while block <= padded {
        lanes = exchanged(&lanes, block / 2, true);
        let mut half = block / 4;
        while half >= 1 {
            lanes = exchanged(&lanes, half, false);
            half /= 2;
        }
        block *= 2;
    }
    let result = |lane: &Var<'e>| narrow(lane, 1, 0, k).reshape(shape.with(axis, k));
    alloc::vec![result(&lanes[2]), result(&lanes[1]).cast(index)]
}

/// Integer sort keys in the order of the elements: NaN is greatest, and both zeros are equal.
fn sort_key<'e>(x: &Var<'e>) -> Var<'e> {
    let dtype = x.dtype();
    if dtype.is_bool() {
        return x.cast(DType::I32);
    }
    if !dtype.is_float() {
        return x.clone();
    }
    let x = x.cast(dtype.accumulator());
    let integer = if x.dtype() == DType::F64 { DType::I64 } else { DType::I32 };
    let greatest = Reduction::Min.identity(integer);
    // Adding 0 turns -0 into 0. The bits of negative floats grow away from zero; flipping all but the sign reverses
    // their order.
    let bits = (&x + 0.0).apply(crate::Op::Bitcast(integer), &[]);
    let turned = bits.binary(Binary::Xor, &bits.scalar(greatest));
    let key = bits.less(&bits.scalar(0)).select(&turned, &bits);
    x.compare(Comparison::Ne, &x).select(&key.scalar(greatest), &key)
}

fn lengthened<'e>(x: &Var<'e>, len: usize, fill: Scalar) -> Var<'e> {
    let shape = x.shape();
    if shape[1] == len {
        return x.clone();
    }
    let tail = Var::full(x.engine(), x.ty().with_shape(shape.with(1, len - shape[1])), fill);
    Var::concat(&[x.clone(), tail], 1)
}

/// One stage of the network on `[key, index, …]`: compares elements `half` apart. With `mirror`, it compares the first
/// of a block of `2 half` with its last, and so on inwards.
fn exchanged<'e>(lanes: &[Var<'e>], half: usize, mirror: bool) -> Vec<Var<'e>> {
    let [before, len, after] = around(&lanes[0].shape(), 1);
    let turn = |x: Var<'e>| if mirror && half > 1 { x.flip(3) } else { x };
    let halves = |lane: &Var<'e>| {
        let blocks = lane.reshape([before, len / (2 * half), 2, half, after]);
        let part = |start: usize| blocks.slice_axis(2, SliceAxis { start, len: 1, step: 1 });
        [part(0), turn(part(1))]
    };
    let pairs: Vec<[Var<'e>; 2]> = lanes.iter().map(halves).collect();
    let ([key_a, key_b], [place_a, place_b]) = (&pairs[0], &pairs[1]);
    let swap = key_b.less(key_a).or(&key_b.equal(key_a).and(&place_b.less(place_a)));
    let merge = |[a, b]: &[Var<'e>; 2]| {
        let (first, second) = (swap.select(b, a), turn(swap.select(a, b)));
        Var::concat(&[first, second], 2).reshape([before, len, after])
    };
    pairs.iter().map(merge).collect()
}
