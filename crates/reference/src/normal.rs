//! Softmax and normalisation.

use crate::call::Call;
use crate::numbers::{Number, Numbers, reals};
use crate::places::lines;
use alloc::vec::Vec;
use kiln_ir::{NormKind, Result, TensorData, TensorType};

/// Softmax or log-softmax. The maximum is subtracted first, so that exponentials do not overflow.
pub(crate) fn softmax(x: &TensorData, axis: usize, log: bool) -> Result<TensorData> {
    let mut y = reals(x);
    for line in lines(x.shape(), axis) {
        let greatest = line.places().map(|place| y[place]).fold(f64::NEG_INFINITY, f64::greater);
        let total: f64 = line.places().map(|place| libm::exp(y[place] - greatest)).sum();
        for place in line.places() {
            let shifted = y[place] - greatest;
            y[place] = if log { shifted - libm::log(total) } else { libm::exp(shifted) / total };
        }
    }
    Numbers::Real(y).into_data(x.ty())
}

/// Log-sum-exp. The maximum is subtracted first, so that exponentials do not overflow; an infinite maximum is the result.
pub(crate) fn log_sum_exp(x: &TensorData, axis: usize, ty: TensorType) -> Result<TensorData> {
    let (shape, x) = (x.shape(), reals(x));
    let y = lines(shape, axis).map(|line| {
        let greatest = line.places().map(|place| x[place]).fold(f64::NEG_INFINITY, f64::greater);
        let total: f64 = line.places().map(|place| libm::exp(x[place] - greatest)).sum();
        if greatest.is_infinite() { greatest } else { greatest + libm::log(total) }
    });
    let y = y.collect();
    Numbers::Real(y).into_data(ty)
}

pub(crate) fn norm(call: &Call<'_>, kind: NormKind, axes: usize, epsilon: f64) -> Result<TensorData> {
    let x = call.data(0)?;
    let weight = call.optional(1)?.map(reals);
    let bias = call.optional(2)?.map(reals);
    let row_len: usize = x.shape()[x.shape().rank() - axes..].iter().product();
    let mut y = reals(x);
    for row in y.chunks_mut(row_len.max(1)) {
        normalise(row, kind, epsilon);
        for (i, y) in row.iter_mut().enumerate() {
            *y = *y * weight.as_ref().map_or(1.0, |w| w[i]) + bias.as_ref().map_or(0.0, |b| b[i]);
        }
    }
    Numbers::Real(y).into_data(x.ty())
}

fn normalise(row: &mut [f64], kind: NormKind, epsilon: f64) {
    let count = row.len() as f64;
    let mean = match kind {
        NormKind::Layer => row.iter().sum::<f64>() / count,
        NormKind::Rms => 0.0,
    };
    let centred: Vec<f64> = row.iter().map(|x| x - mean).collect();
    let variance = centred.iter().map(|x| x * x).sum::<f64>() / count;
    for (y, x) in row.iter_mut().zip(centred) {
        *y = x / libm::sqrt(variance + epsilon);
    }
}
