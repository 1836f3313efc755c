//! Training of a small causal language model.

use crate::classifier::Training;
use bench_protocol::Prepared;
use bench_protocol::random::Random;
use bench_protocol::shapes::transformer::*;
use burn::module::{Initializer, Module, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, Int, Tensor, activation};

#[derive(Module, Debug)]
struct Transformer {
    tokens: Embedding,
    positions: Param<Tensor<3>>,
    layers: Vec<Layer>,
    norm: LayerNorm,
    output: Linear,
}

#[derive(Module, Debug)]
struct Layer {
    attention_norm: LayerNorm,
    query_key_value: Linear,
    projection: Linear,
    feed_forward_norm: LayerNorm,
    wide: Linear,
    narrow: Linear,
}

pub(crate) fn train(device: &Device) -> Prepared {
    let mut random = Random::new(5);
    let mut tokens = || {
        let drawn = random.indices(BATCH * LENGTH, VOCABULARY as u32);
        let drawn: Vec<i32> = drawn.into_iter().map(|token| token as i32).collect();
        Tensor::<1, Int>::from_data(drawn.as_slice(), device)
    };
    let (input, targets) = (tokens().reshape([BATCH, LENGTH]), tokens());
    let optimizer = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(WEIGHT_DECAY as f32).init();
    let mut training = Training::new(Transformer::new(device), optimizer, LEARNING_RATE);
    let cross_entropy = CrossEntropyLossConfig::new().init(device);
    Prepared::new(move || {
        training.step(|model| cross_entropy.forward(model.forward(input.clone()), targets.clone()))
    })
}

impl Transformer {
    fn new(device: &Device) -> Self {
        Transformer {
            tokens: EmbeddingConfig::new(VOCABULARY, WIDTH).init(device),
            positions: Initializer::Zeros.init([1, LENGTH, WIDTH], device),
            layers: (0..LAYERS).map(|_| Layer::new(device)).collect(),
            norm: LayerNormConfig::new(WIDTH).init(device),
            output: LinearConfig::new(WIDTH, VOCABULARY).init(device),
        }
    }

    /// Logits of the next token, `[batch * length, vocabulary]`.
    fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        let x = self.tokens.forward(tokens) + self.positions.val();
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x));
        self.output.forward(self.norm.forward(x).flatten(0, 1))
    }
}

impl Layer {
    fn new(device: &Device) -> Self {
        Layer {
            attention_norm: LayerNormConfig::new(WIDTH).init(device),
            query_key_value: LinearConfig::new(WIDTH, 3 * WIDTH).init(device),
            projection: LinearConfig::new(WIDTH, WIDTH).init(device),
            feed_forward_norm: LayerNormConfig::new(WIDTH).init(device),
            wide: LinearConfig::new(WIDTH, FEED_FORWARD).init(device),
            narrow: LinearConfig::new(FEED_FORWARD, WIDTH).init(device),
        }
    }

    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let x = x.clone() + self.attend(self.attention_norm.forward(x));
        let wide = activation::gelu(self.wide.forward(self.feed_forward_norm.forward(x.clone())));
        x + self.narrow.forward(wide)
    }

    fn attend(&self, x: Tensor<3>) -> Tensor<3> {
        let heads = |x: Tensor<3>| x.reshape([BATCH, LENGTH, HEADS, WIDTH / HEADS]).swap_dims(1, 2);
        let mixed = self.query_key_value.forward(x);
        let [q, k, v] = [0, 1, 2].map(|i| heads(mixed.clone().narrow(2, i * WIDTH, WIDTH)));
        let options = AttentionModuleOptions { is_causal: true, ..Default::default() };
        let seen = attention(q, k, v, None, None, options).swap_dims(1, 2);
        self.projection.forward(seen.reshape([BATCH, LENGTH, WIDTH]))
    }
}
