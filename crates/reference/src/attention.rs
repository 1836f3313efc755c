//! Attention and its gradients, by their formulas
//! ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762); the gradient through the log-sum-exp as in
//! [Dao et al. 2022](https://arxiv.org/abs/2205.14135)).

use crate::call::Call;
use crate::numbers::{Number, Numbers, reals};
use crate::places::place;
use alloc::vec::Vec;
use kiln_ir::{AttentionSpec, Result, Shape, TensorData};

pub(crate) fn attention(call: &Call<'_>, spec: &AttentionSpec) -> Result<Vec<TensorData>> {
    let heads = Heads::new(spec, [call.data(0)?, call.data(1)?, call.data(2)?], call.optional(3)?);
    let mut y = alloc::vec![0.0; call.types[0].num_elements()];
    let mut lse = alloc::vec![0.0; call.types[1].num_elements()];
    for (query, row) in heads.queries().enumerate() {
        let scores = heads.scores(row);
        let greatest = visible(&scores).map(|(_, score)| score).fold(f64::NEG_INFINITY, f64::greater);
        // All scores are -inf: the query attends to no key.
        if greatest == f64::NEG_INFINITY {
            lse[query] = greatest;
            continue;
        }
        // Normalize by the sum, not by `exp(lse)`: `lse` is rounded, and large scores leave it no digits.
        let weight = |score: f64| libm::exp(score - greatest);
        let sum: f64 = visible(&scores).map(|(_, score)| weight(score)).sum();
        lse[query] = greatest + libm::log(sum);
        for (key, score) in visible(&scores) {
            let values = heads.v.row(heads.key_row(row, key));
            add_scaled(&mut y[query * heads.v.dim..], weight(score) / sum, values);
        }
    }
    Ok(alloc::vec![Numbers::Real(y).into_data(call.types[0])?, Numbers::Real(lse).into_data(call.types[1])?])
}

/// With weights `p = exp(s - lse)` and `d = Σ grad · y` of each query: `dv = pᵀ grad`, `ds = p (grad vᵀ - d)`,
/// `dq = scale ds k`, `dk = scale dsᵀ q`.
pub(crate) fn attention_grad(call: &Call<'_>, spec: &AttentionSpec) -> Result<Vec<TensorData>> {
    let heads = Heads::new(spec, [call.data(1)?, call.data(2)?, call.data(3)?], call.optional(6)?);
    let (grad, y) = (Rows::new(call.data(0)?), Rows::new(call.data(4)?));
    let lse = reals(call.data(5)?);
    let [mut dq, mut dk, mut dv] = [0, 1, 2].map(|i| alloc::vec![0.0; call.types[i].num_elements()]);
    for (query, row) in heads.queries().enumerate() {
        if lse[query] == f64::NEG_INFINITY {
            continue;
        }
        let (grad, d) = (grad.row(query), dot(grad.row(query), y.row(query)));
        for (key, score) in visible(&heads.scores(row)) {
            let weight = libm::exp(score - lse[query]);
            let key = heads.key_row(row, key);
            let ds = weight * (dot(grad, heads.v.row(key)) - d) * spec.scale.0;
            add_scaled(&mut dv[key * heads.v.dim..], weight, grad);
            add_scaled(&mut dq[query * heads.q.dim..], ds, heads.k.row(key));
            add_scaled(&mut dk[key * heads.k.dim..], ds, heads.q.row(query));
        }
    }
    [dq, dk, dv].into_iter().zip(call.types).map(|(d, ty)| Numbers::Real(d).into_data(*ty)).collect()
}

/// The operands of attention.
struct Heads<'a> {
    spec: &'a AttentionSpec,
    q: Rows,
    k: Rows,
    v: Rows,
    mask: Option<Mask>,
}

/// A tensor as rows along its last axis.
struct Rows {
    shape: Shape,
    dim: usize,
    elements: Vec<f64>,
}

/// An additive or boolean mask; its axes have the scores' lengths or 1.
struct Mask {
    shape: Shape,
    elements: Vec<f64>,
    /// Whether the mask is boolean: elements are 0 or 1, and 1 means visible.
    is_bool: bool,
}

impl<'a> Heads<'a> {
    fn new(spec: &'a AttentionSpec, [q, k, v]: [&TensorData; 3], mask: Option<&TensorData>) -> Heads<'a> {
        let mask = mask.map(|mask| Mask {
            shape: *mask.shape(),
            elements: reals(mask),
            is_bool: mask.dtype().is_bool(),
        });
        Heads { spec, q: Rows::new(q), k: Rows::new(k), v: Rows::new(v), mask }
    }

    /// The batch, head and number of each query, in row-major order.
    fn queries(&self) -> impl Iterator<Item = [usize; 3]> {
        let rows = self.q.shape.without(3);
        crate::places::positions(rows).map(|p| [p[0], p[1], p[2]])
    }

    /// The row of key number `key` of a query. Several query heads share one key head (grouped-query attention).
    fn key_row(&self, [batch, head, _]: [usize; 3], key: usize) -> usize {
        let shared_by = self.q.shape[1] / self.k.shape[1];
        (batch * self.k.shape[1] + head / shared_by) * self.k.shape[2] + key
    }

    /// The score of each key for a query; `None` where the key is masked.
    fn scores(&self, row: [usize; 3]) -> Vec<Option<f64>> {
        let query = self.q.row(place(&self.q.shape.without(3), &row));
        let score = |key: usize| {
            let causal =
                self.spec.causal.is_none_or(|offset| key as i128 <= row[2] as i128 + i128::from(offset));
            let added = self.mask.as_ref().map_or(Some(0.0), |mask| mask.added(row, key));
            let product = || dot(query, self.k.row(self.key_row(row, key)));
            added.filter(|_| causal).map(|added| self.spec.scale.0 * product() + added)
        };
        (0..self.k.shape[2]).map(score).collect()
    }
}

impl Rows {
    fn new(data: &TensorData) -> Rows {
        let shape = *data.shape();
        Rows { shape, dim: shape[3], elements: reals(data) }
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.elements[row * self.dim..(row + 1) * self.dim]
    }
}

impl Mask {
    /// The additive mask of a key, or `None` where the key is masked.
    fn added(&self, [batch, head, query]: [usize; 3], key: usize) -> Option<f64> {
        let indices = self.shape.iter().zip([batch, head, query, key]);
        let position: Shape = indices.map(|(&length, index)| if length == 1 { 0 } else { index }).collect();
        let element = self.elements[place(&self.shape, &position)];
        if self.is_bool { (element != 0.0).then_some(0.0) } else { Some(element) }
    }
}

/// The unmasked keys with their scores.
fn visible(scores: &[Option<f64>]) -> impl Iterator<Item = (usize, f64)> {
    scores.iter().enumerate().filter_map(|(key, score)| score.map(|score| (key, score)))
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add_scaled(totals: &mut [f64], factor: f64, row: &[f64]) {
    for (total, x) in totals.iter_mut().zip(row) {
        *total += factor * x;
    }
}
