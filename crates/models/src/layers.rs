//! The first values of parameters, and layers whose weights may be quantised blocks.

use kiln_nn::{
    BlockEmbedding, BlockLinear, Conv2d, Conv2dConfig, Embedding, Initializer, LayerNorm, Linear,
    PaddingConfig2d, Param, Projection, TokenEmbedding,
};
use kiln_store::Weights;
use kiln_tensor::{Backend, BlockFormat, DType, Int, Tensor};

use crate::loading::stored_name;

/// Returns a convolution without bias for images, with square windows.
pub(crate) fn convolution<B: Backend>(
    channels: [usize; 2],
    [kernel, stride]: [usize; 2],
    padding: impl Into<PaddingConfig2d>,
    groups: usize,
    weights: Initializer,
    device: &B::Device,
) -> Conv2d<B> {
    Conv2dConfig::new(channels, [kernel, kernel])
        .with_stride([stride, stride])
        .with_groups(groups)
        .with_padding(padding)
        .with_bias(false)
        .with_initializer(weights)
        .init(device)
}

/// The first values of the parameters of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FirstValues {
    /// Weights from a distribution, to train a model from scratch.
    Random(Initializer),
    /// Zeros of this dtype that use no memory, for parameters that a file will replace.
    Placeholder(DType),
}

impl FirstValues {
    /// Weights of the normal distribution around 0.
    pub(crate) fn normal(std: f64) -> FirstValues {
        FirstValues::Random(Initializer::Normal { mean: 0.0, std })
    }

    /// Returns a weight.
    pub(crate) fn weight<B: Backend, const D: usize>(
        self,
        shape: [usize; D],
        device: &B::Device,
    ) -> Param<Tensor<B, D>> {
        match self {
            FirstValues::Random(initializer) => initializer.init(shape, device),
            FirstValues::Placeholder(dtype) => placeholder(shape, dtype, device),
        }
    }

    /// Returns a parameter with the same value in each element.
    pub(crate) fn constant<B: Backend>(
        self,
        length: usize,
        value: f64,
        device: &B::Device,
    ) -> Param<Tensor<B, 1>> {
        match self {
            FirstValues::Random(_) => Initializer::Constant { value }.init([length], device),
            FirstValues::Placeholder(dtype) => placeholder([length], dtype, device),
        }
    }

    /// Returns a linear layer with a bias.
    pub(crate) fn linear<B: Backend>(self, [input, output]: [usize; 2], device: &B::Device) -> Linear<B> {
        let bias = Some(self.constant(output, 0.0, device));
        Linear { weight: self.weight([output, input], device), bias }
    }

    /// Returns a linear layer of a language model.
    pub(crate) fn projection<B: Backend>(
        self,
        [input, output]: [usize; 2],
        bias: bool,
        device: &B::Device,
    ) -> Projection<B> {
        let bias = bias.then(|| self.constant(output, 0.0, device));
        Linear { weight: self.weight([output, input], device), bias }.into()
    }

    /// Returns a table of embeddings `[rows, features]`.
    pub(crate) fn table<B: Backend>(self, [rows, features]: [usize; 2], device: &B::Device) -> Embedding<B> {
        let weight = self.weight([rows, features], device);
        Embedding { weight, padding_idx: None, max_norm: None, norm_type: 2.0 }
    }

    /// Returns a layer normalisation with weight and bias.
    pub(crate) fn layer_norm<B: Backend>(
        self,
        features: usize,
        epsilon: f64,
        device: &B::Device,
    ) -> LayerNorm<B> {
        LayerNorm {
            weight: Some(self.constant(features, 1.0, device)),
            bias: Some(self.constant(features, 0.0, device)),
            epsilon,
        }
    }
}

/// A view of one zero in a larger shape.
fn placeholder<B: Backend, const D: usize>(
    shape: [usize; D],
    dtype: DType,
    device: &B::Device,
) -> Param<Tensor<B, D>> {
    Param::from_tensor(Tensor::<B, D>::zeros([1; D], device).cast(dtype).expand(shape))
}

/// Placeholders for the bytes of the blocks of a matrix.
fn block_placeholder<B: Backend>(
    [rows, columns]: [usize; 2],
    format: BlockFormat,
    device: &B::Device,
) -> Option<Param<Tensor<B, 2, Int>>> {
    let bytes = format.row_bytes(columns)?;
    Some(Param::buffer(Tensor::<B, 2, Int>::zeros([1, 1], device).cast(DType::U8).expand([rows, bytes])))
}

/// Prepares a projection for weights: for quantised blocks if the file has such. `name` is that of the projection.
pub(crate) fn match_projection<B: Backend>(
    projection: &mut Projection<B>,
    name: &str,
    weights: &Weights,
    device: &B::Device,
) {
    let Some(format) = blocks_of(weights, &format!("{name}.weight")) else { return };
    let Projection::Float(linear) = &*projection else { return };
    if let Some(weight) = block_placeholder(linear.weight.dims(), format, device) {
        *projection = Projection::Blocks(BlockLinear { weight, bias: linear.bias.clone(), format });
    }
}

/// Prepares the embeddings of tokens, with their name, and the head of a language model for weights.
pub(crate) fn match_ends<B: Backend>(
    (name, embedding): (&str, &mut TokenEmbedding<B>),
    head: &mut Option<Projection<B>>,
    weights: &Weights,
    device: &B::Device,
) {
    match_embedding(embedding, name, weights, device);
    if let Some(head) = head {
        match_projection(head, "lm_head", weights, device);
    }
}

/// Prepares an embedding for weights: for quantised blocks if the file has such. `name` is that of the embedding.
fn match_embedding<B: Backend>(
    embedding: &mut TokenEmbedding<B>,
    name: &str,
    weights: &Weights,
    device: &B::Device,
) {
    let Some(format) = blocks_of(weights, &format!("{name}.weight")) else { return };
    let TokenEmbedding::Float(table) = &*embedding else { return };
    if let Some(weight) = block_placeholder(table.weight.dims(), format, device) {
        *embedding = TokenEmbedding::Blocks(BlockEmbedding { weight, format });
    }
}

fn blocks_of(weights: &Weights, parameter: &str) -> Option<BlockFormat> {
    weights.info(stored_name(weights, parameter)?)?.blocks
}
