//! Training of GPT-2 with 124 million parameters.

use bench_protocol::gpu::gpt2::{
    DEVIATION, HEADS, LAYERS, LEARNING_RATE, LENGTH, VOCABULARY, WEIGHT_DECAY, WIDTH,
};
use bench_protocol::random::Random;
use bench_protocol::vulkan::GPT2_BATCH as BATCH;
use bench_protocol::{Prepared, failed};
use burn::module::{Initializer, Module, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, Int, Tensor, activation};

#[derive(Module, Debug)]
struct Gpt {
    /// Token embeddings, tied to the output projection of the logits.
    tokens: Embedding,
    positions: Param<Tensor<3>>,
    layers: Vec<Layer>,
    norm: LayerNorm,
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

/// Forward, backward and update; the loss before the update. `device` has gradients.
pub(crate) fn train(device: &Device) -> Prepared {
    let mut random = Random::new(5);
    let mut tokens = || {
        let drawn = random.indices(BATCH * LENGTH, VOCABULARY as u32);
        let drawn: Vec<i32> = drawn.into_iter().map(|token| token as i32).collect();
        Tensor::<1, Int>::from_data(drawn.as_slice(), device)
    };
    let (input, targets) = (tokens().reshape([BATCH, LENGTH]), tokens());
    let mut optimizer = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(WEIGHT_DECAY as f32).init();
    let mut model = Some(Gpt::new(device));
    let cross_entropy = CrossEntropyLossConfig::new().init(device);
    let device = device.clone();
    Prepared::new(move || {
        let old = model.take().ok_or_else(|| failed("an earlier step failed"))?;
        let loss = cross_entropy.forward(old.forward(input.clone()), targets.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &old);
        model = Some(optimizer.step(LEARNING_RATE, old, gradients));
        let loss = loss.try_into_scalar::<f64>()?;
        crate::wait(&device)?;
        Ok(loss)
    })
}

fn initial() -> Initializer {
    Initializer::Normal { mean: 0.0, std: DEVIATION }
}

fn linear(input: usize, output: usize, device: &Device) -> Linear {
    LinearConfig::new(input, output).with_initializer(initial()).init(device)
}

impl Gpt {
    fn new(device: &Device) -> Self {
        Gpt {
            tokens: EmbeddingConfig::new(VOCABULARY, WIDTH).with_initializer(initial()).init(device),
            positions: initial().init([1, LENGTH, WIDTH], device),
            layers: (0..LAYERS).map(|_| Layer::new(device)).collect(),
            norm: LayerNormConfig::new(WIDTH).init(device),
        }
    }

    /// Logits of the next token, `[batch * length, vocabulary]`.
    fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        let x = self.tokens.forward(tokens) + self.positions.val();
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x));
        let x: Tensor<2> = self.norm.forward(x).flatten(0, 1);
        x.matmul(self.tokens.weight.val().transpose())
    }
}

impl Layer {
    fn new(device: &Device) -> Self {
        Layer {
            attention_norm: LayerNormConfig::new(WIDTH).init(device),
            query_key_value: linear(WIDTH, 3 * WIDTH, device),
            projection: linear(WIDTH, WIDTH, device),
            feed_forward_norm: LayerNormConfig::new(WIDTH).init(device),
            wide: linear(WIDTH, 4 * WIDTH, device),
            narrow: linear(4 * WIDTH, WIDTH, device),
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
