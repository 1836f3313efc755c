//! Training of causal language models.

use crate::training::Training;
use crate::wait;
use bench_protocol::workloads::{Language, Row};
use bench_protocol::{Prepared, Result};
use burn::module::{Initializer, Module, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, Int, Tensor, activation};

/// A small model, or GPT-2, which has no output of its own: its token embeddings are tied to the logits.
#[derive(Module, Debug)]
struct Transformer {
    tokens: Embedding,
    positions: Param<Tensor<3>>,
    layers: Vec<Layer>,
    norm: LayerNorm,
    output: Option<Linear>,
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

/// Training of a small model.
pub(crate) fn train(row: &Row, device: &Device) -> Result<Prepared> {
    let sizes = row.language()?;
    let Language { vocabulary, width, .. } = sizes;
    let linear = |input, output| LinearConfig::new(input, output).init(device);
    let model = Transformer {
        tokens: EmbeddingConfig::new(vocabulary, width).init(device),
        positions: Initializer::Zeros.init([1, sizes.length, width], device),
        layers: (0..sizes.layers).map(|_| Layer::new(&sizes, linear, device)).collect(),
        norm: LayerNormConfig::new(width).init(device),
        output: Some(linear(width, vocabulary)),
    };
    let mut step = training(model, sizes, device);
    Ok(Prepared::new(move || step()))
}

/// Training of GPT-2, which is waited for.
pub(crate) fn gpt2(row: &Row, device: &Device) -> Result<Prepared> {
    let sizes = row.language()?;
    let Language { vocabulary, width, .. } = sizes;
    let initial = Initializer::Normal { mean: 0.0, std: row.number("deviation")? };
    let linear =
        |input, output| LinearConfig::new(input, output).with_initializer(initial.clone()).init(device);
    let model = Transformer {
        tokens: EmbeddingConfig::new(vocabulary, width).with_initializer(initial.clone()).init(device),
        positions: initial.init([1, sizes.length, width], device),
        layers: (0..sizes.layers).map(|_| Layer::new(&sizes, linear, device)).collect(),
        norm: LayerNormConfig::new(width).init(device),
        output: None,
    };
    let (mut step, device) = (training(model, sizes, device), device.clone());
    Ok(Prepared::new(move || {
        let loss = step()?;
        wait(&device)?;
        Ok(loss)
    }))
}

/// The steps of a model, which return the loss before the update.
fn training(model: Transformer, sizes: Language, device: &Device) -> impl FnMut() -> Result<f64> + 'static {
    let [tokens, targets] =
        sizes.tokens().map(|tokens| Tensor::<1, Int>::from_data(tokens.as_slice(), device));
    let input = tokens.reshape([sizes.batch, sizes.length]);
    let optimizer = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(sizes.weight_decay as f32).init();
    let mut training = Training::new(model, optimizer, sizes.learning_rate);
    let cross_entropy = CrossEntropyLossConfig::new().init(device);
    move || {
        training
            .step(|model| cross_entropy.forward(model.forward(input.clone(), sizes.heads), targets.clone()))
    }
}

impl Transformer {
    /// Logits of the next token, `[batch * length, vocabulary]`.
    fn forward(&self, tokens: Tensor<2, Int>, heads: usize) -> Tensor<2> {
        let x = self.tokens.forward(tokens) + self.positions.val();
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x, heads));
        let x: Tensor<2> = self.norm.forward(x).flatten(0, 1);
        match &self.output {
            Some(output) => output.forward(x),
            None => x.matmul(self.tokens.weight.val().transpose()),
        }
    }
}

impl Layer {
    fn new(sizes: &Language, linear: impl Fn(usize, usize) -> Linear, device: &Device) -> Self {
        let Language { width, feed_forward, .. } = *sizes;
        Layer {
            attention_norm: LayerNormConfig::new(width).init(device),
            query_key_value: linear(width, 3 * width),
            projection: linear(width, width),
            feed_forward_norm: LayerNormConfig::new(width).init(device),
            wide: linear(width, feed_forward),
            narrow: linear(feed_forward, width),
        }
    }

    fn forward(&self, x: Tensor<3>, heads: usize) -> Tensor<3> {
        let x = x.clone() + self.attend(self.attention_norm.forward(x), heads);
        let wide = activation::gelu(self.wide.forward(self.feed_forward_norm.forward(x.clone())));
        x + self.narrow.forward(wide)
    }

    fn attend(&self, x: Tensor<3>, heads: usize) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let split = |x: Tensor<3>| x.reshape([batch, length, heads, width / heads]).swap_dims(1, 2);
        let mixed = self.query_key_value.forward(x);
        let [q, k, v] = [0, 1, 2].map(|i| split(mixed.clone().narrow(2, i * width, width)));
        let options = AttentionModuleOptions { is_causal: true, ..Default::default() };
        let seen = attention(q, k, v, None, None, options).swap_dims(1, 2);
        self.projection.forward(seen.reshape([batch, length, width]))
    }
}
