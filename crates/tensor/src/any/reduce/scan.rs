//! Cumulative reductions.

use crate::{AnyTensor, Axis, Result};
use kiln_ir::{Binary, Comparison, Op, Reduction};

impl AnyTensor {
    /// Computes a cumulative reduction along an axis.
    ///
    /// # Errors
    /// When the axis is out of range, or a sum or product is of `bool`.
    pub fn scan(self, reduction: Reduction, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let name = match reduction {
            Reduction::Sum => "cumsum",
            Reduction::Prod => "cumprod",
            Reduction::Max => "cummax",
            Reduction::Min => "cummin",
        };
        let axis = axis.into().of(name, self.ty())?;
        self.apply(&Op::Scan { reduction, axis, reverse: false, exclusive: false })
    }

    /// Computes the cumulative sum along an axis. See [`Tensor::cumsum`](crate::Tensor::cumsum).
    ///
    /// # Errors
    /// When the axis is out of range, or the tensor is `bool`.
    pub fn cumsum(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.scan(Reduction::Sum, axis)
    }

    /// Computes the cumulative product along an axis. See [`Tensor::cumprod`](crate::Tensor::cumprod).
    ///
    /// # Errors
    /// As [`cumsum`](AnyTensor::cumsum).
    pub fn cumprod(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.scan(Reduction::Prod, axis)
    }

    /// Computes the cumulative maximum along an axis. See [`Tensor::cummax`](crate::Tensor::cummax).
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn cummax(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.scan(Reduction::Max, axis)
    }

    /// Computes the cumulative minimum along an axis. See [`Tensor::cummin`](crate::Tensor::cummin).
    ///
    /// # Errors
    /// As [`cummax`](AnyTensor::cummax).
    pub fn cummin(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.scan(Reduction::Min, axis)
    }

    /// Computes the cumulative maximum along an axis, and its index. See
    /// [`Tensor::cummax_with_indices`](crate::Tensor::cummax_with_indices).
    ///
    /// # Errors
    /// As [`cummax`](AnyTensor::cummax).
    pub fn cummax_with_indices(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.scan_with_indices(Reduction::Max, axis.into())
    }

    /// Computes the cumulative minimum along an axis, and its index. See
    /// [`Tensor::cummin_with_indices`](crate::Tensor::cummin_with_indices).
    ///
    /// # Errors
    /// As [`cummax`](AnyTensor::cummax).
    pub fn cummin_with_indices(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.scan_with_indices(Reduction::Min, axis.into())
    }

    fn scan_with_indices(self, reduction: Reduction, axis: Axis) -> Result<(AnyTensor, AnyTensor)> {
        let name = if reduction == Reduction::Max { "cummax" } else { "cummin" };
        let axis = axis.of(name, self.ty())?;
        self.check_places(name, self.shape()[axis])?;
        let values = self.clone().scan(reduction, axis)?;
        // An element sets the extreme where it equals it; NaN sets it too. The last such element is the result.
        let mut sets = self.clone().compare(Comparison::Eq, values.clone())?;
        if self.dtype().is_float() {
            sets = sets.binary(Binary::Or, self.nan_places("scan")?)?;
        }
        let index = self.ty().with_dtype(self.stack().int_dtype());
        let places = AnyTensor::iota(index, axis, self.stack())?;
        let never = AnyTensor::zeros(index, self.stack())?;
        Ok((values, sets.if_else(places, never)?.scan(Reduction::Max, axis)?))
    }
}
