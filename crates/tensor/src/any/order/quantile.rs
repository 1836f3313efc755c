//! Quantiles.

use crate::{AnyTensor, Axis, Error, Result, TensorData};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Binary, Comparison, DType, Unary};

/// The interpolation of a quantile between two elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// Linear interpolation.
    #[default]
    Linear,
    /// The lower element.
    Lower,
    /// The higher element.
    Higher,
    /// The nearest element; halfway, the element with the even rank.
    Nearest,
    /// The mean of both.
    Midpoint,
}

impl AnyTensor {
    /// Computes quantiles along an axis, whose length becomes the number of quantiles. See
    /// [`Tensor::quantile`](crate::Tensor::quantile).
    ///
    /// # Errors
    /// When the dtype is not a float, the axis is out of range or empty, or a number of `q` is not between 0 and 1.
    pub fn quantile(
        self,
        q: &[f64],
        axis: impl Into<Axis>,
        interpolation: Interpolation,
    ) -> Result<AnyTensor> {
        let axis = axis.into().of("quantile", self.ty())?;
        self.quantiles("quantile", q, axis, interpolation, false)
    }

    /// Computes quantiles along an axis, ignoring NaN. See [`Tensor::nanquantile`](crate::Tensor::nanquantile).
    ///
    /// # Errors
    /// As [`quantile`](AnyTensor::quantile).
    pub fn nanquantile(
        self,
        q: &[f64],
        axis: impl Into<Axis>,
        interpolation: Interpolation,
    ) -> Result<AnyTensor> {
        let axis = axis.into().of("nanquantile", self.ty())?;
        self.quantiles("nanquantile", q, axis, interpolation, true)
    }

    fn quantiles(
        self,
        op: &str,
        q: &[f64],
        axis: usize,
        interpolation: Interpolation,
        skip_nan: bool,
    ) -> Result<AnyTensor> {
        if !self.dtype().is_float() {
            return Err(Error::type_error(op, "needs floats", &[self.ty().into()])
                .hint("convert it first: `float()`, or `cast` to a float dtype"));
        }
        if let Some(q) = q.iter().find(|q| !(0.0..=1.0).contains(*q)) {
            return Err(Error::type_error(op, format!("{q} is not between 0 and 1"), &[self.ty().into()])
                .hint(
                    "0 is the least element, 0.5 the median, 1 the greatest; percentages are divided by 100",
                ));
        }
        self.not_empty(op, axis)?;
        let numbers = self.count_numbers(axis)?;
        let length = self.shape()[axis];
        let rank = self.ranks(q, axis, if skip_nan { Some(&numbers) } else { None })?;
        let sorted = self.sort(axis)?;
        let value = match interpolation {
            Interpolation::Lower => sorted.at_rank(axis, rank.unary(Unary::Floor)?),
            Interpolation::Higher => sorted.at_rank(axis, rank.unary(Unary::Ceil)?),
            Interpolation::Nearest => sorted.at_rank(axis, rank.unary(Unary::Round)?),
            Interpolation::Linear => sorted.around_rank(axis, rank, Ok),
            // The midpoint only where the quantile is between two elements.
            Interpolation::Midpoint => sorted
                .around_rank(axis, rank, |weight| weight.unary(Unary::Ceil)?.binary_scalar(Binary::Mul, 0.5)),
        }?;
        if skip_nan {
            return Ok(value);
        }
        let incomplete = numbers.compare_scalar(Comparison::Ne, length)?;
        incomplete.if_else_number(f64::NAN, value)
    }

    /// Returns the fractional ranks of quantiles: `q * (n - 1)`.
    fn ranks(&self, q: &[f64], axis: usize, numbers: Option<&AnyTensor>) -> Result<AnyTensor> {
        let shape = self.shape().with(axis, q.len());
        let mut along = crate::Shape::new(&[1; crate::MAX_RANK][..shape.rank()]);
        along[axis] = q.len();
        // The accumulator's precision: a 16-bit float cannot represent ranks above 2048.
        let dtype = if self.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let host = |values: Vec<f64>| -> Result<AnyTensor> {
            let data = TensorData::new(values, along)?.convert(dtype);
            Ok(AnyTensor::from_data(data, self.stack()))
        };
        match numbers {
            None => {
                let last = (self.shape()[axis] - 1) as f64;
                host(q.iter().map(|q| q * last).collect())?.expand(shape)
            }
            Some(numbers) => {
                let last = numbers.clone().binary_scalar(Binary::Sub, 1)?.binary_scalar(Binary::Max, 0)?;
                host(q.to_vec())?.expand(shape)?.binary(Binary::Mul, last.cast(dtype)?)
            }
        }
    }

    /// Interpolates between the elements below and above a rank, by a weight computed from the distance to the one
    /// below.
    fn around_rank(
        self,
        axis: usize,
        rank: AnyTensor,
        weigh: impl FnOnce(AnyTensor) -> Result<AnyTensor>,
    ) -> Result<AnyTensor> {
        let below = rank.clone().unary(Unary::Floor)?;
        let low = self.clone().at_rank(axis, below.clone())?;
        let high = self.at_rank(axis, rank.clone().unary(Unary::Ceil)?)?;
        low.between(high, weigh(rank.binary(Binary::Sub, below)?)?)
    }

    fn at_rank(self, axis: usize, rank: AnyTensor) -> Result<AnyTensor> {
        let index = self.stack().int_dtype();
        self.gather(axis, rank.cast(index)?)
    }

    /// Computes `self + (high - self) * weight`; exactly `self` where both are equal, so that equal infinities stay.
    fn between(self, high: AnyTensor, weight: AnyTensor) -> Result<AnyTensor> {
        let same = self.clone().compare(Comparison::Eq, high.clone())?;
        let weight = weight.cast(self.dtype())?;
        let distance = same.if_else_number(0.0, high.binary(Binary::Sub, self.clone())?)?;
        self.binary(Binary::Add, distance.binary(Binary::Mul, weight)?)
    }
}
