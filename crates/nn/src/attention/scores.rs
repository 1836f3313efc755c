//! Attention of projected heads: masks, biases, and the choice between the fused kernel and explicit weights.

use super::input::Conditions;
use crate::Dropout;
use kiln_tensor::module::{self, AttentionMask, AttentionOptions, Causal};
use kiln_tensor::{Backend, Bool, DType, Int, Tensor, activation};

/// The keys that queries may attend to.
#[derive(Clone, Debug)]
pub(super) enum Reach<B: Backend> {
    /// All keys.
    All,
    /// Keys up to the position of the query. The last query is at the position of the last key.
    Causal,
    /// Keys up to the positions `[queries]`.
    At(Tensor<B, 1, Int>),
}

/// Masks and bias of the scores `[batch, heads, queries, keys]`; axes of length 1 broadcast.
#[derive(Clone, Debug)]
pub(super) struct ScoreMask<B: Backend> {
    /// True where a key is hidden.
    hidden: Option<Tensor<B, 4, Bool>>,
    bias: Option<Tensor<B, 4>>,
    causal: Causal,
}

impl<B: Backend> ScoreMask<B> {
    /// `window` hides keys at least that far before the query.
    ///
    /// # Panics
    /// When a mask or bias has another shape.
    #[track_caller]
    pub(super) fn new(
        name: &str,
        conditions: Conditions<B>,
        reach: Reach<B>,
        window: Option<usize>,
        [batch, heads, queries, keys]: [usize; 4],
        device: &B::Device,
    ) -> Self {
        let is_static = matches!(reach, Reach::At(_));
        let pad = conditions.mask_pad.map(|mask| {
            let dims @ [rows, columns] = mask.dims();
            let fits = (rows == batch || rows == 1) && (columns == keys || is_static && columns < keys);
            assert!(fits, "[{name}] the padding mask is {dims:?}, not [batch, keys] = {:?}", [batch, keys]);
            with_hidden_keys(mask.reshape([rows, 1, 1, columns]), keys)
        });
        let attn = conditions.mask_attn.map(|mask| {
            let dims @ [outer, rows, columns] = mask.dims();
            let fits = (outer == batch || outer == 1) && (rows == queries || rows == 1);
            assert!(
                fits && (columns == keys || is_static && columns < keys),
                "[{name}] the attention mask is {dims:?}, not [batch, queries, keys] = {:?}",
                [batch, queries, keys]
            );
            with_hidden_keys(mask.reshape([outer, 1, rows, columns]), keys)
        });
        let bias = conditions.attn_bias.inspect(|bias| {
            let (dims, full) = (bias.dims(), [batch, heads, queries, keys]);
            let fits = dims.iter().zip(full).all(|(&own, full)| own == full || own == 1);
            assert!(fits, "[{name}] the bias is {dims:?}, not [batch, heads, queries, keys] = {full:?}");
        });
        let (causal, positional) = positional(reach, window, queries, keys, device);
        let hidden = [pad, attn, positional].into_iter().flatten().reduce(Tensor::bool_or);
        ScoreMask { hidden, bias, causal }
    }

    /// Returns the masks for `count` more keys that every query attends to, without a bias.
    pub(super) fn with_visible_keys(
        mut self,
        count: usize,
        queries: usize,
        keys: usize,
        device: &B::Device,
    ) -> Self {
        if self.causal != Causal::No {
            let causal = hidden_after(queries, keys, device);
            self.hidden = Some(match self.hidden {
                Some(hidden) => hidden.bool_or(causal),
                None => causal,
            });
            self.causal = Causal::No;
        }
        let more = [(0, 0), (0, 0), (0, 0), (0, count)];
        self.hidden = self.hidden.map(|hidden| hidden.pad(more, false));
        self.bias = self.bias.map(|bias| {
            let [batch, heads, rows, _] = bias.dims();
            bias.expand([batch, heads, rows, keys]).pad(more, 0.0)
        });
        self
    }
}

/// Hides the keys of a static cache that a shorter mask does not cover.
fn with_hidden_keys<B: Backend>(mask: Tensor<B, 4, Bool>, keys: usize) -> Tensor<B, 4, Bool> {
    match keys - mask.dims()[3] {
        0 => mask,
        missing => mask.pad([(0, 0), (0, 0), (0, 0), (0, missing)], true),
    }
}

/// The mask by positions: a flag for the kernel where it suffices, otherwise a tensor that is true where hidden.
fn positional<B: Backend>(
    reach: Reach<B>,
    window: Option<usize>,
    queries: usize,
    keys: usize,
    device: &B::Device,
) -> (Causal, Option<Tensor<B, 4, Bool>>) {
    let before = |positions: Tensor<B, 1, Int>| {
        let window = window?;
        let oldest = (positions + 1).reshape([queries, 1]) - window;
        Some(key_positions(&oldest, keys).lower(oldest).reshape([1, 1, queries, keys]))
    };
    match reach {
        Reach::All => (Causal::No, None),
        Reach::Causal => (Causal::Last, before(query_positions(queries, keys, device))),
        Reach::At(positions) => {
            let rows = positions.clone().reshape([queries, 1]);
            let after = key_positions(&rows, keys).greater(rows).reshape([1, 1, queries, keys]);
            let hidden = match before(positions) {
                Some(before) => after.bool_or(before),
                None => after,
            };
            (Causal::No, Some(hidden))
        }
    }
}

/// The positions of queries where the last one is at the position of the last key.
pub(super) fn query_positions<B: Backend>(
    queries: usize,
    keys: usize,
    device: &B::Device,
) -> Tensor<B, 1, Int> {
    Tensor::arange(keys as i64 - queries as i64..keys as i64, device)
}

/// The positions of keys, `[1, keys]`, on the device and of the dtype of other positions.
fn key_positions<B: Backend>(like: &Tensor<B, 2, Int>, keys: usize) -> Tensor<B, 2, Int> {
    Tensor::<B, 1, Int>::arange(0..keys as i64, &like.device()).cast(like.dtype()).reshape([1, keys])
}

/// The causal mask, true where hidden.
fn hidden_after<B: Backend>(queries: usize, keys: usize, device: &B::Device) -> Tensor<B, 4, Bool> {
    module::causal_mask::<B>(queries, keys, Causal::Last, device).bool_not().reshape([1, 1, queries, keys])
}

/// Settings of attention that do not depend on the projections.
pub(super) struct HeadAttention<'a> {
    pub(super) dropout: &'a Dropout,
    pub(super) scale: Option<f64>,
    pub(super) quiet_softmax: bool,
}

impl HeadAttention<'_> {
    /// Returns the context `[batch, heads, queries, features]`, and the weights `[batch, heads, queries, keys]` if they
    /// are needed. Weights are those before dropout.
    #[track_caller]
    pub(super) fn run<B: Backend>(
        &self,
        q: Tensor<B, 4>,
        k: Tensor<B, 4>,
        v: Tensor<B, 4>,
        mask: ScoreMask<B>,
        need_weights: bool,
    ) -> (Tensor<B, 4>, Option<Tensor<B, 4>>) {
        let has_dropout = self.dropout.prob > 0.0 && self.dropout.mode.is_training(q.engine_stack());
        if need_weights || has_dropout || self.quiet_softmax {
            let (heads, kv_heads) = (q.dims()[1], k.dims()[1]);
            let weights = self.weights(q, repeat_heads(k, heads / kv_heads), mask);
            let context = self.dropout.forward(weights.clone()).matmul(repeat_heads(v, heads / kv_heads));
            return (context, need_weights.then_some(weights));
        }
        let options = AttentionOptions { scale: self.scale, causal: mask.causal };
        let mask = match (mask.hidden, mask.bias) {
            (None, None) => None,
            (Some(hidden), None) => Some(AttentionMask::Visible(hidden.bool_not())),
            (None, Some(bias)) => Some(AttentionMask::Additive(bias.cast(q.dtype()))),
            (Some(hidden), Some(bias)) => {
                let bias = bias.cast(q.dtype()).mask_fill(hidden, f64::NEG_INFINITY);
                Some(AttentionMask::Additive(bias))
            }
        };
        (module::attention(q, k, v, mask, options), None)
    }

    fn weights<B: Backend>(&self, q: Tensor<B, 4>, k: Tensor<B, 4>, mask: ScoreMask<B>) -> Tensor<B, 4> {
        let ([_, _, queries, features], keys) = (q.dims(), k.dims()[2]);
        let scale = self.scale.unwrap_or_else(|| 1.0 / libm::sqrt(features.max(1) as f64));
        let (dtype, device) = (q.dtype(), q.device());
        let scores = q.matmul(k.transpose()) * scale;
        let scores = match mask.bias {
            Some(bias) => scores + bias.cast(dtype),
            None => scores,
        };
        let causal = (mask.causal != Causal::No).then(|| hidden_after(queries, keys, &device));
        match [mask.hidden, causal].into_iter().flatten().reduce(Tensor::bool_or) {
            Some(hidden) => {
                // Finite, so that a query without visible keys has no NaN; its weights become zeros below.
                let lowest = if dtype == DType::F16 { -6e4 } else { -3e38 };
                self.normalized(scores.mask_fill(hidden.clone(), lowest)).mask_fill(hidden, 0.0)
            }
            None => self.normalized(scores),
        }
    }

    fn normalized<B: Backend>(&self, scores: Tensor<B, 4>) -> Tensor<B, 4> {
        if self.quiet_softmax { activation::quiet_softmax(scores, 3) } else { activation::softmax(scores, 3) }
    }
}

/// Repeats each head of `[batch, kv_heads, length, features]` for the query heads that share it.
fn repeat_heads<B: Backend>(x: Tensor<B, 4>, times: usize) -> Tensor<B, 4> {
    if times == 1 {
        return x;
    }
    let [batch, heads, length, features] = x.dims();
    let x = x.reshape([batch, heads, 1, length, features]);
    x.expand([batch, heads, times, length, features]).reshape([batch, heads * times, length, features])
}

/// Splits the features of `[batch, length, heads * features]` into heads: `[batch, heads, length, features]`.
pub(super) fn split_heads<B: Backend>(x: Tensor<B, 3>, heads: usize) -> Tensor<B, 4> {
    let [batch, length, width] = x.dims();
    x.reshape([batch, length, heads, width / heads.max(1)]).swap_dims(1, 2)
}

/// Joins the heads of `[batch, heads, length, features]`: `[batch, length, heads * features]`.
pub(super) fn join_heads<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 3> {
    let [batch, heads, length, features] = x.dims();
    x.swap_dims(1, 2).reshape([batch, length, heads * features])
}
