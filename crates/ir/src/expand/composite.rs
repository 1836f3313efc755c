//! Softmax and normalization.

use crate::{NormKind, Reduction, Var};

pub(super) fn softmax<'e>(x: &Var<'e>, axis: usize, log: bool) -> Var<'e> {
    let dtype = x.dtype();
    let x = x.cast(dtype.accumulator());
    let shifted = &x - &x.reduce(Reduction::Max, &[axis]);
    let exp = shifted.exp();
    let sum = exp.sum(&[axis]);
    let y = if log { shifted - sum.ln() } else { exp / sum };
    y.cast(dtype)
}

/// Subtracts the maximum first to avoid overflow, unless it is infinite.
pub(super) fn log_sum_exp<'e>(x: &Var<'e>, axis: usize) -> Var<'e> {
    let dtype = x.dtype();
    let x = x.cast(dtype.accumulator());
    let greatest = x.reduce(Reduction::Max, &[axis]);
    let is_finite = greatest.abs().less(&greatest.scalar(f64::INFINITY));
    let shift = is_finite.select(&greatest, &greatest.scalar(0.0));
    let sum = (&x - &shift).exp().sum(&[axis]);
    (sum.ln() + shift).cast(dtype)
}

pub(super) fn norm<'e>(inputs: &[Var<'e>], kind: NormKind, axes: usize, epsilon: f64) -> Var<'e> {
    let dtype = inputs[0].dtype();
    let working = dtype.accumulator();
    let x = inputs[0].cast(working);
    let row: alloc::vec::Vec<usize> = (x.rank() - axes..x.rank()).collect();
    let x = match kind {
        NormKind::Layer => &x - &x.mean(&row),
        NormKind::Rms => x,
    };
    let mut y = &x * &(x.square().mean(&row) + epsilon).rsqrt();
    // Weight and bias align with the last axes, as in broadcasting.
    if let Some(weight) = inputs.get(1) {
        y = y * weight.cast(working);
    }
    if let Some(bias) = inputs.get(2) {
        y = y + bias.cast(working);
    }
    y.cast(dtype)
}
