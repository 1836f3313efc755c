//! Training of a small causal language model.

use crate::first;
use bench_protocol::random::Random;
use bench_protocol::shapes::transformer::*;
use bench_protocol::{Prepared, Result};
use candle_core::{D, DType, Device, Tensor};
use candle_nn::{
    AdamW, Embedding, Init, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, embedding, linear,
    loss, ops,
};

struct Transformer {
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

pub(crate) fn train() -> Result<Prepared> {
    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    let model = Transformer::new(&builder)?;
    let mut random = Random::new(5);
    let mut tokens = || random.indices(BATCH * LENGTH, VOCABULARY as u32);
    let input = Tensor::from_vec(tokens(), (BATCH, LENGTH), &Device::Cpu)?;
    let targets = Tensor::from_vec(tokens(), BATCH * LENGTH, &Device::Cpu)?;
    let options = ParamsAdamW { lr: LEARNING_RATE, weight_decay: WEIGHT_DECAY, ..Default::default() };
    let mut optimizer = AdamW::new(variables.all_vars(), options)?;
    Ok(Prepared::new(move || {
        let loss = loss::cross_entropy(&model.forward(&input)?, &targets)?;
        optimizer.step(&loss.backward()?)?;
        first(&loss)
    }))
}

impl Transformer {
    fn new(builder: &VarBuilder) -> Output<Self> {
        let hidden: Vec<f32> = (0..LENGTH * LENGTH)
            .map(|i| if i % LENGTH > i / LENGTH { f32::NEG_INFINITY } else { 0.0 })
            .collect();
        Ok(Transformer {
            tokens: embedding(VOCABULARY, WIDTH, builder.pp("tokens"))?,
            positions: builder.get_with_hints((1, LENGTH, WIDTH), "positions", Init::Const(0.0))?,
            mask: Tensor::from_vec(hidden, (1, 1, LENGTH, LENGTH), &Device::Cpu)?,
            layers: (0..LAYERS)
                .map(|i| Layer::new(&builder.pp(format!("layer{i}"))))
                .collect::<Output<_>>()?,
            norm: Norm::new(&builder.pp("norm"))?,
            output: linear(WIDTH, VOCABULARY, builder.pp("output"))?,
        })
    }

    /// Logits of the next token, `[batch * length, vocabulary]`.
    fn forward(&self, tokens: &Tensor) -> Output<Tensor> {
        let mut x = self.tokens.forward(tokens)?.broadcast_add(&self.positions)?;
        for layer in &self.layers {
            x = layer.forward(&x, &self.mask)?;
        }
        self.output.forward(&self.norm.forward(&x)?.flatten_to(1)?)
    }
}

impl Layer {
    fn new(builder: &VarBuilder) -> Output<Self> {
        Ok(Layer {
            attention_norm: Norm::new(&builder.pp("attention_norm"))?,
            query_key_value: linear(WIDTH, 3 * WIDTH, builder.pp("query_key_value"))?,
            projection: linear(WIDTH, WIDTH, builder.pp("projection"))?,
            feed_forward_norm: Norm::new(&builder.pp("feed_forward_norm"))?,
            wide: linear(WIDTH, FEED_FORWARD, builder.pp("wide"))?,
            narrow: linear(FEED_FORWARD, WIDTH, builder.pp("narrow"))?,
        })
    }

    fn forward(&self, x: &Tensor, mask: &Tensor) -> Output<Tensor> {
        let x = (x + self.attend(&self.attention_norm.forward(x)?, mask)?)?;
        let wide = self.wide.forward(&self.feed_forward_norm.forward(&x)?)?.gelu_erf()?;
        x + self.narrow.forward(&wide)?
    }

    fn attend(&self, x: &Tensor, mask: &Tensor) -> Output<Tensor> {
        let mixed = self.query_key_value.forward(x)?;
        let heads = |i: usize| {
            let part = mixed.narrow(2, i * WIDTH, WIDTH)?.contiguous()?;
            part.reshape((BATCH, LENGTH, HEADS, WIDTH / HEADS))?.transpose(1, 2)?.contiguous()
        };
        let (q, k, v) = (heads(0)?, heads(1)?, heads(2)?);
        let scale = ((WIDTH / HEADS) as f64).powf(-0.5);
        let scores = (q.matmul(&k.transpose(D::Minus2, D::Minus1)?)? * scale)?.broadcast_add(mask)?;
        let seen = ops::softmax(&scores, D::Minus1)?.matmul(&v)?;
        self.projection.forward(&seen.transpose(1, 2)?.contiguous()?.reshape((BATCH, LENGTH, WIDTH))?)
    }
}

impl Norm {
    fn new(builder: &VarBuilder) -> Output<Self> {
        Ok(Norm {
            weight: builder.get_with_hints(WIDTH, "weight", Init::Const(1.0))?,
            bias: builder.get_with_hints(WIDTH, "bias", Init::Const(0.0))?,
        })
    }

    fn forward(&self, x: &Tensor) -> Output<Tensor> {
        ops::layer_norm_slow(x, &self.weight, &self.bias, 1e-5)
    }
}
