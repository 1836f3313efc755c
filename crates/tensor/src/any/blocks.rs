//! Quantized blocks. The typed form is [`blocks`](mod@crate::blocks).

use crate::{AnyTensor, DType, Result, TensorData};
use alloc::format;
use kiln_ir::{BlockFormat, Op};

impl AnyTensor {
    /// Quantises each row of `[.., elements]` to blocks on the host, rounding to the nearest: `u8`, `[.., bytes]`. Waits
    /// for the device. Blocks have no gradient. See [`BlockTensor::quantize`](crate::blocks::BlockTensor::quantize).
    ///
    /// # Errors
    /// When the dtype is not a float, the tensor has no axes, a row is not a whole number of blocks, or the computation
    /// of the elements failed.
    pub fn quantize_blocks(self, format: BlockFormat) -> Result<AnyTensor> {
        const OP: &str = "quantize_blocks";
        self.check_float(OP)?;
        self.check_rank(OP, 1, "[.., elements]")?;
        let (shape, stack) = (*self.shape(), self.stack().clone());
        let axis = shape.rank() - 1;
        let Some(row) = format.row_bytes(shape[axis]) else {
            let (name, len) = (format.name(), format.len());
            let problem = format!("rows of {} elements are not whole {name} blocks of {len}", shape[axis]);
            return Err(self.wrong(OP, problem).hint("choose a format of 32 elements, or pad the rows"));
        };
        let shape = shape.with(axis, row);
        let values = self.into_data_dtype(DType::F32)?;
        let mut blocks = alloc::vec![0; shape.num_elements()];
        format.encode(values.as_slice()?, &mut blocks);
        Ok(AnyTensor::from_data(TensorData::new(blocks, shape)?, &stack))
    }

    /// Dequantises blocks, `u8 [.., bytes]`, to a float dtype: `[.., elements]`. See
    /// [`BlockTensor::dequantize`](crate::blocks::BlockTensor::dequantize).
    ///
    /// # Errors
    /// When the blocks are not `u8`, have no axes, or a row is not a whole number of blocks; or `dtype` is not a float.
    pub fn dequantize_blocks(self, format: BlockFormat, dtype: DType) -> Result<AnyTensor> {
        self.apply(&Op::DequantizeBlocks { format, dtype })
    }

    /// Computes `x · dequantize(weight)ᵀ`: `self` is `[.., in]`, the weight `u8 [out, bytes]` in blocks; the result is
    /// `[.., out]`. See [`BlockTensor::linear`](crate::blocks::BlockTensor::linear).
    ///
    /// # Errors
    /// When the dtype is not a float, the tensor has no axes, the weight is not a matrix of whole blocks in `u8`, or
    /// the rows of both differ in their number of elements.
    pub fn matmul_blocks(self, weight: AnyTensor, format: BlockFormat) -> Result<AnyTensor> {
        let op = Op::MatMulBlocks { format };
        self.in_same_domain(op.name(), &weight)?;
        self.check_rank(op.name(), 1, "[.., in]")?;
        let shape = *self.shape();
        let axis = shape.rank() - 1;
        // One matmul over all rows: leading axes are merged.
        let rows: usize = shape[..axis].iter().product();
        let x = self.reshape([rows, shape[axis]])?;
        let y = x.apply_with(&op, [weight.into_value().into()])?;
        let columns = y.shape()[1];
        y.reshape(shape.with(axis, columns))
    }
}
