//! Boolean reductions: all and any.

use crate::{AnyTensor, Axis, AxisList, Result};
use kiln_ir::Reduction;

impl AnyTensor {
    /// Returns whether all elements are true or nonzero, of shape `[1]`. See [`Tensor::all`](crate::Tensor::all).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn all(self) -> Result<AnyTensor> {
        self.truth()?.reduce_all(Reduction::Min)
    }

    /// Returns whether all elements along an axis are true or nonzero. See [`Tensor::all_dim`](crate::Tensor::all_dim).
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn all_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.truth()?.reduce_one("all_dim", Reduction::Min, axis.into())
    }

    /// Returns whether all elements along axes are true or nonzero. See [`Tensor::all_dims`](crate::Tensor::all_dims).
    ///
    /// # Errors
    /// When an axis is out of range or repeated.
    pub fn all_dims(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        self.truth()?.reduce_some("all_dims", Reduction::Min, &axes.into())
    }

    /// Returns whether any element is true or nonzero, of shape `[1]`. See [`Tensor::any`](crate::Tensor::any).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn any(self) -> Result<AnyTensor> {
        self.truth()?.reduce_all(Reduction::Max)
    }

    /// Returns whether any element along an axis is true or nonzero. See [`Tensor::any_dim`](crate::Tensor::any_dim).
    ///
    /// # Errors
    /// As [`all_dim`](AnyTensor::all_dim).
    pub fn any_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.truth()?.reduce_one("any_dim", Reduction::Max, axis.into())
    }

    /// Returns whether any element along axes is true or nonzero. See [`Tensor::any_dims`](crate::Tensor::any_dims).
    ///
    /// # Errors
    /// As [`all_dims`](AnyTensor::all_dims).
    pub fn any_dims(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        self.truth()?.reduce_some("any_dims", Reduction::Max, &axes.into())
    }
}
