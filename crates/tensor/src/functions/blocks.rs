//! Weights in quantized blocks, the formats of GGUF files: 2.6 to 9.1 bits an element.
//!
//! A block holds 32 or 256 consecutive elements of a row as small integers with their scales ([`BlockFormat`]). The
//! bytes are a plain `u8` tensor, `[rows, bytes]`, which can be moved and stored like any tensor. A [`BlockTensor`] is
//! these bytes with their format. [`quantize`](BlockTensor::quantize) makes one of floats, and a reader of GGUF files
//! one of the bytes of the file. [`linear`](BlockTensor::linear) multiplies by the weight as it is,
//! [`select`](BlockTensor::select) looks up rows, and [`dequantize`](BlockTensor::dequantize) returns all elements.
//!
//! Inference of language models is bound by the bandwidth of memory, and 4.5 bits are a seventh of the bytes of `f32`. The
//! CPU engine multiplies the integers of the blocks; other engines dequantise the weight in the kernel of the product
//! or before it. Blocks have no gradient: they are for inference, and for adapters beside frozen weights.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::blocks::{BlockFormat, BlockTensor};
//! use kiln_tensor::{Distribution, Tensor};
//!
//! let device = Default::default();
//! let weight = Tensor::<Flex, 2>::random([8, 64], Distribution::Normal(0.0, 1.0), &device);
//! let quantized = BlockTensor::quantize(weight.clone(), BlockFormat::Q8_0);
//! assert_eq!((quantized.rows(), quantized.columns()), (8, 64));
//! assert_eq!(quantized.blocks.dims(), [8, 2 * 34]);
//!
//! let x = Tensor::<Flex, 2>::random([3, 64], Distribution::Normal(0.0, 1.0), &device);
//! let difference = quantized.linear(x.clone()) - x.matmul(weight.transpose());
//! assert!(difference.abs().max().into_scalar::<f32>() < 0.5);
//! ```

pub use kiln_ir::BlockFormat;

use crate::tensor::ok;
use crate::{Backend, Int, Result, Tensor};
use kiln_ir::{Op, OperandType, infer};

/// A matrix in quantized blocks, such as the weight of a linear layer, `[out, in]`.
#[derive(Clone, Debug)]
pub struct BlockTensor<B: Backend> {
    /// The bytes of the blocks of each row, `u8 [rows, bytes]`.
    pub blocks: Tensor<B, 2, Int>,
    /// The format of the blocks.
    pub format: BlockFormat,
}

impl<B: Backend> BlockTensor<B> {
    /// Returns the matrix of blocks, `u8 [rows, bytes]`.
    ///
    /// # Panics
    /// When the bytes are not `u8`, or a row is not a whole number of blocks.
    #[track_caller]
    pub fn new(blocks: Tensor<B, 2, Int>, format: BlockFormat) -> Self {
        ok(BlockTensor::try_new(blocks, format))
    }

    /// Returns the matrix of blocks, `u8 [rows, bytes]`.
    ///
    /// # Errors
    /// When the bytes are not `u8`, or a row is not a whole number of blocks.
    pub fn try_new(blocks: Tensor<B, 2, Int>, format: BlockFormat) -> Result<Self> {
        let dtype = blocks.engine_stack().float_dtype();
        infer(&Op::DequantizeBlocks { format, dtype }, &[OperandType::Tensor(blocks.as_any().ty())])?;
        Ok(BlockTensor { blocks, format })
    }

    /// Quantises the rows of a matrix on the host, rounding to the nearest ([`BlockFormat::encode`]). Waits for the
    /// device.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::blocks::{BlockFormat, BlockTensor};
    ///
    /// let x = Tensor::<Flex, 2>::ones([4, 256], &Default::default());
    /// let q = BlockTensor::quantize(x, BlockFormat::Q4_K);
    /// assert_eq!(q.blocks.dims(), [4, 144]);
    /// assert_eq!(q.dequantize().sum().into_scalar::<f32>().round(), 1024.0);
    /// ```
    ///
    /// # Panics
    /// When a row is not a whole number of blocks ([`BlockFormat::fitting`] has a format that fits), or the matrix could
    /// not be computed.
    #[track_caller]
    pub fn quantize(x: Tensor<B, 2>, format: BlockFormat) -> Self {
        ok(BlockTensor::try_quantize(x, format))
    }

    /// Quantises the rows of a matrix, like [`quantize`](BlockTensor::quantize).
    ///
    /// # Errors
    /// When a row is not a whole number of blocks ([`BlockFormat::fitting`] has a format that fits), or the matrix could
    /// not be computed.
    pub fn try_quantize(x: Tensor<B, 2>, format: BlockFormat) -> Result<Self> {
        let blocks = x.into_any().quantize_blocks(format)?;
        Ok(BlockTensor { blocks: Tensor::from_any(blocks), format })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.blocks.dims()[0]
    }

    /// Returns the number of elements of a row.
    pub fn columns(&self) -> usize {
        self.blocks.dims()[1] / self.format.bytes() * self.format.len()
    }

    /// Returns all elements, `[rows, columns]`, in the default float dtype of the device.
    ///
    /// # Panics
    /// When the bytes are not `u8`, or a row is not a whole number of blocks.
    #[track_caller]
    pub fn dequantize(self) -> Tensor<B, 2> {
        dequantized(self.blocks, self.format)
    }

    /// Returns the rows of these indices, dequantised: `[count, columns]`. Of an embedding, `ids` are tokens. An index
    /// out of range poisons the result: reading it returns the error.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::blocks::{BlockFormat, BlockTensor};
    ///
    /// let device = Default::default();
    /// let table = Tensor::<Flex, 2>::from_data([[1.0f32; 32], [2.0; 32], [3.0; 32]], &device);
    /// let table = BlockTensor::quantize(table, BlockFormat::Q4_1);
    /// let rows = table.select(Tensor::from_data([2, 0], &device));
    /// assert_eq!(rows.mean_dim(1).into_data().to_vec::<f32>(), [3.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn select(self, ids: Tensor<B, 1, Int>) -> Tensor<B, 2> {
        let rows = ok(self.blocks.into_any().embedding(ids.into_any()));
        dequantized(Tensor::<B, 2, Int>::from_any(rows), self.format)
    }

    /// Computes `x · Wᵀ`: `x` is `[.., columns]`, the result `[.., rows]` in the dtype of `x`.
    ///
    /// The CPU rounds `x` to two bytes, except in `f64`: the error of an element is at most 1/64,516 of the greatest
    /// magnitude of its 32. `KILN_INT8_ACTIVATIONS=on` in the environment rounds to one byte, as llama.cpp does, with errors
    /// of 1/254: faster, and less exact. The gradient flows to `x`.
    ///
    /// # Panics
    /// When the last axis of `x` is not as long as a row, or the blocks are not `u8`.
    #[track_caller]
    pub fn linear<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        x.map(|any| any.matmul_blocks(self.blocks.clone().into_any(), self.format))
    }
}

#[track_caller]
fn dequantized<B: Backend>(blocks: Tensor<B, 2, Int>, format: BlockFormat) -> Tensor<B, 2> {
    let dtype = blocks.engine_stack().float_dtype();
    Tensor::from_any(ok(blocks.into_any().dequantize_blocks(format, dtype)))
}
