//! Matmul and convolution.

use super::{around, product, zero};
use crate::{ConvPass, ConvSpec, DType, Float8, Op, PadAxis, Scalar, Shape, SliceAxis, Var};
use alloc::vec::Vec;

/// A sum of products over a broadcast axis.
pub(super) fn matmul<'e>(a: &Var<'e>, b: &Var<'e>) -> Var<'e> {
    let dtype = if matches!(a.dtype(), DType::I8 | DType::U8) { DType::I32 } else { a.dtype() };
    let (rank, working) = (a.rank(), dtype.accumulator());
    let (m, k, n) = (a.shape()[rank - 2], a.shape()[rank - 1], b.shape()[rank - 1]);
    let batch = product(&a.shape()[..rank - 2]);
    let left = a.cast(working).reshape([batch, m, k, 1]);
    let right = b.cast(working).reshape([batch, 1, k, n]);
    (left * right).sum(&[2]).reshape(a.shape().with(rank - 1, n)).cast(dtype)
}

/// The matmul of the decoded 8-bit floats.
pub(super) fn matmul_float8<'e>(inputs: &[Var<'e>], formats: [Float8; 2], dtype: DType) -> Var<'e> {
    let product = formats[0].decoded(&inputs[0]).matmul(&formats[1].decoded(&inputs[1]));
    let scale = |place: usize| inputs[place].broadcast(product.shape());
    (&product * scale(2) * scale(3)).cast(dtype)
}

pub(super) fn conv<'e>(spec: &ConvSpec, x: &Var<'e>, w: &Var<'e>) -> Var<'e> {
    let columns = unfolded_padded(spec, x, &w.shape()[2..]);
    let space: Vec<usize> = columns.shape()[2..].to_vec();
    let (batch, out, groups) = (x.shape()[0], w.shape()[0], spec.groups);
    let depth = product(&w.shape()[1..]);
    let places = product(&space);
    let columns = columns.reshape([batch, groups, depth, places]);
    let y = w.reshape([1, groups, out / groups, depth]).matmul(&columns);
    let shape: Shape = [batch, out].iter().chain(&space).copied().collect();
    y.reshape(shape)
}

pub(super) fn conv_weight<'e>(spec: &ConvSpec, x: &Var<'e>, y: &Var<'e>, size: &[usize]) -> Var<'e> {
    let columns = unfolded_padded(spec, x, size);
    let (batch, channels, out, groups) = (x.shape()[0], x.shape()[1], y.shape()[1], spec.groups);
    let depth = channels / groups * product(size);
    let places = product(&y.shape()[2..]);
    let left = y.reshape([batch, groups, out / groups, places]).permute(&[1, 2, 0, 3]);
    let right = columns.reshape([batch, groups, depth, places]).permute(&[1, 0, 3, 2]);
    let w = left.reshape([groups, out / groups, batch * places]).matmul(&right.reshape([
        groups,
        batch * places,
        depth,
    ]));
    let shape: Shape = [out, channels / groups].iter().chain(size).copied().collect();
    w.reshape(shape)
}

/// The gradient of the input: a convolution of the dilated operand with the flipped kernel.
pub(super) fn conv_input<'e>(spec: &ConvSpec, y: &Var<'e>, w: &Var<'e>, size: &[usize]) -> Var<'e> {
    let (out, channels, groups) = (w.shape()[0], w.shape()[1], spec.groups);
    let kernel: Vec<usize> = w.shape()[2..].to_vec();
    let taps = product(&kernel);
    let turned = w.reshape([groups, out / groups, channels, taps]).permute(&[0, 2, 1, 3]);
    let turned_shape: Shape = [channels * groups, out / groups].iter().chain(&kernel).copied().collect();
    let mut turned = turned.reshape(turned_shape);
    let mut spread = y.clone();
    for (axis, &taps) in kernel.iter().enumerate() {
        let reach = spec.dilation[axis] * (taps - 1);
        let low = reach as isize - spec.padding[axis].0 as isize;
        spread = placed(&spread, axis + 2, spec.stride[axis], low, size[axis] + reach);
        turned = if taps > 1 { turned.flip(axis + 2) } else { turned };
    }
    let spec = ConvSpec { dilation: spec.dilation.clone(), groups, ..ConvSpec::new(size.len()) };
    spread.apply(Op::Conv { spec, pass: ConvPass::Forward }, &[&turned])
}

/// Scatters an axis with a stride: element `i` moves to index `low + i * step` of `len`, with zeros elsewhere. Elements
/// outside are dropped.
pub(super) fn placed<'e>(x: &Var<'e>, axis: usize, step: usize, low: isize, len: usize) -> Var<'e> {
    let span = match x.shape()[axis] {
        0 => 0,
        count => ((count - 1) * step + 1) as isize,
    };
    let high = len as isize - low - span;
    let mut pads = alloc::vec![PadAxis::default(); x.rank()];
    pads[axis] = PadAxis { low: low.max(0) as usize, high: high.max(0) as usize, interior: step - 1 };
    let padded = if pads[axis] == PadAxis::default() { x.clone() } else { x.pad(pads, zero(x.dtype())) };
    super::narrow(&padded, axis, (-low).max(0) as usize, len)
}

fn unfolded_padded<'e>(spec: &ConvSpec, x: &Var<'e>, kernel: &[usize]) -> Var<'e> {
    let x = padded(x, &spec.padding, Scalar::Float(0.0));
    unfolded(&x, kernel, &spec.stride, &spec.dilation)
}

/// Pads the spatial dimensions.
pub(super) fn padded<'e>(x: &Var<'e>, padding: &[(usize, usize)], fill: Scalar) -> Var<'e> {
    if padding.iter().all(|&sides| sides == (0, 0)) {
        return x.clone();
    }
    let none = [PadAxis::default(); 2];
    let space = padding.iter().map(|&(low, high)| PadAxis::new(low, high));
    x.pad(none.into_iter().chain(space).collect(), fill)
}

/// The windows over all spatial dimensions, merged into the channels (im2col): `[batch, channels, space..]` becomes
/// `[batch, channels * kernel.., windows..]`.
pub(super) fn unfolded<'e>(x: &Var<'e>, kernel: &[usize], step: &[usize], dilation: &[usize]) -> Var<'e> {
    let mut y = x.clone();
    for (axis, &size) in kernel.iter().enumerate() {
        if size == 1 && step[axis] == 1 {
            continue;
        }
        if size == 1 {
            let len = (y.shape()[axis + 2] - 1) / step[axis] + 1;
            y = y.slice_axis(axis + 2, SliceAxis { start: 0, len, step: step[axis] as isize });
            continue;
        }
        let shape = y.shape();
        let [before, len, after] = around(&shape, axis + 2);
        let (rows, before) = (shape[0] * shape[1], before.checked_div(shape[0] * shape[1]).unwrap_or(0));
        let windows = y.reshape([rows, before, len, after]).windows(2, size, step[axis], dilation[axis]);
        let count = windows.shape()[2];
        y = windows.permute(&[0, 4, 1, 2, 3]).reshape(shape.with(1, shape[1] * size).with(axis + 2, count));
    }
    y
}
