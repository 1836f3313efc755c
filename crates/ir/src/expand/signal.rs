//! Interpolation and the Fourier transform.

use super::{around, counter};
use crate::{Binary, DType, Engine, FftKind, ResizeMode, Shape, TensorType, Var};
use alloc::vec::Vec;

/// The parameter of the cubic convolution.
const A: f64 = -0.75;

pub(super) fn resize<'e>(x: &Var<'e>, mode: ResizeMode, size: &[usize], align_corners: bool) -> Var<'e> {
    let dtype = x.dtype();
    // Rounding to 16 bits after each axis would lose more precision than one rounding at the end.
    let mut y = match mode {
        ResizeMode::Nearest => x.clone(),
        ResizeMode::Linear | ResizeMode::Cubic => x.cast(dtype.accumulator()),
    };
    for (place, &to) in size.iter().enumerate() {
        let axis = place + 2;
        // For an axis that keeps its length, the grid points equal the samples.
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

/// The weighted sum of the taps around each output position, computed with exact integer positions.
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
    // The smallest numerator is above minus the denominator: adding the denominator makes the division one of positive
    // integers.
    let quotient = (&numerator + denominator as f64) / denominator as f64 - 1.0;
    let part = (numerator - &quotient * denominator as f64).cast(x.dtype()) / denominator as f64;
    let weight_shape = Shape::new(alloc::vec![1; x.rank()]).with(axis, to);
    let tap = |offset: f64, weight: Var<'e>| {
        let index = if offset == 0.0 { quotient.clone() } else { &quotient + offset };
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

/// The DFT by its definition: a product with the matrix of the roots of unity. Its angles come from integers, so they
/// are as accurate for the last element as for the first.
pub(super) fn fft<'e>(inputs: &[Var<'e>], kind: FftKind, axis: usize, inverse: bool) -> Vec<Var<'e>> {
    let (shape, dtype) = (inputs[0].shape(), inputs[0].dtype());
    let sides = around(&shape, axis);
    let (from, points) = (sides[1], kind.points(sides[1]));
    let to = match kind {
        FftKind::Complex | FftKind::ToReal { .. } => points,
        FftKind::FromReal => points / 2 + 1,
    };
    let working = dtype.accumulator();
    let part = |place: usize| inputs[place].cast(working).reshape(sides);
    let engine = inputs[0].engine();
    let ty = TensorType::new([to, from], counter((to - 1).saturating_mul(from - 1)));
    let product = Var::iota(engine, ty, 0) * Var::iota(engine, ty, 1);
    let turns = product.binary(Binary::Rem, &product.scalar(points)).cast(working);
    let angle = turns * (core::f64::consts::TAU / points as f64);
    let (cos, sin) = (angle.cos(), angle.sin());
    let sin = if inverse { sin } else { -sin };
    let results = match kind {
        FftKind::Complex => {
            let (re, im) = (part(0), part(1));
            alloc::vec![cos.matmul(&re) - sin.matmul(&im), sin.matmul(&re) + cos.matmul(&im)]
        }
        FftKind::FromReal => alloc::vec![cos.matmul(&part(0)), sin.matmul(&part(0))],
        FftKind::ToReal { .. } => {
            let single = unmirrored(engine, TensorType::new([from, 1], DType::Bool), 0, points);
            let (re, im) = (part(0), part(1));
            let (re, im) = (single.select(&re, &(&re * 2.0)), single.select(&im.scalar(0), &(&im * 2.0)));
            alloc::vec![cos.matmul(&re) - sin.matmul(&im)]
        }
    };
    results.iter().map(|y| y.reshape(shape.with(axis, to)).cast(dtype)).collect()
}

/// A mask of the frequencies of half a spectrum that no conjugate mirrors, along an axis of the type: 0, and the
/// Nyquist frequency of an even number of points.
pub(crate) fn unmirrored<'e>(engine: &'e dyn Engine, ty: TensorType, axis: usize, points: usize) -> Var<'e> {
    let k = Var::iota(engine, ty.with_dtype(counter(points.saturating_mul(points))), axis);
    let product = &k * (&k * -2.0 + points as f64);
    product.equal(&product.scalar(0))
}
