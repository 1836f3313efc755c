//! Variance and standard deviation.

use crate::any::formula::{at_least_zero, constant};
use crate::{AnyTensor, Axis, AxisList, Error, Result};
use kiln_ir::{Binary, Comparison, DType, Op, Reduction, Scalar, Unary, Var};

impl AnyTensor {
    /// Computes the variance along an axis, over `n - 1`. See [`Tensor::var`](crate::Tensor::var).
    ///
    /// # Errors
    /// When the dtype is not a float, or the axis is out of range.
    pub fn var(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.moments("var", &AxisList::of_one(axis.into()), 1.0)?.0)
    }

    /// Computes the variance along an axis, over `n`. See [`Tensor::var_bias`](crate::Tensor::var_bias).
    ///
    /// # Errors
    /// As [`var`](AnyTensor::var).
    #[doc(alias = "var")]
    pub fn var_bias(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.moments("var_bias", &AxisList::of_one(axis.into()), 0.0)?.0)
    }

    /// Computes the variance along axes, over `n - correction`. See [`Tensor::var_dims`](crate::Tensor::var_dims).
    ///
    /// # Errors
    /// When the dtype is not a float, or an axis is out of range or repeated.
    pub fn var_dims(self, axes: impl Into<AxisList>, correction: f64) -> Result<AnyTensor> {
        Ok(self.moments("var_dims", &axes.into(), correction)?.0)
    }

    /// Computes the variance, over `n - 1`, and the mean along an axis. See
    /// [`Tensor::var_mean`](crate::Tensor::var_mean).
    ///
    /// # Errors
    /// As [`var`](AnyTensor::var).
    pub fn var_mean(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.moments("var_mean", &AxisList::of_one(axis.into()), 1.0)
    }

    /// Computes the variance, over `n`, and the mean along an axis. See
    /// [`Tensor::var_mean_bias`](crate::Tensor::var_mean_bias).
    ///
    /// # Errors
    /// As [`var`](AnyTensor::var).
    pub fn var_mean_bias(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.moments("var_mean_bias", &AxisList::of_one(axis.into()), 0.0)
    }

    /// Computes the standard deviation along an axis, over `n - 1`. See [`Tensor::std`](crate::Tensor::std).
    ///
    /// # Errors
    /// As [`var`](AnyTensor::var).
    pub fn std(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.deviations("std", &AxisList::of_one(axis.into()), 1.0)?.0)
    }

    /// Computes the standard deviation along axes, over `n - correction`. See
    /// [`Tensor::std_dims`](crate::Tensor::std_dims).
    ///
    /// # Errors
    /// As [`var_dims`](AnyTensor::var_dims).
    pub fn std_dims(self, axes: impl Into<AxisList>, correction: f64) -> Result<AnyTensor> {
        Ok(self.deviations("std_dims", &axes.into(), correction)?.0)
    }

    /// Computes the standard deviation, over `n - 1`, and the mean along an axis. See
    /// [`Tensor::std_mean`](crate::Tensor::std_mean).
    ///
    /// # Errors
    /// As [`var`](AnyTensor::var).
    pub fn std_mean(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.deviations("std_mean", &AxisList::of_one(axis.into()), 1.0)
    }

    /// Computes the variance and the mean along axes.
    fn moments(self, op: &str, axes: &AxisList, correction: f64) -> Result<(AnyTensor, AnyTensor)> {
        let (dtype, [variance, scale, mean]) = self.scaled_moments(op, axes, correction)?;
        let variance = variance.binary(Binary::Mul, scale.clone())?.binary(Binary::Mul, scale)?;
        Ok((variance.cast(dtype)?, mean.cast(dtype)?))
    }

    /// Computes the standard deviation and the mean along axes.
    fn deviations(self, op: &str, axes: &AxisList, correction: f64) -> Result<(AnyTensor, AnyTensor)> {
        let (dtype, [variance, scale, mean]) = self.scaled_moments(op, axes, correction)?;
        let deviation = variance.root()?.binary(Binary::Mul, scale)?;
        Ok((deviation.cast(dtype)?, mean.cast(dtype)?))
    }

    /// Returns the dtype of the elements; and in one of at least 32 bits the variance along axes over the square of a
    /// scale, the scale, and the mean.
    fn scaled_moments(self, op: &str, axes: &AxisList, correction: f64) -> Result<(DType, [AnyTensor; 3])> {
        let axes = axes.sorted_of(op, self.ty())?;
        if !self.dtype().is_float() {
            return Err(Error::type_error(op, "needs floats", &[self.ty().into()])
                .hint("convert it first: `float()`, or `cast` to a float dtype"));
        }
        let count: usize = axes.iter().map(|&axis| self.shape()[axis]).product();
        // At most `correction` elements have no variance: 0 / 0 is NaN, as in PyTorch and NumPy.
        let degrees = (count as f64 - correction).max(0.0);
        let dtype = self.dtype();
        let parts = self.widened()?.formulas(|x| scaled_moments(x, &axes, count as f64, degrees));
        Ok((dtype, parts))
    }

    /// Computes the square root, whose gradient at 0 is 0.
    pub(crate) fn root(self) -> Result<AnyTensor> {
        let is_zero = self.clone().compare_scalar(Comparison::Eq, 0.0)?;
        let root = is_zero.clone().if_else_number(1.0, self)?.unary(Unary::Sqrt)?;
        is_zero.if_else_number(0.0, root)
    }
}

/// Computes the variance over the square of a scale, the scale, and the mean, for floats of at least 32 bits.
///
/// Elements are divided by a power of two near the maximum, so that squares neither overflow nor underflow. The mean of
/// the differences from the rounded mean is subtracted again: `Σ d² - (Σ d)² / n`, the corrected two-pass algorithm of
/// [Chan, Golub and LeVeque 1983](https://doi.org/10.1080/00031305.1983.10483115). Neither scale nor rounded mean
/// changes the result, so both are constants for its gradient.
fn scaled_moments<'e>(x: &Var<'e>, axes: &[usize], count: f64, degrees: f64) -> [Var<'e>; 3] {
    let scale = scale(x, axes);
    let x = x * scale.recip();
    let plain = x.sum(axes) / count;
    let near = constant(&plain);
    let difference = x - &near;
    let total = difference.sum(axes);
    let rest = &total / count;
    let squares = difference.square().sum(axes) - &total * &rest;
    // Infinity minus itself is NaN: its mean is the plain one.
    let is_finite = rest.equal(&rest);
    let mean = is_finite.select(&(near + rest), &plain);
    [at_least_zero(&squares) / degrees, scale.clone(), mean * scale]
}

/// Returns a power of two that is at most the greatest magnitude along axes and more than half of it, as a constant. It
/// is clamped to the range in which it and its reciprocal are normal numbers.
fn scale<'e>(x: &Var<'e>, axes: &[usize]) -> Var<'e> {
    let greatest = x.reduce(Reduction::Max, axes).max(&-x.reduce(Reduction::Min, axes));
    let (bits, exponent, range) = if x.dtype() == DType::F64 {
        (DType::U64, f64::INFINITY.to_bits(), [-1000, 1000])
    } else {
        (DType::U32, u64::from(f32::INFINITY.to_bits()), [-120, 120])
    };
    let greatest = greatest.apply(Op::Bitcast(bits), &[]);
    let power = greatest.binary(Binary::And, &greatest.scalar(Scalar::UInt(exponent)));
    let power = power.apply(Op::Bitcast(x.dtype()), &[]);
    let [least, most] = range.map(|exponent| libm::exp2(f64::from(exponent)));
    power.max(&power.scalar(least)).min(&power.scalar(most))
}
