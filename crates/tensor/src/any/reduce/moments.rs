//! Variance and standard deviation.

use crate::{AnyTensor, Axis, AxisList, Error, Result};
use kiln_ir::{Binary, Comparison, Reduction, Unary};

impl AnyTensor {
    /// The variance along an axis, over `n - 1`. See [`Tensor::var`](crate::Tensor::var).
    pub fn var(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.moments("var", &AxisList::of_one(axis.into()), 1.0)?.0)
    }

    /// The variance along an axis, over `n`. See [`Tensor::var_bias`](crate::Tensor::var_bias).
    pub fn var_bias(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.moments("var_bias", &AxisList::of_one(axis.into()), 0.0)?.0)
    }

    /// The variance along axes, over `n - correction`. See [`Tensor::var_dims`](crate::Tensor::var_dims).
    pub fn var_dims(self, axes: impl Into<AxisList>, correction: f64) -> Result<AnyTensor> {
        Ok(self.moments("var_dims", &axes.into(), correction)?.0)
    }

    /// The variance, over `n - 1`, and the mean along an axis. See [`Tensor::var_mean`](crate::Tensor::var_mean).
    pub fn var_mean(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.moments("var_mean", &AxisList::of_one(axis.into()), 1.0)
    }

    /// The variance, over `n`, and the mean along an axis. See
    /// [`Tensor::var_mean_bias`](crate::Tensor::var_mean_bias).
    pub fn var_mean_bias(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.moments("var_mean_bias", &AxisList::of_one(axis.into()), 0.0)
    }

    /// The standard deviation along an axis, over `n - 1`. See [`Tensor::std`](crate::Tensor::std).
    pub fn std(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.moments("std", &AxisList::of_one(axis.into()), 1.0)?.0.root()
    }

    /// The standard deviation along axes, over `n - correction`. See [`Tensor::std_dims`](crate::Tensor::std_dims).
    pub fn std_dims(self, axes: impl Into<AxisList>, correction: f64) -> Result<AnyTensor> {
        self.moments("std_dims", &axes.into(), correction)?.0.root()
    }

    /// The standard deviation, over `n - 1`, and the mean along an axis. See
    /// [`Tensor::std_mean`](crate::Tensor::std_mean).
    pub fn std_mean(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        let (variance, mean) = self.moments("std_mean", &AxisList::of_one(axis.into()), 1.0)?;
        Ok((variance.root()?, mean))
    }

    /// Variance and mean along axes.
    fn moments(self, op: &str, axes: &AxisList, correction: f64) -> Result<(AnyTensor, AnyTensor)> {
        let axes = axes.of(op, self.ty())?;
        if !self.dtype().is_float() {
            return Err(Error::type_error(op, "needs floats", &[self.ty().into()])
                .hint("convert it first: `float()`, or `cast` to a float dtype"));
        }
        let count: usize = axes.iter().map(|&axis| self.shape()[axis]).product();
        // At most `correction` elements have no variance: 0 / 0 is NaN, as everywhere in the field.
        let degrees = (count as f64 - correction).max(0.0);
        let (dtype, x) = (self.dtype(), self.widened()?);
        let mean = x.clone().mean_over(&axes)?;
        let deviation = x.binary(Binary::Sub, mean.clone())?;
        let squares = deviation.clone().binary(Binary::Mul, deviation)?;
        let variance = squares.reduce(Reduction::Sum, &axes)?.binary_scalar(Binary::Div, degrees)?;
        Ok((variance.cast(dtype)?, mean.cast(dtype)?))
    }

    /// The square root, whose gradient at 0 is 0.
    pub(crate) fn root(self) -> Result<AnyTensor> {
        let is_zero = self.clone().compare_scalar(Comparison::Eq, 0.0)?;
        let root = is_zero.clone().if_else_number(1.0, self)?.unary(Unary::Sqrt)?;
        is_zero.if_else_number(0.0, root)
    }
}
