//! Gathers: elements read by index.

use crate::{AnyTensor, Axis, Error, Result};
use alloc::format;
use kiln_ir::{Op, infer::broadcast_shapes};

impl AnyTensor {
    /// Replaces an axis by the axes of the index. See [`Tensor::take`](crate::Tensor::take).
    ///
    /// # Errors
    /// When the axis is out of range, or the index is not of an integer dtype.
    pub fn take(self, axis: impl Into<Axis>, index: AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain("take", &index)?;
        let axis = axis.into().of("take", self.ty())?;
        self.apply_with(&Op::Take { axis }, [index.into_value().into()])
    }

    /// Selects the slices of an axis at the indices, `[count]`. See [`Tensor::select`](crate::Tensor::select).
    ///
    /// # Errors
    /// When the axis is out of range, or the indices are not a vector of integers.
    #[doc(alias = "index_select")]
    pub fn select(self, axis: impl Into<Axis>, indices: AnyTensor) -> Result<AnyTensor> {
        if indices.rank() != 1 {
            let types = [self.ty().into(), indices.ty().into()];
            return Err(Error::type_error("select", "the indices need exactly 1 axis", &types)
                .hint("`take` accepts indices with any number of axes"));
        }
        self.take(axis, indices).map_err(|error| error.in_op("select"))
    }

    /// Gathers elements along an axis by index. See [`Tensor::gather`](crate::Tensor::gather).
    ///
    /// # Errors
    /// When the axis is out of range, or the index is not of an integer dtype, differs in rank, or is longer than the
    /// tensor in another axis.
    pub fn gather(self, axis: impl Into<Axis>, index: AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain("gather", &index)?;
        let axis = axis.into().of("gather", self.ty())?;
        self.beside(&index, axis)?.apply_with(&Op::Gather { axis }, [index.into_value().into()])
    }

    /// Returns the part of a tensor that an index uses which is shorter in other axes than `axis`.
    pub(super) fn beside(self, index: &AnyTensor, axis: usize) -> Result<AnyTensor> {
        if self.rank() != index.rank() {
            return Ok(self);
        }
        let lengths = *index.shape();
        let shorter = (0..lengths.rank()).filter(|&other| other != axis);
        shorter.into_iter().try_fold(self, |part, other| {
            let length = lengths[other];
            if length < part.shape()[other] { part.narrow(other, 0, length) } else { Ok(part) }
        })
    }

    /// Like [`gather`](AnyTensor::gather), but tensor and indices broadcast outside the axis. See
    /// [`Tensor::take_along_dim`](crate::Tensor::take_along_dim).
    ///
    /// # Errors
    /// When the axis is out of range, the indices are not integers, ranks differ, or the shapes do not broadcast
    /// outside the axis.
    #[doc(alias = "take_along_axis")]
    pub fn take_along_dim(self, axis: impl Into<Axis>, indices: AnyTensor) -> Result<AnyTensor> {
        let axis = axis.into().of("take_along_dim", self.ty())?;
        let (x, index) = (*self.shape(), *indices.shape());
        let common =
            (x.rank() == index.rank()).then(|| broadcast_shapes(&x.with(axis, 1), &index.with(axis, 1)));
        let Some(Some(common)) = common else {
            let problem = format!("tensor and indices do not broadcast outside axis {axis}");
            return Err(Error::type_error(
                "take_along_dim",
                problem,
                &[self.ty().into(), indices.ty().into()],
            ));
        };
        let indices = indices.expand(common.with(axis, index[axis]))?;
        self.expand(common.with(axis, x[axis]))?.gather(axis, indices)
    }
}
