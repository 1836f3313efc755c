//! Training of causal language models.

use super::training::cross_entropy;
use bench_protocol::workloads::{Language, Row};
use bench_protocol::{Prepared, Result};
use kiln::nn::transformer::{
    FeedForwardActivation, TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use kiln::nn::{AutodiffModule, Embedding, EmbeddingConfig, Linear, LinearConfig, Module, Param};
use kiln::optim::AdamWConfig;
use kiln::{Autodiff, Backend, Int, Tensor};

#[derive(Module, Clone, Debug)]
struct Transformer<B: Backend> {
    tokens: Embedding<B>,
    positions: Param<Tensor<B, 3>>,
    body: TransformerEncoder<B>,
    output: Linear<B>,
}

/// A small model.
pub(crate) fn train<B: Backend>(row: &Row, device: &B::Device) -> Result<Prepared> {
    let sizes = row.language()?;
    let Language { length, vocabulary, width, .. } = sizes;
    let model = Transformer::<Autodiff<B>> {
        tokens: EmbeddingConfig::new(vocabulary, width).init(device),
        positions: Param::from_tensor(Tensor::zeros([1, length, width], device)),
        body: body(&sizes).init(device),
        output: LinearConfig::new(width, vocabulary).init(device),
    };
    Ok(training(model, &sizes, device, |model, tokens| {
        let x = model.tokens.forward(tokens) + model.positions.val();
        let x = model.body.forward(TransformerEncoderInput::new(x).causal());
        model.output.forward(x.flatten(0, 1))
    }))
}

/// The layers.
pub(super) fn body(sizes: &Language) -> TransformerEncoderConfig {
    TransformerEncoderConfig::new(sizes.width, sizes.feed_forward, sizes.heads, sizes.layers)
        .with_dropout(0.0)
        .with_norm_first(true)
        .with_final_norm(true)
        .with_activation(FeedForwardActivation::Gelu)
}

/// Training by AdamW of a model whose logits of the next token, `[batch * length, vocabulary]`, are given.
pub(super) fn training<B: Backend, M: AutodiffModule<Autodiff<B>> + 'static>(
    model: M,
    sizes: &Language,
    device: &B::Device,
    logits: impl Fn(&M, Tensor<Autodiff<B>, 2, Int>) -> Tensor<Autodiff<B>, 2> + 'static,
) -> Prepared {
    let [tokens, targets] = sizes.tokens();
    let input = Tensor::<Autodiff<B>, 1, Int>::from_data(tokens, device).reshape([sizes.batch, sizes.length]);
    let optimizer = AdamWConfig::new().with_weight_decay(sizes.weight_decay).init();
    cross_entropy(model, optimizer, sizes.learning_rate, targets, device, move |model| {
        logits(model, input.clone())
    })
}
