//! Interpolation and the Fourier transform.

use super::{around, counter};
use crate::{Binary, ResizeMode, Shape, TensorType, Var};
use alloc::vec::Vec;

/// The parameter of the cubic convolution.
const A: f64 = -0.75;

pub(super) fn resize<'e>(x: &Var<'e>, mode: ResizeMode, size: &[usize], align_corners: bool) -> Var<'e> {
    let dtype = x.dtype();
    // Rounding to 16 bits after each axis would lose more than the one rounding at the end.
    let mut y = match mode {
        ResizeMode::Nearest => x.clone(),
        ResizeMode::Linear | ResizeMode::Cubic => x.cast(dtype.accumulator()),
    };
    for (place, &to) in size.iter().enumerate() {
        let axis = place + 2;
        // The grid of an axis that keeps its length falls on the samples.
        if x.shape()[axis] == to {
            continue;
        }
        y = match mode {
            ResizeMode::Nearest => nearest(&y, axis, to),
            ResizeMode::Linear => interpolated(&y, axis, to, align_corners, false),
            ResizeMode::Cubic => interpolated(&y, axis, to, align_corners, true),
        };
    }
    y.cast(dtype)
}

fn nearest<'e>(x: &Var<'e>, axis: usize, to: usize) -> Var<'e> {
    let from = x.shape()[axis];
    let place = Var::iota(x.engine(), TensorType::new([to], counter(from.saturating_mul(to))), 0);
    x.take(axis, &(place * from as f64 / to as f64))
}

/// The weighted taps around each place, which whole numbers find exactly.
fn interpolated<'e>(x: &Var<'e>, axis: usize, to: usize, align_corners: bool, cubic: bool) -> Var<'e> {
    let from = x.shape()[axis];
    let place = TensorType::new([to], counter((from + to).saturating_mul(4 * to)));
    let place = Var::iota(x.engine(), place, 0);
    let (numerator, denominator) = if align_corners {
        (place * (from - 1) as f64, (to - 1).max(1))
    } else {
        ((place * 2.0 + 1.0) * from as f64 - to as f64, 2 * to)
    };
    let numerator = if cubic { numerator } else { numerator.max(&numerator.scalar(0)) };
    // The least numerator is above minus the denominator: adding that makes the division one of positive numbers.
    let whole = (&numerator + denominator as f64) / denominator as f64 - 1.0;
    let part = (numerator - &whole * denominator as f64).cast(x.dtype()) / denominator as f64;
    let weight_shape = Shape::new(&alloc::vec![1; x.rank()]).with(axis, to);
    let tap = |offset: f64, weight: Var<'e>| {
        let index = if offset == 0.0 { whole.clone() } else { &whole + offset };
        let index = clamped(&index, from - 1);
        x.take(axis, &index) * weight.reshape(weight_shape)
    };
    let rest = 1.0 - &part;
    if cubic {
        tap(-1.0, outer(&(&part + 1.0)))
            + tap(0.0, inner(&part))
            + tap(1.0, inner(&rest))
            + tap(2.0, outer(&(&rest + 1.0)))
    } else {
        tap(0.0, rest) + tap(1.0, part)
    }
}

fn clamped<'e>(index: &Var<'e>, last: usize) -> Var<'e> {
    index.max(&index.scalar(0)).min(&index.scalar(last))
}

/// The weight of a tap at a distance of at most 1.
fn inner<'e>(t: &Var<'e>) -> Var<'e> {
    (t * (A + 2.0) - (A + 3.0)) * t.square() + 1.0
}

/// The weight of a tap at a distance from 1 to 2.
fn outer<'e>(t: &Var<'e>) -> Var<'e> {
    ((t * A - 5.0 * A) * t + 8.0 * A) * t - 4.0 * A
}

/// The definition, as a product with the matrix of the roots of unity. Its angles come from whole numbers, so they
/// are as accurate for the last element as for the first.
pub(super) fn fft<'e>(re: &Var<'e>, im: &Var<'e>, axis: usize, inverse: bool) -> Vec<Var<'e>> {
    let (shape, dtype) = (re.shape(), re.dtype());
    let sides = around(&shape, axis);
    let len = sides[1];
    let working = dtype.accumulator();
    let [re, im] = [re, im].map(|x| x.cast(working).reshape(sides));
    let ty = TensorType::new([len, len], counter((len - 1).saturating_mul(len - 1)));
    let product = Var::iota(re.engine(), ty, 0) * Var::iota(re.engine(), ty, 1);
    let turns = product.binary(Binary::Rem, &product.scalar(len)).cast(working);
    let angle = turns * (core::f64::consts::TAU / len as f64);
    let (cos, sin) = (angle.cos(), angle.sin());
    let sin = if inverse { sin } else { -sin };
    let y_re = cos.matmul(&re) - sin.matmul(&im);
    let y_im = sin.matmul(&re) + cos.matmul(&im);
    [y_re, y_im].iter().map(|y| y.reshape(shape).cast(dtype)).collect()
}
