//! Gradient rules of views and data movement.

use super::{Gradients, Rule, index_dtype};
use crate::{PadAxis, Shape, SliceAxis, TensorType, UpdateMode, Var};
use alloc::vec::Vec;

/// The maximum window size that is folded by shifted additions, whose order is the same on every machine; each costs a
/// pass over the whole tensor. Longer windows are added by index.
const MAX_SHIFTED_WINDOW: usize = 16;

impl<'e> Rule<'_, 'e> {
    pub(super) fn pad(&self, pads: &[PadAxis]) -> Gradients<'e> {
        self.linear(|g, x| {
            let inside = |(pad, &len): (&PadAxis, &usize)| SliceAxis {
                start: pad.low,
                len,
                step: pad.interior as isize + 1,
            };
            g.slice(pads.iter().zip(x.shape().iter()).map(inside).collect())
        })
    }

    pub(super) fn concat(&self, axis: usize) -> Gradients<'e> {
        let mut start = 0;
        let part = |(x, &wanted): (&Var<'e>, &bool)| {
            let range = start..start + x.shape()[axis];
            start = range.end;
            wanted.then(|| self.g().slice_axis(axis, SliceAxis::range(range)))
        };
        self.inputs.iter().zip(self.wanted).map(part).collect()
    }
}

/// The inverse of a slice: its elements at their original positions in a tensor of `shape`, zeros elsewhere.
pub(super) fn unslice<'e>(g: &Var<'e>, slices: &[SliceAxis], shape: Shape) -> Var<'e> {
    if slices.iter().any(|slice| slice.len == 0) {
        return Var::zeros(g.engine(), g.ty().with_shape(shape));
    }
    let mut ascending = g.clone();
    let mut pads = Vec::with_capacity(slices.len());
    for (axis, slice) in slices.iter().enumerate() {
        let (steps, step) = (slice.len - 1, slice.step.unsigned_abs());
        let (low, last) = if slice.step < 0 {
            if steps > 0 {
                ascending = ascending.flip(axis);
            }
            (slice.start - steps * step, slice.start)
        } else {
            (slice.start, slice.start + steps * step)
        };
        let interior = if steps == 0 { 0 } else { step - 1 };
        pads.push(PadAxis { low, high: shape[axis] - 1 - last, interior });
    }
    if pads.iter().all(|pad| *pad == PadAxis::default()) { ascending } else { ascending.pad(pads, 0.0) }
}

/// Sums overlapping windows back into the tensor of `shape` from which they were extracted.
pub(super) fn fold<'e>(g: &Var<'e>, shape: Shape, axis: usize, step: usize, dilation: usize) -> Var<'e> {
    let (count, size, last) = (g.shape()[axis], g.shape()[g.rank() - 1], g.rank() - 1);
    if size > MAX_SHIFTED_WINDOW {
        let (rows, columns) = along_windows(g, count, size);
        let index = rows * step as f64 + columns * dilation as f64;
        let mut order: Vec<usize> = (0..last).collect();
        order.insert(axis + 1, last);
        let zeros = Var::zeros(g.engine(), g.ty().with_shape(shape));
        return zeros.put(axis, UpdateMode::Add, &index, &g.permute(&order));
    }
    let shifted = |k: usize| {
        let element = g.slice_axis(last, SliceAxis::range(k..k + 1)).reshape(g.shape().without(last));
        let mut slices: Vec<SliceAxis> = shape.iter().map(|&len| SliceAxis::all(len)).collect();
        slices[axis] = SliceAxis { start: k * dilation, len: count, step: step as isize };
        unslice(&element, &slices, shape)
    };
    (1..size).fold(shifted(0), |sum, k| sum + shifted(k))
}

/// The window index and the index of the element within it, both `[count, size]`.
fn along_windows<'e>(g: &Var<'e>, count: usize, size: usize) -> (Var<'e>, Var<'e>) {
    let ty = TensorType::new([count, size], index_dtype(count.saturating_mul(size)));
    (Var::iota(g.engine(), ty, 0), Var::iota(g.engine(), ty, 1))
}
