//! Training of GPT-2 with 124 million parameters, in mixed precision.

use super::training::Training;
use super::{GpuDevice, Mixed};
use bench_protocol::gpu::gpt2::*;
use bench_protocol::random::Random;
use bench_protocol::{Prepared, Result};
use kiln::module::{AttentionOptions, Causal, attention};
use kiln::nn::{
    Embedding, EmbeddingConfig, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig, Module,
};
use kiln::optim::AdamWConfig;
use kiln::{Backend, Int, Tensor, activation, loss};

#[derive(Module, Clone, Debug)]
struct Gpt<B: Backend> {
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

pub(crate) fn train(device: &GpuDevice) -> Result<Prepared> {
    let model = Gpt::<Mixed>::new(device);
    let mut random = Random::new(5);
    let mut tokens = || -> Vec<i32> {
        let drawn = random.indices(BATCH * LENGTH, VOCABULARY as u32);
        drawn.into_iter().map(|token| token as i32).collect()
    };
    let input = Tensor::<Mixed, 1, Int>::from_data(tokens(), device).reshape([BATCH, LENGTH]);
    let targets = Tensor::<Mixed, 1, Int>::from_data(tokens(), device);
    let optimizer = AdamWConfig::new().with_weight_decay(WEIGHT_DECAY).init();
    let mut training = Training::new(model, optimizer, LEARNING_RATE);
    let device = *device;
    Ok(Prepared::new(move || {
        training.step(&device, |model| {
            loss::cross_entropy(model.forward(input.clone()), targets.clone(), &Default::default())
        })
    }))
}

const INITIAL: Initializer = Initializer::Normal { mean: 0.0, std: DEVIATION };

fn linear<B: Backend>(input: usize, output: usize, device: &B::Device) -> Linear<B> {
    LinearConfig::new(input, output).with_initializer(INITIAL).init(device)
}

impl<B: Backend> Gpt<B> {
    fn new(device: &B::Device) -> Self {
        let embedding = |count| EmbeddingConfig::new(count, WIDTH).with_initializer(INITIAL).init(device);
        Gpt {
            tokens: embedding(VOCABULARY),
            positions: embedding(LENGTH),
            layers: (0..LAYERS).map(|_| Layer::new(device)).collect(),
            norm: LayerNormConfig::new(WIDTH).init(device),
        }
    }

    /// Logits of the next token, `[batch * length, vocabulary]`.
    fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let places = Tensor::<B, 1, Int>::arange(0..LENGTH as i64, &tokens.device()).reshape([1, LENGTH]);
        let x = self.tokens.forward(tokens) + self.positions.forward(places);
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x));
        self.norm.forward(x).flatten::<2>(0, 1).matmul(self.tokens.weight.val().transpose())
    }
}

impl<B: Backend> Layer<B> {
    fn new(device: &B::Device) -> Self {
        Layer {
            attention_norm: LayerNormConfig::new(WIDTH).init(device),
            query_key_value: linear(WIDTH, 3 * WIDTH, device),
            projection: linear(WIDTH, WIDTH, device),
            feed_forward_norm: LayerNormConfig::new(WIDTH).init(device),
            wide: linear(WIDTH, 4 * WIDTH, device),
            narrow: linear(4 * WIDTH, WIDTH, device),
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
