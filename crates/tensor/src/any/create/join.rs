//! Concatenation and stacking.

use crate::{AnyTensor, Axis, Error, Result, Stack};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Op, Operand, OperandType, PadAxis};

impl AnyTensor {
    /// Concatenates tensors along an axis; different dtypes are promoted ([`DType::promote`](crate::DType::promote)).
    /// See [`Tensor::cat`](crate::Tensor::cat).
    ///
    /// # Errors
    /// When there are no tensors, the axis is out of range, or the shapes differ outside the axis.
    #[doc(alias = "concatenate")]
    #[doc(alias = "concat")]
    pub fn cat(tensors: Vec<AnyTensor>, axis: impl Into<Axis>) -> Result<AnyTensor> {
        AnyTensor::join("cat", tensors, axis.into())
    }

    fn join(op: &str, tensors: Vec<AnyTensor>, axis: Axis) -> Result<AnyTensor> {
        let mut rest = tensors.into_iter();
        let Some(first) = rest.next() else {
            return Err(Error::type_error(op, "needs at least one tensor", &[])
                .hint("of no tensors, dtype and device are not known"));
        };
        let axis = axis.of(op, first.ty())?;
        let rest: Vec<AnyTensor> = rest.collect();
        let mut dtype = first.dtype();
        for other in &rest {
            first.in_same_domain(op, other)?;
            dtype = AnyTensor::meeting(op, dtype, &first, other)?;
        }
        let rest = rest.into_iter().map(|other| Ok(other.cast(dtype)?.into_value().into()));
        let rest: Vec<Operand> = rest.collect::<Result<_>>()?;
        first.cast(dtype)?.apply_with(&Op::Concat { axis }, rest).map_err(|error| error.in_op(op))
    }

    /// Stacks tensors of one shape along a new axis. See [`Tensor::stack`](crate::Tensor::stack); here `stack` is the
    /// stack of engines.
    ///
    /// # Errors
    /// When there are no tensors, their shapes differ, or the axis is out of range of the result.
    pub fn stack_tensors(tensors: Vec<AnyTensor>, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into();
        let Some(first) = tensors.first() else {
            return Err(Error::type_error("stack", "needs at least one tensor", &[])
                .hint("of no tensors, dtype and device are not known"));
        };
        if tensors.iter().any(|tensor| tensor.shape() != first.shape()) {
            let types: Vec<OperandType<'_>> = tensors.iter().map(|tensor| tensor.ty().into()).collect();
            return Err(Error::type_error("stack", "shapes differ", &types)
                .hint("`cat` joins tensors that differ along one axis"));
        }
        let parts = tensors.into_iter().map(|tensor| tensor.unsqueeze_dim(axis));
        AnyTensor::join("stack", parts.collect::<Result<Vec<AnyTensor>>>()?, axis)
    }

    /// Concatenates tensors horizontally. See [`Tensor::hstack`](crate::Tensor::hstack).
    ///
    /// # Errors
    /// When there are no tensors, or their shapes differ outside the joined axis.
    pub fn hstack(tensors: Vec<AnyTensor>) -> Result<AnyTensor> {
        let tensors = each(tensors, AnyTensor::atleast_1d)?;
        let axis = usize::from(tensors.first().is_some_and(|tensor| tensor.rank() > 1));
        AnyTensor::join("hstack", tensors, axis.into())
    }

    /// Concatenates tensors vertically. See [`Tensor::vstack`](crate::Tensor::vstack).
    ///
    /// # Errors
    /// As [`hstack`](AnyTensor::hstack).
    pub fn vstack(tensors: Vec<AnyTensor>) -> Result<AnyTensor> {
        AnyTensor::join("vstack", each(tensors, AnyTensor::atleast_2d)?, 0.into())
    }

    /// Concatenates tensors along axis 2. See [`Tensor::dstack`](crate::Tensor::dstack).
    ///
    /// # Errors
    /// As [`hstack`](AnyTensor::hstack).
    pub fn dstack(tensors: Vec<AnyTensor>) -> Result<AnyTensor> {
        AnyTensor::join("dstack", each(tensors, AnyTensor::atleast_3d)?, 2.into())
    }

    /// Concatenates tensors along axis 1; vectors are columns. See
    /// [`Tensor::column_stack`](crate::Tensor::column_stack).
    ///
    /// # Errors
    /// As [`hstack`](AnyTensor::hstack).
    pub fn column_stack(tensors: Vec<AnyTensor>) -> Result<AnyTensor> {
        let column = |tensor: AnyTensor| match tensor.rank() {
            0 => tensor.reshape([1, 1]),
            1 => tensor.unsqueeze_dim(1),
            _ => Ok(tensor),
        };
        AnyTensor::join("column_stack", each(tensors, column)?, 1.into())
    }

    /// Builds a block-diagonal matrix. See [`Tensor::block_diag`](crate::Tensor::block_diag).
    ///
    /// # Errors
    /// When there are no tensors, or one has more than two axes.
    pub fn block_diag(tensors: Vec<AnyTensor>) -> Result<AnyTensor> {
        let blocks = each(tensors, AnyTensor::atleast_2d)?;
        if let Some(block) = blocks.iter().find(|block| block.rank() != 2) {
            let problem = format!("needs matrices, not {} axes", block.rank());
            return Err(Error::type_error("block_diag", problem, &[block.ty().into()])
                .hint("flatten the blocks to rows and columns first"));
        }
        let total: usize = blocks.iter().map(|block| block.shape()[1]).sum();
        let mut before = 0;
        let rows = blocks.into_iter().map(|block| {
            let (width, zero) = (block.shape()[1], super::super::zero(block.dtype()));
            let pads = Vec::from([PadAxis::default(), PadAxis::new(before, total - before - width)]);
            before += width;
            block.pad_axes(pads, zero)
        });
        AnyTensor::join("block_diag", rows.collect::<Result<Vec<AnyTensor>>>()?, 0.into())
    }

    /// Creates an identity matrix, `[rows, columns]`. See [`Tensor::eye`](crate::Tensor::eye).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn eye(
        rows: usize,
        columns: usize,
        dtype: crate::DType,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        AnyTensor::diag_mask([rows, columns], 0, device)?.cast(dtype)
    }
}

fn each(tensors: Vec<AnyTensor>, f: impl Fn(AnyTensor) -> Result<AnyTensor>) -> Result<Vec<AnyTensor>> {
    tensors.into_iter().map(f).collect()
}
