//! Training of GPT-2
//! ([Radford et al. 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)).

use super::super::transformer::{body, training};
use super::GpuDevice;
use bench_protocol::workloads::{Language, Row};
use bench_protocol::{Prepared, Result};
use kiln::nn::transformer::{TransformerEncoder, TransformerEncoderInput};
use kiln::nn::{Embedding, EmbeddingConfig, Initializer, Module};
use kiln::{Autodiff, Backend, Int, Tensor};

#[derive(Module, Clone, Debug)]
struct Gpt<B: Backend> {
    /// Token embeddings, tied to the output projection of the logits.
    tokens: Embedding<B>,
    positions: Embedding<B>,
    body: TransformerEncoder<B>,
}

/// `B` decides the precision.
pub(crate) fn train<B: Backend<Device = GpuDevice>>(row: &Row, device: &GpuDevice) -> Result<Prepared> {
    let sizes = row.language()?;
    let Language { length, vocabulary, width, .. } = sizes;
    let initial = Initializer::Normal { mean: 0.0, std: row.number("deviation")? };
    let embedding = |count| EmbeddingConfig::new(count, width).with_initializer(initial).init(device);
    let model = Gpt::<Autodiff<B>> {
        tokens: embedding(vocabulary),
        positions: embedding(length),
        body: body(&sizes).with_initializer(Some(initial)).init(device),
    };
    Ok(training(model, &sizes, device, move |model, tokens| {
        let places = Tensor::<_, 1, Int>::arange(0..length as i64, &tokens.device()).reshape([1, length]);
        let x = model.tokens.forward(tokens) + model.positions.forward(places);
        let x = model.body.forward(TransformerEncoderInput::new(x).causal());
        x.flatten::<2>(0, 1).matmul(model.tokens.weight.val().transpose())
    }))
}
