//! Keys and values of a decoder, and the state that its layers share in a forward pass.
//!
//! A token of a decoder runs few and small kernels for each layer. So masks, rotary angles and the position are
//! computed once for each pass, not once for each layer, and the cache is written in place.

use std::fmt;

use kiln_nn::attention::RotaryEncoding;
use kiln_tensor::module::{self, AttentionMask, AttentionOptions, Causal};
use kiln_tensor::{Backend, Bool, DType, Int, Tensor, UpdateMode, activation, s};
use kiln_text::{GenerationCache, LogitsOf};

/// The minimum number of keys that attention to a cache covers. The number doubles as the cache fills, so that a
/// sequence needs few shapes.
const MIN_KEYS: usize = 256;

/// The shape of a [`DecoderCache`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheShape {
    pub(crate) layers: usize,
    pub(crate) batch: usize,
    pub(crate) heads: usize,
    pub(crate) max_length: usize,
    pub(crate) head_dim: usize,
}

/// Keys and values of all layers of a decoder, in buffers of constant size, with the position of the next token.
#[derive(Clone)]
pub struct DecoderCache<B: Backend> {
    layers: Vec<LayerCache<B>>,
    /// The position of the next token on the device, `[1]`: each token runs the same program.
    position: Tensor<B, 1, Int>,
    /// The same position on the host.
    length: usize,
    shape: CacheShape,
    rotary: Option<RotaryTable<B>>,
}

/// Keys and values of a layer, `[batch, heads, max_length, head_dim]`.
#[derive(Clone)]
pub(crate) struct LayerCache<B: Backend> {
    keys: Tensor<B, 4>,
    values: Tensor<B, 4>,
}

impl<B: Backend> DecoderCache<B> {
    pub(crate) fn new(
        shape: CacheShape,
        dtype: DType,
        rotary: Option<RotaryTable<B>>,
        device: &B::Device,
    ) -> Self {
        let CacheShape { batch, heads, max_length, head_dim, .. } = shape;
        let zeros = || Tensor::<B, 4>::zeros([batch, heads, max_length, head_dim], device).cast(dtype);
        let layer = |_| LayerCache { keys: zeros(), values: zeros() };
        let position = Tensor::from_ints([0], device);
        DecoderCache { layers: (0..shape.layers).map(layer).collect(), position, length: 0, shape, rotary }
    }

    /// Returns the number of tokens of each row, padding included.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the cache has no tokens.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the number of positions of each row.
    pub fn max_length(&self) -> usize {
        self.shape.max_length
    }

    /// Returns the number of rows.
    pub fn batch(&self) -> usize {
        self.shape.batch
    }

    /// Sets the number of tokens of each row. A device then treats the first `length` positions as written: a program
    /// that measures the time of a token can start at any position.
    ///
    /// # Panics
    /// When `length` is greater than `max_length`.
    #[track_caller]
    pub fn set_len(&mut self, length: usize) {
        let max = self.shape.max_length;
        assert!(length <= max, "[DecoderCache] length {length} exceeds max_length {max}");
        self.length = length;
        self.position = self.position.full_like(length as i64);
    }

    /// Returns the state of a pass of `[batch, new]` tokens, and counts the tokens. `padding` is the number of padding
    /// tokens of each row, `[batch]`; `window` is the number of keys that layers with a sliding window attend to.
    ///
    /// # Panics
    /// When the batch differs, or the tokens do not fit.
    #[track_caller]
    pub(crate) fn pass(
        &mut self,
        [batch, new]: [usize; 2],
        padding: Option<Tensor<B, 1, Int>>,
        window: Option<usize>,
    ) -> (Pass<B>, &mut [LayerCache<B>]) {
        let (start, max) = (self.length, self.shape.max_length);
        let end = start + new;
        assert!(
            batch == self.shape.batch && new > 0,
            "[DecoderCache] the input is [{batch}, {new}], the cache has {} rows",
            self.shape.batch
        );
        assert!(end <= max, "[DecoderCache] positions {start}..{end} do not fit: max_length is {max}");
        let slot = match new {
            1 => Slot::Device { position: self.position.clone(), keys: covered(end).min(max) },
            _ => Slot::Host { start },
        };
        let device = self.position.device();
        let pass = Pass::new(slot, [new, end], self.rotary.as_ref(), padding, window, &device);
        self.length = end;
        self.position = self.position.clone() + new as i64;
        (pass, &mut self.layers)
    }
}

fn covered(end: usize) -> usize {
    end.next_power_of_two().max(MIN_KEYS)
}

impl<B: Backend> GenerationCache for DecoderCache<B> {
    fn reset(&mut self) {
        self.set_len(0);
    }

    fn truncate(&mut self, length: usize) -> bool {
        if length < self.length {
            self.set_len(length);
        }
        true
    }
}

impl<B: Backend> fmt::Debug for DecoderCache<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecoderCache").field("length", &self.length).field("shape", &self.shape).finish()
    }
}

/// The positions in the cache that a pass writes.
#[derive(Clone, Debug)]
enum Slot<B: Backend> {
    /// There is no cache.
    None,
    /// Several tokens from a position that the host knows.
    Host { start: usize },
    /// One token, at a position on the device. Attention covers the first `keys` keys, of which a mask hides the later
    /// ones.
    Device { position: Tensor<B, 1, Int>, keys: usize },
}

/// The state that the layers share in one forward pass.
pub(crate) struct Pass<B: Backend> {
    slot: Slot<B>,
    rotary: Option<RotaryRows<B>>,
    /// The mask of layers that attend to all tokens, and that of layers with a sliding window.
    visible: [Option<Tensor<B, 4, Bool>>; 2],
}

impl<B: Backend> Pass<B> {
    /// Returns the state of a pass of a whole sequence without a cache.
    #[track_caller]
    pub(crate) fn whole(
        length: usize,
        rotary: Option<&RotaryTable<B>>,
        padding: Option<Tensor<B, 1, Int>>,
        window: Option<usize>,
        device: &B::Device,
    ) -> Self {
        Pass::new(Slot::None, [length, length], rotary, padding, window, device)
    }

    /// `end` is the position after the last token.
    #[track_caller]
    fn new(
        slot: Slot<B>,
        [new, end]: [usize; 2],
        rotary: Option<&RotaryTable<B>>,
        padding: Option<Tensor<B, 1, Int>>,
        window: Option<usize>,
        device: &B::Device,
    ) -> Self {
        let rotary = rotary.map(|table| match &slot {
            Slot::Device { position, .. } => table.select(position.clone()),
            Slot::None | Slot::Host { .. } => table.narrow(end - new, new),
        });
        let masks = Masks::new(&slot, [new, end], padding, device);
        // A window that covers all keys hides nothing.
        let window = window.filter(|&window| window < end);
        let all = masks.visible(None);
        let near = match window {
            Some(_) => masks.visible(window),
            None => all.clone(),
        };
        Pass { slot, rotary, visible: [all, near] }
    }

    /// Returns the position of each new token in its row, `[batch or 1, new]`. The first token after the padding is at
    /// 0, and padding too.
    pub(crate) fn positions(
        &self,
        new: usize,
        padding: Option<Tensor<B, 1, Int>>,
        device: &B::Device,
    ) -> Tensor<B, 2, Int> {
        let slots = match &self.slot {
            Slot::Device { position, .. } => position.clone(),
            Slot::None => Tensor::arange(0..new as i64, device),
            Slot::Host { start } => Tensor::arange(*start as i64..(start + new) as i64, device),
        };
        let slots = slots.reshape([1, new]);
        match padding {
            Some(padding) => {
                let batch = padding.dims()[0];
                let padding = padding.cast(slots.dtype()).reshape([batch, 1]);
                (slots - padding).clamp_min(0)
            }
            None => slots,
        }
    }

    /// Rotates queries or keys `[batch, heads, new, head_dim]` by their positions.
    #[track_caller]
    pub(crate) fn rotated(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        match &self.rotary {
            Some(rows) => rows.rotated(x),
            None => x,
        }
    }

    /// Computes causal attention of `[batch, heads, new, head_dim]` to the cache and the new keys and values.
    /// `is_near` selects the sliding window.
    #[track_caller]
    pub(crate) fn attend(
        &self,
        query: Tensor<B, 4>,
        key: Tensor<B, 4>,
        value: Tensor<B, 4>,
        cache: Option<&mut LayerCache<B>>,
        is_near: bool,
        scores: Scores,
    ) -> Tensor<B, 4> {
        let (key, value) = match cache {
            Some(cache) => cache.extend(key, value, &self.slot),
            None => (key, value),
        };
        let visible = self.visible[usize::from(is_near)].clone();
        let causal = match self.slot {
            Slot::Device { .. } => Causal::No,
            Slot::None | Slot::Host { .. } => Causal::Last,
        };
        match scores.soft_cap {
            Some(cap) => soft_capped(query, key, value, visible, causal, scores.scale, cap),
            None => {
                let options = AttentionOptions { scale: scores.scale, causal };
                module::attention(query, key, value, visible.map(AttentionMask::Visible), options)
            }
        }
    }
}

/// Settings of the scores of attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scores {
    /// The scale; `None` for `1 / √head_dim`.
    pub(crate) scale: Option<f64>,
    /// Scores `s` become `cap tanh(s / cap)`.
    pub(crate) soft_cap: Option<f64>,
}

impl<B: Backend> LayerCache<B> {
    /// Writes new keys and values, and returns those that attention covers. The buffers are given away to the write, so
    /// that it is in place.
    #[track_caller]
    fn extend(
        &mut self,
        key: Tensor<B, 4>,
        value: Tensor<B, 4>,
        slot: &Slot<B>,
    ) -> (Tensor<B, 4>, Tensor<B, 4>) {
        let written = |buffer: &mut Tensor<B, 4>, new: Tensor<B, 4>| match slot {
            Slot::None => new,
            Slot::Host { start: 0 } => {
                let length = new.dims()[2];
                buffer.inplace(|old| old.slice_assign(s![.., .., 0..length, ..], new.clone()));
                new
            }
            Slot::Host { start } => {
                let end = start + new.dims()[2];
                buffer.inplace(|old| old.slice_assign(s![.., .., *start..end, ..], new));
                buffer.clone().narrow(2, 0, end)
            }
            Slot::Device { position, keys } => {
                buffer.inplace(|old| old.put(2, position.clone(), new, UpdateMode::Set));
                match buffer.dims()[2] == *keys {
                    true => buffer.clone(),
                    false => buffer.clone().narrow(2, 0, *keys),
                }
            }
        };
        (written(&mut self.keys, key), written(&mut self.values, value))
    }
}

/// The parts of the masks of a pass.
struct Masks<B: Backend> {
    /// Positions of keys, `[1, 1, 1, keys]`.
    keys: Tensor<B, 4, Int>,
    /// Positions of queries, `[1, 1, new, 1]`.
    queries: Tensor<B, 4, Int>,
    /// The first visible key of each row, `[batch, 1, 1, 1]`.
    first: Option<Tensor<B, 4, Int>>,
    /// Whether the mask must hide keys after the query; otherwise attention does.
    hides_later: bool,
}

impl<B: Backend> Masks<B> {
    fn new(
        slot: &Slot<B>,
        [new, end]: [usize; 2],
        padding: Option<Tensor<B, 1, Int>>,
        device: &B::Device,
    ) -> Self {
        let range = |start: usize, end: usize| Tensor::<B, 1, Int>::arange(start as i64..end as i64, device);
        let (queries, keys, hides_later) = match slot {
            Slot::Device { position, keys } => (position.clone(), *keys, true),
            Slot::None | Slot::Host { .. } => (range(end - new, end), end, false),
        };
        let dtype = queries.dtype();
        Masks {
            keys: range(0, keys).cast(dtype).reshape([1, 1, 1, keys]),
            queries: queries.reshape([1, 1, new, 1]),
            first: padding.map(|padding| {
                let batch = padding.dims()[0];
                padding.cast(dtype).reshape([batch, 1, 1, 1])
            }),
            hides_later,
        }
    }

    /// Returns the mask, `[batch or 1, 1, new or 1, keys]`, true where a key is visible; `None` if nothing is hidden.
    fn visible(&self, window: Option<usize>) -> Option<Tensor<B, 4, Bool>> {
        let later = self.hides_later.then(|| self.keys.clone().lower_equal(self.queries.clone()));
        let near = window.map(|window| {
            let oldest = self.queries.clone() - (window as i64 - 1);
            self.keys.clone().greater_equal(oldest)
        });
        let first = self.first.clone().map(|first| self.keys.clone().greater_equal(first));
        [later, near, first].into_iter().flatten().reduce(Tensor::bool_and)
    }
}

/// Attention whose scores are capped before the mask. No library kernel computes it.
#[track_caller]
fn soft_capped<B: Backend>(
    query: Tensor<B, 4>,
    key: Tensor<B, 4>,
    value: Tensor<B, 4>,
    visible: Option<Tensor<B, 4, Bool>>,
    causal: Causal,
    scale: Option<f64>,
    cap: f64,
) -> Tensor<B, 4> {
    let ([batch, heads, queries, features], [_, kv_heads, keys, _]) = (query.dims(), key.dims());
    let (group, device, dtype) = (heads / kv_heads, query.device(), query.dtype());
    let scale = scale.unwrap_or_else(|| 1.0 / (features.max(1) as f64).sqrt());
    // The query heads that share a key head are rows of one matrix.
    let rows = query.reshape([batch, kv_heads, group * queries, features]);
    let scores = (rows.matmul(key.transpose()) * (scale / cap)).tanh() * cap;
    let scores = scores.reshape([batch, heads, queries, keys]);
    let causal = (causal != Causal::No && queries > 1)
        .then(|| module::causal_mask::<B>(queries, keys, causal, &device).reshape([1, 1, queries, keys]));
    let scores = match [visible, causal].into_iter().flatten().reduce(Tensor::bool_and) {
        // Finite: a query of padding has no visible key, and must not become NaN.
        Some(visible) => {
            let hidden = visible.bool_not();
            scores.mask_fill(hidden, if dtype == DType::F16 { -6e4 } else { -1e30 })
        }
        None => scores,
    };
    let weights = activation::softmax(scores, 3).reshape([batch, kv_heads, group * queries, keys]);
    let dim_v = value.dims()[3];
    weights.matmul(value).reshape([batch, heads, queries, dim_v])
}

/// Cosines and sines of all positions, `[max_length, head_dim]`. Feature `i` is paired with `i + head_dim / 2`.
#[derive(Clone, Debug)]
pub(crate) struct RotaryTable<B: Backend> {
    cos: Tensor<B, 2>,
    /// Negative in the first half, where it multiplies the second half of the input.
    sin: Tensor<B, 2>,
}

/// Cosines and sines of the new tokens, `[1, 1, new, head_dim]`.
struct RotaryRows<B: Backend> {
    cos: Tensor<B, 4>,
    sin: Tensor<B, 4>,
}

impl<B: Backend> RotaryTable<B> {
    /// Returns the table of the first `length` positions.
    #[track_caller]
    pub(crate) fn new(encoding: &RotaryEncoding<B>, length: usize, dtype: DType) -> Self {
        let angles = encoding.angles(0, length);
        let sin = Tensor::cat(vec![-angles.sin.clone(), angles.sin], 1);
        RotaryTable {
            cos: Tensor::cat(vec![angles.cos.clone(), angles.cos], 1).cast(dtype),
            sin: sin.cast(dtype),
        }
    }

    fn select(&self, position: Tensor<B, 1, Int>) -> RotaryRows<B> {
        RotaryRows::new([&self.cos, &self.sin].map(|table| table.clone().select(0, position.clone())))
    }

    #[track_caller]
    fn narrow(&self, start: usize, length: usize) -> RotaryRows<B> {
        RotaryRows::new([&self.cos, &self.sin].map(|table| table.clone().narrow(0, start, length)))
    }
}

impl<B: Backend> RotaryRows<B> {
    fn new(rows: [Tensor<B, 2>; 2]) -> Self {
        let [cos, sin] = rows.map(|rows| {
            let [length, features] = rows.dims();
            rows.reshape([1, 1, length, features])
        });
        RotaryRows { cos, sin }
    }

    /// The halves are swapped by one concatenation: the product and the sum with it are one kernel.
    #[track_caller]
    fn rotated(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let half = x.dims()[3] / 2;
        let [first, second] = [0, half].map(|start| x.clone().narrow(3, start, half));
        x * self.cos.clone() + Tensor::cat(vec![second, first], 3) * self.sin.clone()
    }
}

/// Returns the features at the positions whose logits are computed.
#[track_caller]
pub(crate) fn positions_of<B: Backend>(logits: LogitsOf, x: Tensor<B, 3>) -> Tensor<B, 3> {
    match logits {
        LogitsOf::Last => {
            let length = x.dims()[1];
            x.narrow(1, length - 1, 1)
        }
        LogitsOf::All => x,
    }
}

/// Splits the features of `[batch, length, heads features]` into heads: `[batch, heads, length, features]`.
#[track_caller]
pub(crate) fn split_heads<B: Backend>(x: Tensor<B, 3>, heads: usize) -> Tensor<B, 4> {
    let [batch, length, width] = x.dims();
    match length {
        // The layouts of one token are equal: no transposition.
        1 => x.reshape([batch, heads, 1, width / heads]),
        _ => x.reshape([batch, length, heads, width / heads]).swap_dims(1, 2),
    }
}

/// Joins the heads of `[batch, heads, length, features]`: `[batch, length, heads features]`.
#[track_caller]
pub(crate) fn join_heads<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 3> {
    let [batch, heads, length, features] = x.dims();
    match length {
        1 => x.reshape([batch, 1, heads * features]),
        _ => x.swap_dims(1, 2).reshape([batch, length, heads * features]),
    }
}
