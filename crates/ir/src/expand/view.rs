//! Padding and windows.

use super::{around, narrow, zero};
use crate::{PadAxis, Scalar, SliceAxis, TensorType, Var};
use alloc::vec::Vec;

pub(super) fn pad<'e>(x: &Var<'e>, pads: &[PadAxis], fill: Scalar) -> Var<'e> {
    let mut y = x.clone();
    for (axis, pad) in pads.iter().enumerate() {
        y = between(&y, axis, pad.interior, fill);
        let filled = |len: usize| {
            let ty = y.ty().with_shape(y.shape().with(axis, len));
            (len != 0).then(|| Var::full(x.engine(), ty, fill))
        };
        let parts: Vec<Var<'e>> =
            [filled(pad.low), Some(y.clone()), filled(pad.high)].into_iter().flatten().collect();
        y = if parts.len() == 1 { y } else { Var::concat(&parts, axis) };
    }
    y
}

/// Interior padding: inserts `count` fill values between neighbours of one axis.
fn between<'e>(x: &Var<'e>, axis: usize, count: usize, fill: Scalar) -> Var<'e> {
    let [before, len, after] = around(&x.shape(), axis);
    if count == 0 || len < 2 {
        return x.clone();
    }
    let gaps = Var::full(x.engine(), TensorType::new([before, len, count, after], x.dtype()), fill);
    let spread = Var::concat(&[x.reshape([before, len, 1, after]), gaps], 2);
    let spread = spread.reshape([before, len * (count + 1), after]);
    let new = len * (count + 1) - count;
    narrow(&spread, 1, 0, new).reshape(x.shape().with(axis, new))
}

/// Windows, in the form with the fewest slices: one per element of a window, one per window, or one per step that a
/// window spans.
pub(super) fn windows<'e>(x: &Var<'e>, axis: usize, size: usize, step: usize, dilation: usize) -> Var<'e> {
    let count = (x.shape()[axis] - dilation * (size - 1) - 1) / step + 1;
    let shape = x.shape().with(axis, count).inserted(x.rank(), size);
    let [before, len, after] = around(&x.shape(), axis);
    let x = x.reshape([before, len, after]);
    let by_steps = if dilation == 1 { size.div_ceil(step) } else { usize::MAX };
    let y = if by_steps < size.min(count) {
        windows_by_steps(&x, size, step, count)
    } else if size <= count {
        let element = |k: usize| {
            let slice = SliceAxis { start: k * dilation, len: count, step: step as isize };
            x.slice_axis(1, slice).reshape([before, count, 1, after])
        };
        joined(&(0..size).map(element).collect::<Vec<_>>(), 2)
    } else {
        let window = |i: usize| {
            let slice = SliceAxis { start: i * step, len: size, step: dilation as isize };
            x.slice_axis(1, slice).reshape([before, 1, size, after])
        };
        joined(&(0..count).map(window).collect::<Vec<_>>(), 1)
    };
    y.permute(&[0, 1, 3, 2]).reshape(shape)
}

/// Windows `[before, count, size, after]` of neighbouring elements: the axis is split into chunks of one step, and each
/// window is a run of chunks.
fn windows_by_steps<'e>(x: &Var<'e>, size: usize, step: usize, count: usize) -> Var<'e> {
    let [before, len, after] = around(&x.shape(), 1);
    let span = size.div_ceil(step);
    let chunks = count + span - 1;
    let x = if len < chunks * step {
        let pads = [PadAxis::default(), PadAxis::new(0, chunks * step - len), PadAxis::default()];
        pad(x, &pads, zero(x.dtype()))
    } else {
        narrow(x, 1, 0, chunks * step)
    };
    let x = x.reshape([before, chunks, step, after]);
    let runs: Vec<Var<'e>> = (0..span).map(|start| narrow(&x, 1, start, count)).collect();
    narrow(&joined(&runs, 2), 2, 0, size)
}

fn joined<'e>(parts: &[Var<'e>], axis: usize) -> Var<'e> {
    if let [part] = parts { part.clone() } else { Var::concat(parts, axis) }
}
