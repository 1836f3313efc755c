//! Pooling and its gradients.

use super::contraction::{padded, placed, unfolded};
use super::{around, counter, nan, product, zero};
use crate::{DType, Engine, PadAxis, PoolKind, PoolSpec, Reduction, Scalar, Shape, TensorType, Var};
use alloc::vec::Vec;

/// Both kinds reduce one axis after the other.
pub(super) fn pool<'e>(spec: &PoolSpec, x: &Var<'e>) -> Var<'e> {
    match spec.kind {
        PoolKind::Max => {
            let least = Reduction::Max.identity(x.dtype());
            let x = padded(x, &edges(spec), least);
            reduced(spec, &x, Reduction::Max)
        }
        PoolKind::Average { include_padding } => {
            let dtype = x.dtype();
            let size: Vec<usize> = x.shape()[2..].to_vec();
            let x = padded(&x.cast(dtype.accumulator()), &edges(spec), Scalar::Float(0.0));
            let sum = reduced(spec, &x, Reduction::Sum);
            averaged(spec, &sum, &size, include_padding).cast(dtype)
        }
    }
}

/// The total padding of each axis: padding and overhang.
fn edges(spec: &PoolSpec) -> Vec<(usize, usize)> {
    spec.padding.iter().zip(&spec.overhang).map(|(&(low, high), &over)| (low, high + over)).collect()
}

fn reduced<'e>(spec: &PoolSpec, x: &Var<'e>, reduction: Reduction) -> Var<'e> {
    let mut y = x.clone();
    for axis in 0..spec.window.len() {
        y = reduced_axis(&y, axis + 2, spec, axis, reduction);
    }
    y
}

/// Reduces the windows of the spec's axis `place` along `axis`.
fn reduced_axis<'e>(
    x: &Var<'e>,
    axis: usize,
    spec: &PoolSpec,
    place: usize,
    reduction: Reduction,
) -> Var<'e> {
    let windows = x.reshape(around(&x.shape(), axis)).windows(
        1,
        spec.window[place],
        spec.stride[place],
        spec.dilation[place],
    );
    let count = windows.shape()[1];
    windows.reduce(reduction, &[3]).reshape(x.shape().with(axis, count))
}

/// Divides by the divisor of each window.
fn averaged<'e>(spec: &PoolSpec, sum: &Var<'e>, size: &[usize], include_padding: bool) -> Var<'e> {
    let uniform = edges(spec).iter().all(|&sides| sides == (0, 0))
        || (include_padding && spec.overhang.iter().all(|&over| over == 0));
    if uniform {
        return sum / product(&spec.window) as f64;
    }
    let mut counts: Option<Var<'e>> = None;
    for (place, &len) in size.iter().enumerate() {
        let count = counted(sum.engine(), spec, place, len, include_padding, sum.dtype());
        let shape = Shape::new(alloc::vec![1; sum.rank()]).with(place + 2, sum.shape()[place + 2]);
        let count = count.reshape(shape);
        counts = Some(counts.map_or(count.clone(), |counts| counts * count));
    }
    counts.map_or_else(|| sum.clone(), |counts| sum / counts)
}

/// The number of counted elements of each window along one axis.
fn counted<'e>(
    engine: &'e dyn Engine,
    spec: &PoolSpec,
    place: usize,
    len: usize,
    include_padding: bool,
    dtype: DType,
) -> Var<'e> {
    let (low, high) = spec.padding[place];
    let (len, low, high) = if include_padding { (len + low + high, 0, 0) } else { (len, low, high) };
    let ones = Var::full(engine, TensorType::new([len], dtype), 1.0);
    let pad = PadAxis::new(low, high + spec.overhang[place]);
    let ones = if pad == PadAxis::default() { ones } else { ones.pad(alloc::vec![pad], Scalar::Float(0.0)) };
    reduced_axis(&ones, 0, spec, place, Reduction::Sum)
}

pub(super) fn pool_grad<'e>(spec: &PoolSpec, inputs: &[Var<'e>], size: &[usize]) -> Var<'e> {
    let dtype = inputs[0].dtype();
    let grad = inputs[0].cast(dtype.accumulator());
    let y = match spec.kind {
        PoolKind::Max => max_grad(spec, &grad, &inputs[1]),
        PoolKind::Average { include_padding } => average_grad(spec, &grad, size, include_padding),
    };
    y.cast(dtype)
}

/// The gradient of average pooling: every element sums the shares of the windows that contain it.
fn average_grad<'e>(spec: &PoolSpec, grad: &Var<'e>, size: &[usize], include_padding: bool) -> Var<'e> {
    let mut y = averaged(spec, grad, size, include_padding);
    for (place, &len) in size.iter().enumerate() {
        let reach = spec.window[place] - 1;
        let low = reach as isize - spec.padding[place].0 as isize;
        let spread = placed(&y, place + 2, spec.stride[place], low, len + reach);
        let windows = spread.reshape(around(&spread.shape(), place + 2)).windows(1, reach + 1, 1, 1);
        y = windows.sum(&[3]).reshape(spread.shape().with(place + 2, len));
    }
    y
}

/// Adds the gradient of each window to its first maximum.
fn max_grad<'e>(spec: &PoolSpec, grad: &Var<'e>, x: &Var<'e>) -> Var<'e> {
    let (shape, counts) = (x.shape(), grad.shape());
    let rows = shape[0] * shape[1];
    let taps = product(&spec.window);
    let places = product(&counts[2..]);
    let space = |first: [usize; 2]| -> Shape { first.iter().chain(&shape[2..]).copied().collect() };
    let columns = |x: &Var<'e>, fill: Scalar| {
        let x = padded(x, &edges(spec), fill);
        let rows = x.shape()[0];
        unfolded(&x, &spec.window, &spec.stride, &spec.dilation).reshape([rows, taps, places])
    };
    let inside = Var::full(x.engine(), TensorType::new(space([1, 1]), DType::Bool), true);
    let inside = columns(&inside, Scalar::Bool(false));
    let values = columns(&x.reshape(space([rows, 1])), Reduction::Max.identity(x.dtype()));
    let greatest = values.equal(&values.reduce(Reduction::Max, &[1]));
    let greatest = nan(&values).map_or_else(|| greatest.clone(), |nan| greatest.or(&nan)).and(&inside);
    let tap = Var::iota(x.engine(), TensorType::new([1, taps, 1], counter(taps)), 1);
    let first = greatest.select(&tap, &tap.scalar(taps)).reduce(Reduction::Min, &[1]);
    let share = tap.equal(&first).select(&grad.reshape([rows, 1, places]), &grad.scalar(zero(grad.dtype())));
    folded(spec, &share, rows, &shape[2..], &counts[2..]).reshape(shape)
}

/// Sums the windows `[rows, taps, places]` into their elements (col2im).
fn folded<'e>(spec: &PoolSpec, x: &Var<'e>, rows: usize, size: &[usize], counts: &[usize]) -> Var<'e> {
    let mut y = x.clone();
    let mut before = rows;
    for (place, (&len, &count)) in size.iter().zip(counts).enumerate() {
        let taps = spec.window[place];
        // The trailing extent: besides the folded axes, the taps and window positions of the remaining axes.
        let (more, after) = (product(&spec.window[place + 1..]), product(&counts[place + 1..]));
        let parts = y.reshape([before, taps, more, count, after]);
        let part = |tap: usize| {
            let part = super::narrow(&parts, 1, tap, 1);
            let low = (tap * spec.dilation[place]) as isize - spec.padding[place].0 as isize;
            placed(&part, 3, spec.stride[place], low, len)
        };
        let sum = (1..taps).fold(part(0), |sum, tap| sum + part(tap));
        y = sum.reshape([before, more, len, after]).permute(&[0, 2, 1, 3]);
        before *= len;
    }
    y
}
