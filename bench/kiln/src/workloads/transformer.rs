//! Training of a small causal language model.

use super::training::Training;
use bench_protocol::random::Random;
use bench_protocol::shapes::transformer::*;
use bench_protocol::{Prepared, Result};
use kiln::module::{AttentionOptions, Causal, attention};
use kiln::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, Module, Param};
use kiln::optim::AdamWConfig;
use kiln::{Autodiff, Backend, Int, Tensor, activation, loss};

#[derive(Module, Clone, Debug)]
struct Transformer<B: Backend> {
    tokens: Embedding<B>,
    positions: Param<Tensor<B, 3>>,
    layers: Vec<Layer<B>>,
    norm: LayerNorm<B>,
    output: Linear<B>,
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

pub(crate) fn train<B: Backend>(device: &B::Device) -> Result<Prepared> {
    let model = Transformer::<Autodiff<B>>::new(device);
    let mut random = Random::new(5);
    let mut tokens = || -> Vec<i32> {
        let drawn = random.indices(BATCH * LENGTH, VOCABULARY as u32);
        drawn.into_iter().map(|token| token as i32).collect()
    };
    let input = Tensor::<Autodiff<B>, 1, Int>::from_data(tokens(), device).reshape([BATCH, LENGTH]);
    let targets = Tensor::<Autodiff<B>, 1, Int>::from_data(tokens(), device);
    let optimizer = AdamWConfig::new().with_weight_decay(WEIGHT_DECAY).init();
    let mut training = Training::new(model, optimizer, LEARNING_RATE);
    let device = device.clone();
    Ok(Prepared::new(move || {
        training.step(&device, |model| {
            loss::cross_entropy(model.forward(input.clone()), targets.clone(), &Default::default())
        })
    }))
}

impl<B: Backend> Transformer<B> {
    fn new(device: &B::Device) -> Self {
        Transformer {
            tokens: EmbeddingConfig::new(VOCABULARY, WIDTH).init(device),
            positions: Param::from_tensor(Tensor::zeros([1, LENGTH, WIDTH], device)),
            layers: (0..LAYERS).map(|_| Layer::new(device)).collect(),
            norm: LayerNormConfig::new(WIDTH).init(device),
            output: LinearConfig::new(WIDTH, VOCABULARY).init(device),
        }
    }

    /// Logits of the next token, `[batch * length, vocabulary]`.
    fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let x = self.tokens.forward(tokens) + self.positions.val();
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x));
        self.output.forward(self.norm.forward(x).flatten(0, 1))
    }
}

impl<B: Backend> Layer<B> {
    fn new(device: &B::Device) -> Self {
        Layer {
            attention_norm: LayerNormConfig::new(WIDTH).init(device),
            query_key_value: LinearConfig::new(WIDTH, 3 * WIDTH).init(device),
            projection: LinearConfig::new(WIDTH, WIDTH).init(device),
            feed_forward_norm: LayerNormConfig::new(WIDTH).init(device),
            wide: LinearConfig::new(WIDTH, FEED_FORWARD).init(device),
            narrow: LinearConfig::new(FEED_FORWARD, WIDTH).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let x = &x + self.attend(self.attention_norm.forward(x.clone()));
        let wide = activation::gelu(self.wide.forward(self.feed_forward_norm.forward(x.clone())));
        x + self.narrow.forward(wide)
    }

    fn attend(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let heads = |x: Tensor<B, 3>| -> Tensor<B, 4> {
            x.reshape([BATCH, LENGTH, HEADS, WIDTH / HEADS]).swap_dims(1, 2)
        };
        let mixed = self.query_key_value.forward(x);
        let [q, k, v] = [0, 1, 2].map(|i| heads(mixed.clone().slice_dim(2, i * WIDTH..(i + 1) * WIDTH)));
        let options = AttentionOptions { causal: Causal::First, ..Default::default() };
        let seen = attention(q, k, v, None, options).swap_dims(1, 2);
        self.projection.forward(seen.reshape([BATCH, LENGTH, WIDTH]))
    }
}
