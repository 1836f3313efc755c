//! An embedding with a table in floats or in quantized blocks.

use crate::module::forward::forward_modules;
use crate::{BlockEmbedding, Embedding, Module};
use kiln_backends::Dyn;
use kiln_tensor::blocks::{BlockFormat, BlockTensor};
use kiln_tensor::{Backend, Int, Result, Tensor, module};

/// The token embedding of a language model, with a table in floats or in quantized blocks. The table may also be the
/// output projection: [`project`](TokenEmbedding::project).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{EmbeddingConfig, TokenEmbedding};
/// use kiln_tensor::Tensor;
/// use kiln_tensor::blocks::BlockFormat;
///
/// let device = Default::default();
/// let embedding = TokenEmbedding::from(EmbeddingConfig::new(100, 32).init::<Flex>(&device));
/// let embedding = embedding.quantize(BlockFormat::Q8_0)?;
/// let x = embedding.forward(Tensor::from_data([[3, 99, 0]], &device));
/// assert_eq!(x.dims(), [1, 3, 32]);
/// assert_eq!(embedding.project(x).dims(), [1, 3, 100]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[derive(Module, Clone, Debug)]
pub enum TokenEmbedding<B: Backend = Dyn> {
    /// A table in floats.
    Float(Embedding<B>),
    /// A table in quantized blocks.
    Blocks(BlockEmbedding<B>),
}

impl<B: Backend> TokenEmbedding<B> {
    /// Looks up indices `[batch, length]`; the output is `[batch, length, d_model]`. An index out of range poisons the
    /// result: reading it returns the error.
    #[track_caller]
    pub fn forward(&self, indices: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        match self {
            TokenEmbedding::Float(embedding) => embedding.forward(indices),
            TokenEmbedding::Blocks(embedding) => embedding.forward(indices),
        }
    }

    /// Computes `x Eᵀ` with the table `E`, the logits of all tokens: the input is `[.., d_model]`, the output
    /// `[.., n_embedding]`. For models whose output projection is tied to the embedding.
    ///
    /// # Panics
    /// When the last dimension differs from `d_model`.
    #[track_caller]
    pub fn project<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            TokenEmbedding::Float(embedding) => module::linear(x, embedding.weight.val(), None),
            TokenEmbedding::Blocks(embedding) => embedding.blocks().linear(x),
        }
    }

    /// Returns the embedding with its table in blocks of a format, rounded to the nearest on the host. A table in
    /// another format is dequantised first. Waits for the device.
    ///
    /// # Errors
    /// When the vectors are not whole blocks ([`BlockFormat::fitting`] has a format that fits), or the embedding has a
    /// maximum norm.
    pub fn quantize(self, format: BlockFormat) -> Result<Self> {
        match self {
            TokenEmbedding::Blocks(embedding) if embedding.format == format => {
                Ok(TokenEmbedding::Blocks(embedding))
            }
            TokenEmbedding::Float(_) | TokenEmbedding::Blocks(_) => {
                Ok(TokenEmbedding::Blocks(BlockEmbedding::quantize(&self.dequantize(), format)?))
            }
        }
    }

    /// Returns the embedding with a table in floats.
    ///
    /// # Panics
    /// When the blocks are not `u8`, or not whole.
    #[track_caller]
    pub fn dequantize(self) -> Embedding<B> {
        match self {
            TokenEmbedding::Float(embedding) => embedding,
            TokenEmbedding::Blocks(embedding) => embedding.dequantize(),
        }
    }

    /// Returns the format of the blocks; `None` of a table in floats.
    pub fn format(&self) -> Option<BlockFormat> {
        match self {
            TokenEmbedding::Float(_) => None,
            TokenEmbedding::Blocks(embedding) => Some(embedding.format),
        }
    }

    /// Returns the number of embeddings: the size of the vocabulary.
    pub fn n_embedding(&self) -> usize {
        match self {
            TokenEmbedding::Float(embedding) => embedding.weight.dims()[0],
            TokenEmbedding::Blocks(embedding) => embedding.weight.dims()[0],
        }
    }

    /// Returns the length of each embedding vector.
    pub fn d_model(&self) -> usize {
        match self {
            TokenEmbedding::Float(embedding) => embedding.weight.dims()[1],
            TokenEmbedding::Blocks(embedding) => embedding.blocks().columns(),
        }
    }
}

impl<B: Backend> From<Embedding<B>> for TokenEmbedding<B> {
    fn from(embedding: Embedding<B>) -> Self {
        TokenEmbedding::Float(embedding)
    }
}

impl<B: Backend> From<BlockEmbedding<B>> for TokenEmbedding<B> {
    fn from(embedding: BlockEmbedding<B>) -> Self {
        TokenEmbedding::Blocks(embedding)
    }
}

impl<B: Backend> From<BlockTensor<B>> for TokenEmbedding<B> {
    fn from(table: BlockTensor<B>) -> Self {
        TokenEmbedding::Blocks(BlockEmbedding::new(table))
    }
}

forward_modules! {
    TokenEmbedding<B>: 2 Int => 3;
}
