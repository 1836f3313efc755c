//! Softmax and normalisation, in a few of candle's ops, as `candle-nn` writes them.

use crate::call::{Call, Native, constant, rounded, widened};
use crate::reduce::{extreme, folded};
use candle_core::{Result, Tensor};
use kiln_ir::{Extremum, NormKind};

pub(crate) fn softmax(call: &Call<'_>, axis: usize, log: bool) -> Native {
    let x = widened(&call.tensor(0)?)?;
    let shifted = x.broadcast_sub(&folded(&x, &[axis], Extremum::Max)?)?;
    let exponentials = shifted.exp()?;
    let total = exponentials.sum_keepdim(axis)?;
    let y = match log {
        true => shifted.broadcast_sub(&total.log()?)?,
        false => exponentials.broadcast_div(&total)?,
    };
    rounded(&y, call.ty().dtype).map(Some)
}

pub(crate) fn log_sum_exp(call: &Call<'_>, axis: usize) -> Native {
    let x = widened(&call.tensor(0)?)?;
    let greatest = extreme(&x, &[axis], Extremum::Max)?;
    let total = x.broadcast_sub(&greatest)?.exp()?.sum_keepdim(axis)?;
    let is_infinite = greatest.abs()?.eq(f64::INFINITY)?;
    let y = is_infinite.where_cond(&greatest, &greatest.add(&total.log()?)?)?;
    rounded(&y, call.ty().dtype).map(Some)
}

pub(crate) fn norm(call: &Call<'_>, kind: NormKind, axes: usize, epsilon: f64) -> Native {
    let x = widened(&call.tensor(0)?)?;
    let row: Vec<usize> = (x.rank() - axes..x.rank()).collect();
    let centred = match kind {
        NormKind::Layer => x.broadcast_sub(&mean(&x, &row)?)?,
        NormKind::Rms => x,
    };
    let variance = mean(&centred.mul(&centred)?, &row)?;
    let deviation = variance.add(&constant(&variance, epsilon)?)?.sqrt()?;
    let mut y = centred.broadcast_div(&deviation)?;
    if let Some(weight) = call.optional(1)? {
        y = y.broadcast_mul(&widened(&weight)?)?;
    }
    if let Some(bias) = call.optional(2)? {
        y = y.broadcast_add(&widened(&bias)?)?;
    }
    rounded(&y, call.ty().dtype).map(Some)
}

fn mean(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let count: usize = axes.iter().map(|&axis| x.dims()[axis]).product();
    let total = x.sum_keepdim(axes)?;
    total.div(&constant(&total, count as f64)?)
}
