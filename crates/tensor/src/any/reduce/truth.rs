//! Whether all, or any, elements hold.

use crate::{AnyTensor, Axis, AxisList, Result};
use kiln_ir::Reduction;

impl AnyTensor {
    /// Whether all elements hold, of shape `[1]`. See [`Tensor::all`](crate::Tensor::all).
    pub fn all(self) -> Result<AnyTensor> {
        self.truth()?.reduce_all(Reduction::Min)
    }

    /// Whether all elements along an axis hold. See [`Tensor::all_dim`](crate::Tensor::all_dim).
    pub fn all_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.truth()?.reduce_one("all_dim", Reduction::Min, axis.into())
    }

    /// Whether all elements along axes hold. See [`Tensor::all_dims`](crate::Tensor::all_dims).
    pub fn all_dims(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        self.truth()?.reduce_some("all_dims", Reduction::Min, &axes.into())
    }

    /// Whether any element holds, of shape `[1]`. See [`Tensor::any`](crate::Tensor::any).
    pub fn any(self) -> Result<AnyTensor> {
        self.truth()?.reduce_all(Reduction::Max)
    }

    /// Whether any element along an axis holds. See [`Tensor::any_dim`](crate::Tensor::any_dim).
    pub fn any_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.truth()?.reduce_one("any_dim", Reduction::Max, axis.into())
    }

    /// Whether any element along axes holds. See [`Tensor::any_dims`](crate::Tensor::any_dims).
    pub fn any_dims(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        self.truth()?.reduce_some("any_dims", Reduction::Max, &axes.into())
    }
}
