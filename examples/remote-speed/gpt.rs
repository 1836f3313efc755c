//! GPT-2.

use crate::options::Options;
use kiln::module::{AttentionOptions, Causal, attention};
use kiln::nn::{Embedding, EmbeddingConfig, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use kiln::prelude::*;

/// The number of tokens, a multiple of 64.
pub(crate) const VOCABULARY: usize = 50_304;

/// Features of an attention head.
const HEAD: usize = 64;

const INITIAL: Initializer = Initializer::Normal { mean: 0.0, std: 0.02 };

#[derive(Module, Clone, Debug)]
pub(crate) struct Gpt<B: Backend> {
    /// Token embeddings, tied to the output projection of the logits.
    tokens: Embedding<B>,
    positions: Embedding<B>,
    layers: Vec<Layer<B>>,
    norm: LayerNorm<B>,
}

#[derive(Module, Clone, Debug)]
struct Layer<B: Backend> {
    attention_norm: LayerNorm<B>,
    query_key_value: Linear<B>,
    projection: Linear<B>,
    feed_forward_norm: LayerNorm<B>,
    wide: Linear<B>,
    narrow: Linear<B>,
}

impl<B: Backend> Gpt<B> {
    pub(crate) fn new(options: &Options, device: &B::Device) -> Self {
        let width = options.width;
        let embedding = |count| EmbeddingConfig::new(count, width).with_initializer(INITIAL).init(device);
        Gpt {
            tokens: embedding(VOCABULARY),
            positions: embedding(options.length),
            layers: (0..options.layers).map(|_| Layer::new(width, device)).collect(),
            norm: LayerNormConfig::new(width).init(device),
        }
    }

    /// Logits of the next token, `[batch * length, vocabulary]`.
    pub(crate) fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let [_, length] = tokens.dims();
        let places = Tensor::<B, 1, Int>::arange(0..length as i64, &tokens.device()).reshape([1, length]);
        let x = self.tokens.forward(tokens) + self.positions.forward(places);
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x));
        self.norm.forward(x).flatten::<2>(0, 1).matmul(self.tokens.weight.val().transpose())
    }
}

impl<B: Backend> Layer<B> {
    fn new(width: usize, device: &B::Device) -> Self {
        let linear = |input, output| LinearConfig::new(input, output).with_initializer(INITIAL).init(device);
        Layer {
            attention_norm: LayerNormConfig::new(width).init(device),
            query_key_value: linear(width, 3 * width),
            projection: linear(width, width),
            feed_forward_norm: LayerNormConfig::new(width).init(device),
            wide: linear(width, 4 * width),
            narrow: linear(4 * width, width),
        }
    }

    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let x = &x + self.attend(self.attention_norm.forward(x.clone()));
        let wide = activation::gelu(self.wide.forward(self.feed_forward_norm.forward(x.clone())));
        x + self.narrow.forward(wide)
    }

    fn attend(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let [batch, length, width] = x.dims();
        let heads = |x: Tensor<B, 3>| -> Tensor<B, 4> {
            x.reshape([batch, length, width / HEAD, HEAD]).swap_dims(1, 2)
        };
        let mixed = self.query_key_value.forward(x);
        let [q, k, v] = [0, 1, 2].map(|i| heads(mixed.clone().slice_dim(2, i * width..(i + 1) * width)));
        let options = AttentionOptions { causal: Causal::First, ..Default::default() };
        let seen = attention(q, k, v, None, options).swap_dims(1, 2);
        self.projection.forward(seen.reshape([batch, length, width]))
    }
}
