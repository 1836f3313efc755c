//! The embedding with a table in quantized blocks.

use crate::module::forward::forward_modules;
use crate::{Embedding, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::blocks::{BlockFormat, BlockTensor};
use kiln_tensor::{Backend, Int, Result, Tensor};

/// Embedding whose table is in quantized blocks ([`blocks`](mod@kiln_tensor::blocks)), for inference. Only the rows
/// that are looked up are dequantised.
///
/// The table is a buffer: optimizers do not update it.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{BlockEmbedding, EmbeddingConfig};
/// use kiln_tensor::Tensor;
/// use kiln_tensor::blocks::BlockFormat;
///
/// let device = Default::default();
/// let embedding = EmbeddingConfig::new(100, 32).init::<Flex>(&device);
/// let quantized = BlockEmbedding::quantize(&embedding, BlockFormat::Q8_0)?;
/// let ids = Tensor::from_data([[3, 99, 0]], &device);
/// let difference = (quantized.forward(ids.clone()) - embedding.forward(ids)).abs().max();
/// assert!(difference.into_scalar::<f32>() < 0.05);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[derive(Module, Clone, Debug)]
pub struct BlockEmbedding<B: Backend = Dyn> {
    /// The bytes of the blocks, `u8 [n_embedding, bytes]`.
    pub weight: Param<Tensor<B, 2, Int>>,
    /// The format of the blocks.
    #[module(attribute)]
    pub format: BlockFormat,
}

impl<B: Backend> BlockEmbedding<B> {
    /// Returns an embedding with this table, `[n_embedding, d_model]`.
    pub fn new(table: BlockTensor<B>) -> Self {
        BlockEmbedding { weight: Param::buffer(table.blocks), format: table.format }
    }

    /// Quantises the table of an embedding on the host, rounding to the nearest. Waits for the device.
    ///
    /// # Errors
    /// When the vectors are not whole blocks ([`BlockFormat::fitting`] has a format that fits), or the embedding has a
    /// maximum norm.
    pub fn quantize(embedding: &Embedding<B>, format: BlockFormat) -> Result<Self> {
        if embedding.max_norm.is_some() {
            let problem = "a quantized table has no maximum norm";
            let error = kiln_tensor::Error::value("BlockEmbedding", problem);
            return Err(error.hint("scale the vectors before they are quantized"));
        }
        Ok(BlockEmbedding::new(BlockTensor::try_quantize(embedding.weight.val(), format)?))
    }

    /// Returns the embedding with a float table.
    ///
    /// # Panics
    /// When the table is not `u8` in whole blocks.
    #[track_caller]
    pub fn dequantize(&self) -> Embedding<B> {
        Embedding {
            weight: Param::from_tensor(self.blocks().dequantize()),
            padding_idx: None,
            max_norm: None,
            norm_type: 2.0,
        }
    }

    /// Returns the table, `[n_embedding, d_model]`.
    pub fn blocks(&self) -> BlockTensor<B> {
        BlockTensor { blocks: self.weight.val(), format: self.format }
    }

    /// Looks up indices `[batch, length]`; the output is `[batch, length, d_model]` in the default float dtype. An index
    /// out of range poisons the result: reading it returns the error.
    #[track_caller]
    pub fn forward(&self, indices: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let ([batch, length], table) = (indices.dims(), self.blocks());
        let d_model = table.columns();
        table.select(indices.reshape([batch * length])).reshape([batch, length, d_model])
    }
}

forward_modules! {
    BlockEmbedding<B>: 2 Int => 3;
}
