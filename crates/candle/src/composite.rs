//! Softmax and normalisation, in a few of candle's ops, as `candle-nn` writes them.

use crate::library::{CandleCore, constant};
use crate::reduce::{extreme, folded};
use candle_core::{Result, Tensor};
use kiln_foreign::Composite;
use kiln_ir::{Extremum, NormKind};

impl Composite for CandleCore {
    fn softmax(x: &Tensor, axis: usize, log: bool) -> Result<Tensor> {
        let shifted = x.broadcast_sub(&folded(x, &[axis], Extremum::Max)?)?;
        let exponentials = shifted.exp()?;
        let total = exponentials.sum_keepdim(axis)?;
        match log {
            true => shifted.broadcast_sub(&total.log()?),
            false => exponentials.broadcast_div(&total),
        }
    }

    fn log_sum_exp(x: &Tensor, axis: usize) -> Result<Tensor> {
        let greatest = extreme(x, &[axis], Extremum::Max)?;
        let total = x.broadcast_sub(&greatest)?.exp()?.sum_keepdim(axis)?;
        let is_infinite = greatest.abs()?.eq(f64::INFINITY)?;
        is_infinite.where_cond(&greatest, &greatest.add(&total.log()?)?)
    }

    fn norm(
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        kind: NormKind,
        axes: usize,
        epsilon: f64,
    ) -> Result<Tensor> {
        let row: Vec<usize> = (x.rank() - axes..x.rank()).collect();
        let centred = match kind {
            NormKind::Layer => x.broadcast_sub(&mean(x, &row)?)?,
            NormKind::Rms => x.clone(),
        };
        let variance = mean(&centred.mul(&centred)?, &row)?;
        let deviation = variance.add(&constant(&variance, epsilon)?)?.sqrt()?;
        let y = centred.broadcast_div(&deviation)?;
        let y = weight.map_or(Ok(y.clone()), |weight| y.broadcast_mul(weight))?;
        bias.map_or(Ok(y.clone()), |bias| y.broadcast_add(bias))
    }
}

fn mean(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let count: usize = axes.iter().map(|&axis| x.dims()[axis]).product();
    let total = x.sum_keepdim(axes)?;
    total.div(&constant(&total, count as f64)?)
}
