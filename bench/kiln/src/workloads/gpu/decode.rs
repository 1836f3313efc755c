//! Tokens one by one from a model in the shape of Llama, in bf16.
//!
//! Where the token stands is a number on the device, so that each token runs the same program.
//!
//! The layers are written out: the mask and the next position of the cache are computed once per token here, but once
//! per layer by `DecoderBlock` of `kiln::nn`, whose rotary encoding also writes the halves of each head by separate
//! kernels. With it, a token has 498 launches instead of 275 (`bench-kiln --trace llama_decode`).

use super::{Gpu, GpuDevice, normal};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::module::{AttentionMask, AttentionOptions, attention, rms_norm};
use kiln::{Backend, Bool, DType, Int, Tensor, UpdateMode, activation};

const EPSILON: f64 = 1e-5;

/// Sizes as TinyLlama has them, of the architecture Llama ([Touvron et al. 2023](https://arxiv.org/abs/2302.13971)).
struct Llama {
    tokens: Tensor<Gpu, 2>,
    layers: Vec<Layer>,
    norm: Tensor<Gpu, 1>,
    output: Tensor<Gpu, 2>,
    rotary: Rotary,
}

struct Layer {
    attention_norm: Tensor<Gpu, 1>,
    query: Tensor<Gpu, 2>,
    key: Tensor<Gpu, 2>,
    value: Tensor<Gpu, 2>,
    projection: Tensor<Gpu, 2>,
    feed_forward_norm: Tensor<Gpu, 1>,
    gate: Tensor<Gpu, 2>,
    wide: Tensor<Gpu, 2>,
    narrow: Tensor<Gpu, 2>,
    /// `[1, key_heads, cache, head]`.
    keys: Tensor<Gpu, 4>,
    values: Tensor<Gpu, 4>,
}

/// Cosines and sines of every place, `[cache, head]`.
struct Rotary {
    cos: Tensor<Gpu, 2>,
    /// Negative where the second half of a head becomes the first.
    sin: Tensor<Gpu, 2>,
}

/// Where the token is, as operations need it.
struct TokenPosition {
    index: Tensor<Gpu, 1, Int>,
    cos: Tensor<Gpu, 4>,
    sin: Tensor<Gpu, 4>,
    /// The places that it sees, `[1, 1, 1, cache]`.
    visible: Tensor<Gpu, 4, Bool>,
}

pub(crate) fn tokens(row: &Row, device: &GpuDevice) -> Result<Prepared> {
    let mut model = Llama::new(row, device)?;
    let (start, count) = (row.size("cache")? / 2, row.size("tokens")?);
    let device = *device;
    let repeat = move || {
        let mut token = Tensor::<Gpu, 1, Int>::from_ints([1], &device);
        let mut index = Tensor::<Gpu, 1, Int>::from_ints([start as i32], &device);
        let mut sum = Tensor::<Gpu, 1, Int>::from_ints([0], &device);
        for _ in 0..count {
            token = model.next(token, index.clone());
            sum = sum + &token;
            index = index + 1;
            // Each token is a unit of work like the one before.
            Gpu::stack(&device).engine().submit();
        }
        let sum = sum.try_into_scalar::<f64>()?;
        Gpu::sync(&device)?;
        Ok(sum)
    };
    Ok(Prepared::new(repeat).with_operations(count))
}

/// The width of a head.
fn head(row: &Row) -> Result<usize> {
    Ok(row.size("width")? / row.size("heads")?)
}

fn matrix(rows: usize, columns: usize, device: &GpuDevice) -> Tensor<Gpu, 2> {
    (normal::<Gpu, 2>([rows, columns], DType::F32, device) * 0.02).cast(DType::BF16)
}

fn ones(width: usize, device: &GpuDevice) -> Tensor<Gpu, 1> {
    Tensor::<Gpu, 1>::ones([width], device).cast(DType::BF16)
}

impl Llama {
    fn new(row: &Row, device: &GpuDevice) -> Result<Llama> {
        let (vocabulary, width) = (row.size("vocabulary")?, row.size("width")?);
        let layers = (0..row.size("layers")?).map(|_| Layer::new(row, device));
        Ok(Llama {
            tokens: matrix(vocabulary, width, device),
            layers: layers.collect::<Result<_>>()?,
            norm: ones(width, device),
            output: matrix(width, vocabulary, device),
            rotary: Rotary::new(row, device)?,
        })
    }

    /// The likeliest token behind one at a place.
    fn next(&mut self, token: Tensor<Gpu, 1, Int>, index: Tensor<Gpu, 1, Int>) -> Tensor<Gpu, 1, Int> {
        let mut x = self.tokens.clone().select(0, token);
        let place = self.rotary.place(index);
        for layer in &mut self.layers {
            x = layer.forward(x, &place);
        }
        let x = rms_norm(x, Some(self.norm.clone()), EPSILON);
        x.matmul(self.output.clone()).argmax(1).reshape([1])
    }
}

impl Layer {
    fn new(row: &Row, device: &GpuDevice) -> Result<Layer> {
        let (width, feed_forward) = (row.size("width")?, row.size("feed_forward")?);
        let (head, key_heads) = (head(row)?, row.size("key_heads")?);
        let (keys, shape) = (key_heads * head, [1, key_heads, row.size("cache")?, head]);
        let cache = || Tensor::<Gpu, 4>::zeros(shape, device).cast(DType::BF16);
        Ok(Layer {
            attention_norm: ones(width, device),
            query: matrix(width, width, device),
            key: matrix(width, keys, device),
            value: matrix(width, keys, device),
            projection: matrix(width, width, device),
            feed_forward_norm: ones(width, device),
            gate: matrix(width, feed_forward, device),
            wide: matrix(width, feed_forward, device),
            narrow: matrix(feed_forward, width, device),
            keys: cache(),
            values: cache(),
        })
    }

    fn forward(&mut self, x: Tensor<Gpu, 2>, place: &TokenPosition) -> Tensor<Gpu, 2> {
        let normed = rms_norm(x.clone(), Some(self.attention_norm.clone()), EPSILON);
        let x = x + self.attend(normed, place);
        let normed = rms_norm(x.clone(), Some(self.feed_forward_norm.clone()), EPSILON);
        let gate = activation::silu(normed.clone().matmul(self.gate.clone()));
        x + (gate * normed.matmul(self.wide.clone())).matmul(self.narrow.clone())
    }

    fn attend(&mut self, x: Tensor<Gpu, 2>, place: &TokenPosition) -> Tensor<Gpu, 2> {
        let [_, key_heads, _, head] = self.keys.dims();
        let [_, width] = x.dims();
        let query = x.clone().matmul(self.query.clone()).reshape([1, width / head, 1, head]);
        let key = x.clone().matmul(self.key.clone()).reshape([1, key_heads, 1, head]);
        let value = x.matmul(self.value.clone()).reshape([1, key_heads, 1, head]);
        let kept = |cache: &mut Tensor<Gpu, 4>, new: Tensor<Gpu, 4>| {
            // The cache is given away, so that it is written in place.
            let empty = Tensor::empty([0, 0, 0, 0], &new.device());
            let old = std::mem::replace(cache, empty);
            *cache = old.put(2, place.index.clone(), new, UpdateMode::Set);
        };
        kept(&mut self.keys, place.rotated(key));
        kept(&mut self.values, value);
        let seen = attention(
            place.rotated(query),
            self.keys.clone(),
            self.values.clone(),
            Some(AttentionMask::Visible(place.visible.clone())),
            AttentionOptions::default(),
        );
        seen.reshape([1, width]).matmul(self.projection.clone())
    }
}

impl Rotary {
    fn new(row: &Row, device: &GpuDevice) -> Result<Rotary> {
        let (cache, head, base) = (row.size("cache")?, head(row)?, row.number("rotary_base")?);
        let angle = |place: usize, i: usize| {
            let exponent = (2 * (i % (head / 2))) as f64 / head as f64;
            place as f64 / base.powf(exponent)
        };
        let table = |of: fn(f64) -> f64| {
            let list: Vec<f32> = (0..cache * head).map(|i| of(angle(i / head, i % head)) as f32).collect();
            Tensor::<Gpu, 1>::from_data(list, device).reshape([cache, head]).cast(DType::BF16)
        };
        let sin = Tensor::cat(
            vec![-table(f64::sin).slice_dim(1, 0..head / 2), table(f64::sin).slice_dim(1, head / 2..head)],
            1,
        );
        Ok(Rotary { cos: table(f64::cos), sin })
    }

    fn place(&self, index: Tensor<Gpu, 1, Int>) -> TokenPosition {
        let [cache, head] = self.cos.dims();
        let row = |table: &Tensor<Gpu, 2>| table.clone().select(0, index.clone()).reshape([1, 1, 1, head]);
        let places = Tensor::<Gpu, 1, Int>::arange(0..cache as i64, &index.device());
        let visible = places.lower_equal(index.clone().expand([cache])).reshape([1, 1, 1, cache]);
        TokenPosition { cos: row(&self.cos), sin: row(&self.sin), index, visible }
    }
}

impl TokenPosition {
    /// Rotates pairs of the elements `i` and `i + head / 2`.
    fn rotated(&self, x: Tensor<Gpu, 4>) -> Tensor<Gpu, 4> {
        let half = x.dims()[3] / 2;
        let [first, second] = [0, 1].map(|i| x.clone().slice_dim(3, i * half..(i + 1) * half));
        let turned = Tensor::cat(vec![second, first], 3);
        x * self.cos.clone() + turned * self.sin.clone()
    }
}
