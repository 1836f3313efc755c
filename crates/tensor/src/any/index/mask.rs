//! Masks: selection by booleans, and the elements where a mask is true.

use crate::{AnyTensor, Error, Number, Result};
use alloc::vec::Vec;
use kiln_ir::{Comparison, Op, infer::broadcast_shapes};

impl AnyTensor {
    /// Selects elements of `values` where the mask is true, and of `self` elsewhere; broadcasts. See
    /// [`Tensor::mask_where`](crate::Tensor::mask_where).
    ///
    /// # Errors
    /// When the mask is not `bool`, or the shapes do not broadcast.
    #[doc(alias = "where")]
    pub fn mask_where(self, mask: AnyTensor, values: AnyTensor) -> Result<AnyTensor> {
        mask.if_else(values, self).map_err(|error| error.in_op("mask_where"))
    }

    /// Fills the elements where the mask is true with a scalar; broadcasts. See
    /// [`Tensor::mask_fill`](crate::Tensor::mask_fill).
    ///
    /// # Errors
    /// When the mask is not `bool`, the shapes do not broadcast, or the number is not a value of the dtype.
    #[doc(alias = "masked_fill")]
    pub fn mask_fill(self, mask: AnyTensor, x: impl Number) -> Result<AnyTensor> {
        mask.if_else_number(x, self).map_err(|error| error.in_op("mask_fill"))
    }

    /// Returns the elements where the mask is true, in row-major order, `[count]`. Waits for the device. See
    /// [`Tensor::mask_select`](crate::Tensor::mask_select).
    ///
    /// # Errors
    /// When the mask is not `bool`, or the shapes do not broadcast.
    #[doc(alias = "masked_select")]
    pub fn mask_select(self, mask: AnyTensor) -> Result<AnyTensor> {
        let (x, mask) = self.flat_beside(mask)?;
        let places = mask.argwhere()?;
        let count = places.shape()[0];
        x.take(0, places.reshape([count])?)
    }

    /// Like [`mask_select`](AnyTensor::mask_select), without blocking the thread.
    ///
    /// # Errors
    /// As [`mask_select`](AnyTensor::mask_select), and when the computation of the mask failed.
    pub async fn mask_select_async(self, mask: AnyTensor) -> Result<AnyTensor> {
        let (x, mask) = self.flat_beside(mask)?;
        let places = mask.argwhere_async().await?;
        let count = places.shape()[0];
        x.take(0, places.reshape([count])?)
    }

    /// Broadcasts tensor and mask together, and flattens both.
    fn flat_beside(self, mask: AnyTensor) -> Result<(AnyTensor, AnyTensor)> {
        self.in_same_domain("mask_select", &mask)?;
        let types = [self.ty().into(), mask.ty().into()];
        let Some(shape) = broadcast_shapes(self.shape(), mask.shape()) else {
            return Err(Error::type_error("mask_select", "tensor and mask do not broadcast", &types)
                .hint("aligned at the last axis, lengths must be equal or 1"));
        };
        if !mask.dtype().is_bool() {
            return Err(Error::type_error("mask_select", "the mask must be bool", &types)
                .hint("a comparison returns one: `greater_elem(0)`"));
        }
        Ok((self.expand(shape)?.flatten_all()?, mask.expand(shape)?.flatten_all()?))
    }

    /// Returns the coordinates of the elements that are true or nonzero, in row-major order, `[count, rank]`. Waits for
    /// the device. See [`Tensor::argwhere`](crate::Tensor::argwhere).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn argwhere(self) -> Result<AnyTensor> {
        let index = self.stack().int_dtype();
        self.apply(&Op::NonZero { index })
    }

    /// Like [`argwhere`](AnyTensor::argwhere), without blocking the thread.
    ///
    /// # Errors
    /// When the computation of the elements failed.
    pub async fn argwhere_async(self) -> Result<AnyTensor> {
        let index = self.stack().int_dtype();
        let places = self.apply_async(&Op::NonZero { index }).await?;
        places.value().error().cloned().map_or(Ok(places), Err)
    }

    /// Returns the coordinates of the elements that are true or nonzero, one tensor `[count]` per axis. Waits for the
    /// device. See [`Tensor::nonzero`](crate::Tensor::nonzero).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn nonzero(self) -> Result<Vec<AnyTensor>> {
        self.argwhere()?.unbind(1)
    }

    /// Like [`nonzero`](AnyTensor::nonzero), without blocking the thread.
    ///
    /// # Errors
    /// When the computation of the elements failed.
    pub async fn nonzero_async(self) -> Result<Vec<AnyTensor>> {
        self.argwhere_async().await?.unbind(1)
    }

    /// Counts the elements that are true or nonzero, `[1]`. See
    /// [`Tensor::count_nonzero`](crate::Tensor::count_nonzero).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn count_nonzero(self) -> Result<AnyTensor> {
        self.ones_where_nonzero()?.reduce_all(kiln_ir::Reduction::Sum)
    }

    /// Counts the elements along an axis that are true or nonzero. See
    /// [`Tensor::count_nonzero_dim`](crate::Tensor::count_nonzero_dim).
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn count_nonzero_dim(self, axis: impl Into<crate::Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("count_nonzero_dim", self.ty())?;
        self.ones_where_nonzero()?.reduce(kiln_ir::Reduction::Sum, &[axis])
    }

    fn ones_where_nonzero(self) -> Result<AnyTensor> {
        let index = self.stack().int_dtype();
        self.truth()?.cast(index)
    }

    /// Returns whether each element is true or nonzero.
    pub(crate) fn truth(self) -> Result<AnyTensor> {
        if self.dtype().is_bool() { Ok(self) } else { self.compare_scalar(Comparison::Ne, 0) }
    }
}
