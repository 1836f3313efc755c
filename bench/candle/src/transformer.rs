//! Training of a small causal language model.

use crate::first;
use bench_protocol::workloads::{Language, Row};
use bench_protocol::{Prepared, Result};
use candle_core::{D, DType, Device, Tensor};
use candle_nn::{
    AdamW, Embedding, Init, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, embedding, linear,
    loss, ops,
};

struct Transformer {
    sizes: Language,
    tokens: Embedding,
    positions: Tensor,
    mask: Tensor,
    layers: Vec<Layer>,
    norm: Norm,
    output: Linear,
}

struct Layer {
    attention_norm: Norm,
    query_key_value: Linear,
    projection: Linear,
    feed_forward_norm: Norm,
    wide: Linear,
    narrow: Linear,
}

/// candle's own layer passes no gradients on.
struct Norm {
    weight: Tensor,
    bias: Tensor,
}

type Output<T> = candle_core::Result<T>;

pub(crate) fn train(row: &Row) -> Result<Prepared> {
    let sizes = row.language()?;
    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    let model = Transformer::new(sizes, &builder)?;
    let tokens = sizes.tokens().map(|tokens| tokens.into_iter().map(|token| token as u32).collect());
    let [tokens, targets]: [Vec<u32>; 2] = tokens;
    let input = Tensor::from_vec(tokens, (sizes.batch, sizes.length), &Device::Cpu)?;
    let targets = Tensor::from_vec(targets, sizes.batch * sizes.length, &Device::Cpu)?;
    let options =
        ParamsAdamW { lr: sizes.learning_rate, weight_decay: sizes.weight_decay, ..Default::default() };
    let mut optimizer = AdamW::new(variables.all_vars(), options)?;
    Ok(Prepared::new(move || {
        let loss = loss::cross_entropy(&model.forward(&input)?, &targets)?;
        optimizer.step(&loss.backward()?)?;
        first(&loss)
    }))
}

impl Transformer {
    fn new(sizes: Language, builder: &VarBuilder) -> Output<Self> {
        let Language { length, vocabulary, width, .. } = sizes;
        let hidden: Vec<f32> = (0..length * length)
            .map(|i| if i % length > i / length { f32::NEG_INFINITY } else { 0.0 })
            .collect();
        Ok(Transformer {
            sizes,
            tokens: embedding(vocabulary, width, builder.pp("tokens"))?,
            positions: builder.get_with_hints((1, length, width), "positions", Init::Const(0.0))?,
            mask: Tensor::from_vec(hidden, (1, 1, length, length), &Device::Cpu)?,
            layers: (0..sizes.layers)
                .map(|i| Layer::new(&sizes, &builder.pp(format!("layer{i}"))))
                .collect::<Output<_>>()?,
            norm: Norm::new(width, &builder.pp("norm"))?,
            output: linear(width, vocabulary, builder.pp("output"))?,
        })
    }

    /// Logits of the next token, `[batch * length, vocabulary]`.
    fn forward(&self, tokens: &Tensor) -> Output<Tensor> {
        let mut x = self.tokens.forward(tokens)?.broadcast_add(&self.positions)?;
        for layer in &self.layers {
            x = layer.forward(&x, &self.mask, self.sizes.heads)?;
        }
        self.output.forward(&self.norm.forward(&x)?.flatten_to(1)?)
    }
}

impl Layer {
    fn new(sizes: &Language, builder: &VarBuilder) -> Output<Self> {
        let Language { width, feed_forward, .. } = *sizes;
        Ok(Layer {
            attention_norm: Norm::new(width, &builder.pp("attention_norm"))?,
            query_key_value: linear(width, 3 * width, builder.pp("query_key_value"))?,
            projection: linear(width, width, builder.pp("projection"))?,
            feed_forward_norm: Norm::new(width, &builder.pp("feed_forward_norm"))?,
            wide: linear(width, feed_forward, builder.pp("wide"))?,
            narrow: linear(feed_forward, width, builder.pp("narrow"))?,
        })
    }

    fn forward(&self, x: &Tensor, mask: &Tensor, heads: usize) -> Output<Tensor> {
        let x = (x + self.attend(&self.attention_norm.forward(x)?, mask, heads)?)?;
        let wide = self.wide.forward(&self.feed_forward_norm.forward(&x)?)?.gelu_erf()?;
        x + self.narrow.forward(&wide)?
    }

    fn attend(&self, x: &Tensor, mask: &Tensor, heads: usize) -> Output<Tensor> {
        let (batch, length, width) = x.dims3()?;
        let mixed = self.query_key_value.forward(x)?;
        let split = |i: usize| {
            let part = mixed.narrow(2, i * width, width)?.contiguous()?;
            part.reshape((batch, length, heads, width / heads))?.transpose(1, 2)?.contiguous()
        };
        let (q, k, v) = (split(0)?, split(1)?, split(2)?);
        let scale = ((width / heads) as f64).powf(-0.5);
        let scores = (q.matmul(&k.transpose(D::Minus2, D::Minus1)?)? * scale)?.broadcast_add(mask)?;
        let seen = ops::softmax(&scores, D::Minus1)?.matmul(&v)?;
        self.projection.forward(&seen.transpose(1, 2)?.contiguous()?.reshape((batch, length, width))?)
    }
}

impl Norm {
    fn new(width: usize, builder: &VarBuilder) -> Output<Self> {
        Ok(Norm {
            weight: builder.get_with_hints(width, "weight", Init::Const(1.0))?,
            bias: builder.get_with_hints(width, "bias", Init::Const(0.0))?,
        })
    }

    fn forward(&self, x: &Tensor) -> Output<Tensor> {
        ops::layer_norm_slow(x, &self.weight, &self.bias, 1e-5)
    }
}
