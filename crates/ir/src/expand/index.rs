//! Indexed reads and writes by one-hot masks and reductions.

use super::{around, counter};
use crate::{Comparison, DType, PadAxis, Reduction, Scalar, SliceAxis, TensorType, UpdateMode, Var};
use alloc::vec::Vec;

pub(super) fn take<'e>(x: &Var<'e>, index: &Var<'e>, axis: usize) -> Var<'e> {
    let [before, len, after] = around(&x.shape(), axis);
    let count = index.shape().num_elements();
    let hits = hits(&index.reshape([1, count, 1]), len);
    let y = picked(&hits, &x.reshape([before, 1, len, after]), 2);
    let shape: Vec<usize> =
        x.shape()[..axis].iter().chain(index.shape().iter()).chain(&x.shape()[axis + 1..]).copied().collect();
    y.reshape(shape)
}

pub(super) fn gather<'e>(x: &Var<'e>, index: &Var<'e>, axis: usize) -> Var<'e> {
    let [before, len, after] = around(&x.shape(), axis);
    let hits = hits(&index.reshape(around(&index.shape(), axis)), len);
    picked(&hits, &x.reshape([before, 1, len, after]), 2).reshape(index.shape())
}

pub(super) fn put<'e>(
    base: &Var<'e>,
    index: &Var<'e>,
    source: &Var<'e>,
    axis: usize,
    mode: UpdateMode,
) -> Var<'e> {
    let [before, _, after] = around(&base.shape(), axis);
    let count = index.shape().num_elements();
    write(base, &index.reshape([1, count, 1]), &source.reshape([before, count, after]), axis, mode)
}

pub(super) fn scatter<'e>(
    base: &Var<'e>,
    index: &Var<'e>,
    source: &Var<'e>,
    axis: usize,
    mode: UpdateMode,
) -> Var<'e> {
    let sides = around(&index.shape(), axis);
    write(base, &index.reshape(sides), &source.reshape(sides), axis, mode)
}

/// The one-hot mask of an index `[a, count, b]`: `bool[a, count, len, b]`.
fn hits<'e>(index: &Var<'e>, len: usize) -> Var<'e> {
    // A narrow dtype would wrap if it cannot represent the positions.
    let index = if index.dtype().size() < 4 { index.cast(DType::I32) } else { index.clone() };
    let [before, count, after] = around(&index.shape(), 1);
    let place = Var::iota(index.engine(), TensorType::new([1, 1, len, 1], index.dtype()), 2);
    index.reshape([before, count, 1, after]).equal(&place)
}

/// The element along `axis` that the mask selects, bitwise; removes the axis.
fn picked<'e>(mask: &Var<'e>, x: &Var<'e>, axis: usize) -> Var<'e> {
    let fill = x.scalar(Reduction::Max.identity(x.dtype()));
    let y = mask.select(x, &fill).reduce(Reduction::Max, &[axis]);
    y.reshape(y.shape().without(axis))
}

/// Writes `source`, `[before, count, after]`, into the base at `index`, `[before or 1, count, after or 1]`.
fn write<'e>(base: &Var<'e>, index: &Var<'e>, source: &Var<'e>, axis: usize, mode: UpdateMode) -> Var<'e> {
    let (shape, dtype) = (base.shape(), base.dtype());
    let [before, len, after] = around(&shape, axis);
    let count = source.shape()[1];
    let base = base.reshape([before, len, after]);
    let source = source.reshape([before, count, 1, after]);
    let hits = hits(index, len);
    let reduction = match mode {
        UpdateMode::Set => return overwrite(&base, &hits, &source).reshape(shape),
        UpdateMode::Add => Reduction::Sum,
        UpdateMode::Mul => Reduction::Prod,
        UpdateMode::Min => Reduction::Min,
        UpdateMode::Max => Reduction::Max,
    };
    let source = source.cast(dtype.accumulator());
    let identity = source.scalar(reduction.identity(source.dtype()));
    let written = hits.select(&source, &identity).reduce(reduction, &[1]).reshape([before, len, after]);
    base.cast(source.dtype()).binary(reduction.binary(), &written).cast(dtype).reshape(shape)
}

/// Duplicate indices: the last entry for an element replaces it.
fn overwrite<'e>(base: &Var<'e>, hits: &Var<'e>, source: &Var<'e>) -> Var<'e> {
    let (shape, count) = (base.shape(), source.shape()[1]);
    let order = Var::iota(base.engine(), TensorType::new([1, count, 1, 1], counter(count)), 1);
    let last = hits.select(&order, &order.scalar(-1)).reduce(Reduction::Max, &[1]);
    let written = order.scalar(0).compare(Comparison::Le, &last).reshape(last.shape().without(1));
    let value = picked(&order.equal(&last), source, 1);
    written.select(&value, base).broadcast(shape)
}

pub(super) fn slice_update<'e>(
    base: &Var<'e>,
    source: &Var<'e>,
    slices: &[SliceAxis],
    mode: UpdateMode,
) -> Var<'e> {
    if source.shape().num_elements() == 0 {
        return base.clone();
    }
    let mut source = source.clone();
    let mut pads: Vec<PadAxis> = Vec::with_capacity(slices.len());
    for (axis, slice) in slices.iter().enumerate() {
        let reach = (slice.len - 1) * slice.step.unsigned_abs();
        let backwards = slice.step < 0 && slice.len > 1;
        if backwards {
            source = source.flip(axis);
        }
        let low = if backwards { slice.start - reach } else { slice.start };
        let high = base.shape()[axis] - low - reach - 1;
        pads.push(PadAxis { low, high, interior: slice.step.unsigned_abs() - 1 });
    }
    let inside = Var::full(base.engine(), source.ty().with_dtype(DType::Bool), true);
    let inside = inside.pad(pads.clone(), Scalar::Bool(false));
    let written = source.pad(pads, super::zero(base.dtype()));
    match mode.binary() {
        None => inside.select(&written, base),
        Some(function) => inside.select(&base.binary(function, &written), base),
    }
}
