//! Minima and maxima, and their indices.

use crate::{AnyTensor, Axis, AxisList, Result};
use kiln_ir::{Extremum, Op, Reduction, Unary};

impl AnyTensor {
    /// Computes the maximum of all elements, of shape `[1]`. See [`Tensor::max`](crate::Tensor::max).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn max(self) -> Result<AnyTensor> {
        self.reduce_all(Reduction::Max)
    }

    /// Computes the maximum along an axis. See [`Tensor::max_dim`](crate::Tensor::max_dim).
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn max_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.reduce_one("max_dim", Reduction::Max, axis.into())
    }

    /// Computes the maximum along axes. See [`Tensor::max_dims`](crate::Tensor::max_dims).
    ///
    /// # Errors
    /// When an axis is out of range or repeated.
    #[doc(alias = "amax")]
    pub fn max_dims(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        self.reduce_some("max_dims", Reduction::Max, &axes.into())
    }

    /// Computes the minimum of all elements, of shape `[1]`. See [`Tensor::min`](crate::Tensor::min).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn min(self) -> Result<AnyTensor> {
        self.reduce_all(Reduction::Min)
    }

    /// Computes the minimum along an axis. See [`Tensor::min_dim`](crate::Tensor::min_dim).
    ///
    /// # Errors
    /// As [`max_dim`](AnyTensor::max_dim).
    pub fn min_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.reduce_one("min_dim", Reduction::Min, axis.into())
    }

    /// Computes the minimum along axes. See [`Tensor::min_dims`](crate::Tensor::min_dims).
    ///
    /// # Errors
    /// As [`max_dims`](AnyTensor::max_dims).
    #[doc(alias = "amin")]
    pub fn min_dims(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        self.reduce_some("min_dims", Reduction::Min, &axes.into())
    }

    /// Computes the maximum absolute value of all elements, of shape `[1]`. See
    /// [`Tensor::max_abs`](crate::Tensor::max_abs).
    ///
    /// # Errors
    /// When the tensor is `bool`.
    pub fn max_abs(self) -> Result<AnyTensor> {
        let axes = self.all_axes();
        self.max_abs_over(&axes)?.reshape([1])
    }

    /// Computes the maximum absolute value along an axis. See [`Tensor::max_abs_dim`](crate::Tensor::max_abs_dim).
    ///
    /// # Errors
    /// When the axis is out of range, or the tensor is `bool`.
    pub fn max_abs_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("max_abs_dim", self.ty())?;
        self.max_abs_over(&[axis])
    }

    /// Computes the maximum absolute value along axes. See [`Tensor::max_abs_dims`](crate::Tensor::max_abs_dims).
    ///
    /// # Errors
    /// When an axis is out of range or repeated, or the tensor is `bool`.
    pub fn max_abs_dims(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        let axes = axes.into().sorted_of("max_abs_dims", self.ty())?;
        self.max_abs_over(&axes)
    }

    fn max_abs_over(self, axes: &[usize]) -> Result<AnyTensor> {
        let is_of_nothing = axes.iter().any(|&axis| self.shape()[axis] == 0);
        let greatest = self.unary(Unary::Abs)?.reduce(Reduction::Max, axes)?;
        // 0 is the identity of the maximum of magnitudes.
        if is_of_nothing { greatest.zeros_like() } else { Ok(greatest) }
    }

    /// Computes the minimum and the maximum along an axis. See [`Tensor::aminmax`](crate::Tensor::aminmax).
    ///
    /// # Errors
    /// As [`max_dim`](AnyTensor::max_dim).
    pub fn aminmax(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        let axis = axis.into().of("aminmax", self.ty())?;
        Ok((self.clone().min_dim(axis)?, self.max_dim(axis)?))
    }

    /// Returns the index of the minimum or maximum along an axis.
    ///
    /// # Errors
    /// When the axis is out of range or empty.
    pub fn arg_reduce(self, extremum: Extremum, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let index = self.stack().int_dtype();
        let name = match extremum {
            Extremum::Min => "argmin",
            Extremum::Max => "argmax",
        };
        let axis = axis.into().of(name, self.ty())?;
        self.apply(&Op::ArgReduce { extremum, axis, index })
    }

    /// Returns the index of the maximum along an axis (argmax). See [`Tensor::argmax`](crate::Tensor::argmax).
    ///
    /// # Errors
    /// As [`arg_reduce`](AnyTensor::arg_reduce).
    pub fn argmax(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.arg_reduce(Extremum::Max, axis)
    }

    /// Returns the index of the minimum along an axis (argmin). See [`Tensor::argmin`](crate::Tensor::argmin).
    ///
    /// # Errors
    /// As [`arg_reduce`](AnyTensor::arg_reduce).
    pub fn argmin(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.arg_reduce(Extremum::Min, axis)
    }

    /// Computes the maximum along an axis, and its index. See
    /// [`Tensor::max_dim_with_indices`](crate::Tensor::max_dim_with_indices).
    ///
    /// # Errors
    /// As [`arg_reduce`](AnyTensor::arg_reduce).
    #[doc(alias = "max")]
    pub fn max_dim_with_indices(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.extreme_with_indices(Extremum::Max, axis.into())
    }

    /// Computes the minimum along an axis, and its index. See
    /// [`Tensor::min_dim_with_indices`](crate::Tensor::min_dim_with_indices).
    ///
    /// # Errors
    /// As [`arg_reduce`](AnyTensor::arg_reduce).
    #[doc(alias = "min")]
    pub fn min_dim_with_indices(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.extreme_with_indices(Extremum::Min, axis.into())
    }

    fn extreme_with_indices(self, extremum: Extremum, axis: Axis) -> Result<(AnyTensor, AnyTensor)> {
        let index = self.clone().arg_reduce(extremum, axis)?;
        Ok((self.gather(axis, index.clone())?, index))
    }
}
