//! Attention and its gradient, with all scores in memory.

use crate::{AttentionSpec, Comparison, Reduction, Shape, TensorType, Var};
use alloc::vec::Vec;

/// The sizes of the operands. The queries of heads that share keys are stacked:
/// `[batch, kv_heads, heads / kv_heads * queries, _]`.
struct Heads {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
}

impl Heads {
    fn of(q: &Var<'_>, k: &Var<'_>) -> Heads {
        let (q, k) = (q.shape(), k.shape());
        Heads { batch: q[0], heads: q[1], kv_heads: k[1], queries: q[2], keys: k[2] }
    }

    /// Stacks the queries of all heads that share keys.
    fn stacked<'e>(&self, x: &Var<'e>) -> Var<'e> {
        let group = self.heads.checked_div(self.kv_heads).unwrap_or(0);
        x.reshape([self.batch, self.kv_heads, group * self.queries, x.shape()[3]])
    }

    fn unstacked<'e>(&self, x: &Var<'e>) -> Var<'e> {
        x.reshape([self.batch, self.heads, self.queries, x.shape()[3]])
    }

    /// The scores `[batch, heads, queries, keys]`: scaled, masked with `-inf`.
    fn scores<'e>(&self, spec: &AttentionSpec, q: &Var<'e>, k: &Var<'e>, mask: Option<&Var<'e>>) -> Var<'e> {
        let scores = self.unstacked(&self.stacked(q).matmul(&k.transpose())) * spec.scale.0;
        let hidden = scores.scalar(f64::NEG_INFINITY);
        let scores = match mask {
            Some(mask) if mask.dtype().is_bool() => mask.select(&scores, &hidden),
            Some(mask) => scores + mask.cast(q.dtype()),
            None => scores,
        };
        match spec.causal {
            Some(offset) => self.visible(q, offset).select(&scores, &hidden),
            None => scores,
        }
    }

    /// The causal mask: `bool[1, 1, queries, keys]`.
    fn visible<'e>(&self, q: &Var<'e>, offset: i64) -> Var<'e> {
        let ty =
            TensorType::new([1, 1, self.queries, self.keys], super::counter(self.queries.max(self.keys)));
        let ahead = Var::iota(q.engine(), ty, 3) - Var::iota(q.engine(), ty, 2);
        // Larger offsets have the same effect; clamped, the number fits the dtype.
        let offset = offset.clamp(-(self.queries as i64), self.keys as i64);
        ahead.compare(Comparison::Le, &ahead.scalar(offset))
    }
}

pub(super) fn attention<'e>(spec: &AttentionSpec, inputs: &[Var<'e>]) -> Vec<Var<'e>> {
    let (dtype, heads) = (inputs[0].dtype(), Heads::of(&inputs[0], &inputs[1]));
    let [q, k, v] = [0, 1, 2].map(|place| inputs[place].cast(dtype.accumulator()));
    let scores = heads.scores(spec, &q, &k, inputs.get(3));
    let greatest = visible_or_zero(&scores.reduce(Reduction::Max, &[3]));
    let exp = (scores - &greatest).exp();
    let sum = exp.sum(&[3]);
    let y = heads.unstacked(&heads.stacked(&exp).matmul(&v));
    // A fully masked query has the sum 0 and a numerator of zeros.
    let divisor = sum.equal(&sum.scalar(0.0)).select(&sum.scalar(1.0), &sum);
    let lse_shape: Shape = [heads.batch, heads.heads, heads.queries].into();
    alloc::vec![(y / divisor).cast(dtype), (sum.ln() + greatest).reshape(lse_shape)]
}

/// Replaces `-inf` maxima of fully masked rows by 0, so that subtracting them from `-inf` leaves `-inf`.
fn visible_or_zero<'e>(x: &Var<'e>) -> Var<'e> {
    x.equal(&x.scalar(f64::NEG_INFINITY)).select(&x.scalar(0.0), x)
}

pub(super) fn attention_grad<'e>(spec: &AttentionSpec, inputs: &[Var<'e>]) -> Vec<Var<'e>> {
    let (dtype, heads) = (inputs[1].dtype(), Heads::of(&inputs[1], &inputs[2]));
    let [grad, q, k, v, y] = [0, 1, 2, 3, 4].map(|place| inputs[place].cast(dtype.accumulator()));
    let lse = inputs[5].reshape([heads.batch, heads.heads, heads.queries, 1]);
    // A fully masked query has the log-sum-exp `-inf`. With `+inf` instead, its weights are 0.
    let masked = lse.equal(&lse.scalar(f64::NEG_INFINITY));
    let lse = masked.select(&lse.scalar(f64::INFINITY), &lse);
    let weights = (heads.scores(spec, &q, &k, inputs.get(6)) - lse).exp();
    let rows = heads.stacked(&grad);
    let dv = heads.stacked(&weights).transpose().matmul(&rows);
    let dweights = heads.unstacked(&rows.matmul(&v.transpose()));
    let delta = (&grad * &y).sum(&[3]);
    let dscores = heads.stacked(&(weights * (dweights - delta) * spec.scale.0));
    let dq = heads.unstacked(&dscores.matmul(&k));
    let dk = dscores.transpose().matmul(&heads.stacked(&q));
    [dq, dk, dv].iter().map(|gradient| gradient.cast(dtype)).collect()
}
