//! A transformer encoder as a classifier, with attention from `tensor::module`: does a sequence repeat its first token?

use kiln as burn;

use burn::backend::{Autodiff, Flex};
use burn::module::{AutodiffModule, Module, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Gelu, LayerNorm, LayerNormConfig, Linear,
    LinearConfig,
};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::module::attention;

#[derive(Module, Debug, Clone)]
struct EncoderLayer<B: Backend> {
    query_key_value: Linear<B>,
    output: Linear<B>,
    linear_inner: Linear<B>,
    linear_outer: Linear<B>,
    norm_1: LayerNorm<B>,
    norm_2: LayerNorm<B>,
    dropout: Dropout,
    gelu: Gelu,
    n_heads: usize,
}

#[derive(Config, Debug)]
struct EncoderConfig {
    d_model: usize,
    d_ff: usize,
    n_heads: usize,
    n_layers: usize,
    #[config(default = 0.0)]
    dropout: f64,
}

impl EncoderConfig {
    fn layer<B: Backend>(&self, device: &B::Device) -> EncoderLayer<B> {
        EncoderLayer {
            query_key_value: LinearConfig::new(self.d_model, 3 * self.d_model).init(device),
            output: LinearConfig::new(self.d_model, self.d_model).init(device),
            linear_inner: LinearConfig::new(self.d_model, self.d_ff).init(device),
            linear_outer: LinearConfig::new(self.d_ff, self.d_model).init(device),
            norm_1: LayerNormConfig::new(self.d_model).init(device),
            norm_2: LayerNormConfig::new(self.d_model).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            gelu: Gelu::new(),
            n_heads: self.n_heads,
        }
    }
}

impl<B: Backend> EncoderLayer<B> {
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let x = self.norm_1.forward(x.clone() + self.dropout.forward(self.attend(x)));
        let inner = self.gelu.forward(self.linear_inner.forward(x.clone()));
        self.norm_2.forward(x + self.dropout.forward(self.linear_outer.forward(inner)))
    }

    fn attend(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let [batch, length, d_model] = x.dims();
        let d_head = d_model / self.n_heads;
        let heads = |x: Tensor<B, 3>| x.reshape([batch, length, self.n_heads, d_head]).swap_dims(1, 2);
        let mut parts = self.query_key_value.forward(x).chunk(3, 2).into_iter().map(heads);
        let (q, k, v) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let mixed = attention(q, k, v, None, Default::default());
        self.output.forward(mixed.swap_dims(1, 2).reshape([batch, length, d_model]))
    }
}

#[derive(Module, Debug, Clone)]
struct Classifier<B: Backend> {
    tokens: Embedding<B>,
    positions: Param<Tensor<B, 3>>,
    layers: Vec<EncoderLayer<B>>,
    output: Linear<B>,
}

impl<B: Backend> Classifier<B> {
    fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let [batch, length] = tokens.dims();
        let x = self.tokens.forward(tokens) + self.positions.val().expand([batch, length, 16]);
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x));
        self.output.forward(x.slice([0..batch, 0..1]).squeeze_dim(1))
    }
}

#[test]
fn a_transformer_encoder_finds_a_repeated_token() {
    type B = Autodiff<Flex>;
    let device = Default::default();
    B::seed(&device, 11);
    // All sequences of length four over three tokens.
    let digits = |n: i64| [n % 3, n / 3 % 3, n / 9 % 3, n / 27];
    let tokens: Vec<i64> = (0..81).flat_map(digits).collect();
    let targets: Vec<i64> = (0..81).map(digits).map(|d| i64::from(d[1..].contains(&d[0]))).collect();
    let tokens = Tensor::<B, 2, Int>::from_data(TensorData::new(tokens, [81, 4]).unwrap(), &device);
    let targets = Tensor::<B, 1, Int>::from_data(TensorData::new(targets, [81]).unwrap(), &device);

    let config = EncoderConfig::new(16, 32, 2, 1);
    let mut model = Classifier::<B> {
        tokens: EmbeddingConfig::new(3, 16).init(&device),
        positions: Param::from_tensor(Tensor::random([1, 4, 16], Distribution::Normal(0.0, 0.5), &device)),
        layers: (0..config.n_layers).map(|_| config.layer(&device)).collect(),
        output: LinearConfig::new(16, 2).init(&device),
    };
    let mut optim = AdamConfig::new().init();
    let loss_fn = CrossEntropyLossConfig::new().init(&device);
    for _ in 0..120 {
        let loss = loss_fn.forward(model.forward(tokens.clone()), targets.clone());
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optim.step(0.01, model, grads);
    }
    let hits = model.valid().forward(tokens.inner()).argmax(1).squeeze_dim::<1>(1).equal(targets.inner());
    let accuracy = hits.float().mean().into_scalar::<f32>();
    assert!(accuracy > 0.95, "{accuracy}");
}
