//! Training of GPT-2 with 124 million parameters.

use super::GpuDevice;
use super::training::Training;
use bench_protocol::gpu::gpt2::*;
use bench_protocol::random::Random;
use bench_protocol::{Prepared, Result};
use kiln::nn::transformer::{
    FeedForwardActivation, TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use kiln::nn::{Embedding, EmbeddingConfig, Initializer, Module};
use kiln::optim::AdamWConfig;
use kiln::{Autodiff, Backend, Int, Tensor, loss};

#[derive(Module, Clone, Debug)]
struct Gpt<B: Backend> {
    /// Token embeddings, tied to the output projection of the logits.
    tokens: Embedding<B>,
    positions: Embedding<B>,
    body: TransformerEncoder<B>,
}

/// `batch` sequences a step. `B` decides the precision.
pub(crate) fn train<B: Backend<Device = GpuDevice>>(batch: usize, device: &GpuDevice) -> Result<Prepared> {
    let model = Gpt::<Autodiff<B>>::new(device);
    let mut random = Random::new(5);
    let mut tokens = || -> Vec<i32> {
        let drawn = random.indices(batch * LENGTH, VOCABULARY as u32);
        drawn.into_iter().map(|token| token as i32).collect()
    };
    let input = Tensor::<Autodiff<B>, 1, Int>::from_data(tokens(), device).reshape([batch, LENGTH]);
    let targets = Tensor::<Autodiff<B>, 1, Int>::from_data(tokens(), device);
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

impl<B: Backend> Gpt<B> {
    fn new(device: &B::Device) -> Self {
        let embedding = |count| EmbeddingConfig::new(count, WIDTH).with_initializer(INITIAL).init(device);
        let body = TransformerEncoderConfig::new(WIDTH, 4 * WIDTH, HEADS, LAYERS)
            .with_dropout(0.0)
            .with_norm_first(true)
            .with_final_norm(true)
            .with_activation(FeedForwardActivation::Gelu)
            .with_initializer(Some(INITIAL));
        Gpt { tokens: embedding(VOCABULARY), positions: embedding(LENGTH), body: body.init(device) }
    }

    /// Logits of the next token, `[batch * length, vocabulary]`.
    fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let places = Tensor::<B, 1, Int>::arange(0..LENGTH as i64, &tokens.device()).reshape([1, LENGTH]);
        let x = self.tokens.forward(tokens) + self.positions.forward(places);
        let x = self.body.forward(TransformerEncoderInput::new(x).causal());
        x.flatten::<2>(0, 1).matmul(self.tokens.weight.val().transpose())
    }
}
