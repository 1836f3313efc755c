//! Training of a small causal language model.

use super::training::Training;
use bench_protocol::random::Random;
use bench_protocol::shapes::transformer::*;
use bench_protocol::{Prepared, Result};
use kiln::nn::transformer::{
    FeedForwardActivation, TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use kiln::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, Module, Param};
use kiln::optim::AdamWConfig;
use kiln::{Autodiff, Backend, Int, Tensor, loss};

#[derive(Module, Clone, Debug)]
struct Transformer<B: Backend> {
    tokens: Embedding<B>,
    positions: Param<Tensor<B, 3>>,
    body: TransformerEncoder<B>,
    output: Linear<B>,
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
        let body = TransformerEncoderConfig::new(WIDTH, FEED_FORWARD, HEADS, LAYERS)
            .with_dropout(0.0)
            .with_norm_first(true)
            .with_final_norm(true)
            .with_activation(FeedForwardActivation::Gelu);
        Transformer {
            tokens: EmbeddingConfig::new(VOCABULARY, WIDTH).init(device),
            positions: Param::from_tensor(Tensor::zeros([1, LENGTH, WIDTH], device)),
            body: body.init(device),
            output: LinearConfig::new(WIDTH, VOCABULARY).init(device),
        }
    }

    /// Logits of the next token, `[batch * length, vocabulary]`.
    fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let x = self.tokens.forward(tokens) + self.positions.val();
        let x = self.body.forward(TransformerEncoderInput::new(x).causal());
        self.output.forward(x.flatten(0, 1))
    }
}
