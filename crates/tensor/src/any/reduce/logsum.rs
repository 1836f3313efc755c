//! Log-sum-exp, and its cumulative form.

use crate::{AnyTensor, Axis, AxisList, Error, Result};
use kiln_ir::{Binary, Comparison, Op, Reduction, SliceAxis, Unary};

impl AnyTensor {
    /// Computes the logarithm of the sum of exponentials along an axis. See
    /// [`Tensor::logsumexp`](crate::Tensor::logsumexp).
    ///
    /// # Errors
    /// When the dtype is not a float, or the axis is out of range.
    pub fn logsumexp(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("logsumexp", self.ty())?;
        self.needs_floats("logsumexp")?;
        self.apply(&Op::LogSumExp { axis })
    }

    /// Computes the logarithm of the sum of exponentials along axes. See
    /// [`Tensor::logsumexp_dims`](crate::Tensor::logsumexp_dims).
    ///
    /// # Errors
    /// When the dtype is not a float, or an axis is out of range or repeated.
    pub fn logsumexp_dims(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        self.logsumexp_of("logsumexp_dims", &axes.into())
    }

    fn logsumexp_of(self, op: &str, axes: &AxisList) -> Result<AnyTensor> {
        let axes = axes.of(op, self.ty())?;
        self.needs_floats(op)?;
        let (dtype, x) = (self.dtype(), self.widened()?);
        // The result does not depend on the subtracted maximum, so no gradient flows through it.
        let greatest = x.clone().detach().reduce(Reduction::Max, &axes)?;
        let finite = greatest.clone().unary(Unary::Abs)?.compare_scalar(Comparison::Lt, f64::INFINITY)?;
        let shift = finite.unary(Unary::Not)?.if_else_number(0.0, greatest)?;
        let terms = x.binary(Binary::Sub, shift.clone())?.unary(Unary::Exp)?;
        let sum = terms.reduce(Reduction::Sum, &axes)?;
        // Without terms above zero the logarithm has no finite slope: gradients there are 0.
        let none = sum.clone().compare_scalar(Comparison::Eq, 0.0)?;
        let log = none.clone().if_else_number(1.0, sum)?.unary(Unary::Ln)?.binary(Binary::Add, shift)?;
        none.if_else_number(f64::NEG_INFINITY, log)?.cast(dtype)
    }

    fn needs_floats(&self, op: &str) -> Result<()> {
        if self.dtype().is_float() {
            return Ok(());
        }
        Err(Error::type_error(op, "needs floats", &[self.ty().into()])
            .hint("convert it first: `float()`, or `cast` to a float dtype"))
    }

    /// Computes the logarithm of the cumulative sum of exponentials along an axis. See
    /// [`Tensor::logcumsumexp`](crate::Tensor::logcumsumexp).
    ///
    /// # Errors
    /// As [`logsumexp`](AnyTensor::logsumexp).
    pub fn logcumsumexp(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("logcumsumexp", self.ty())?;
        self.needs_floats("logcumsumexp")?;
        // By doubling: after each round an element covers twice as many before it; each pair of sums has its own shift.
        let length = self.shape()[axis];
        let dtype = self.dtype();
        let mut sum = self.widened()?;
        let mut covered = 1;
        while covered < length {
            let first = sum.clone().narrow(axis, 0, covered)?;
            let later = sum.clone().narrow(axis, covered, length - covered)?;
            let earlier = sum.slice_axis(axis, SliceAxis { start: 0, len: length - covered, step: 1 })?;
            sum = AnyTensor::cat([first, later.log_add_exp(earlier)?].into(), axis)?;
            covered *= 2;
        }
        sum.cast(dtype)
    }

    /// Computes `ln(e^a + e^b)`, with gradients also where one or both are infinite.
    fn log_add_exp(self, other: AnyTensor) -> Result<AnyTensor> {
        let high = self.clone().binary(Binary::Max, other.clone())?;
        let low = self.binary(Binary::Min, other)?;
        let infinite = high.clone().unary(Unary::Abs)?.compare_scalar(Comparison::Eq, f64::INFINITY)?;
        let difference =
            infinite.clone().if_else_number(f64::NEG_INFINITY, low.binary(Binary::Sub, high.clone())?)?;
        let more = difference.unary(Unary::Exp)?.unary(Unary::Log1p)?;
        infinite.if_else(high.clone(), high.binary(Binary::Add, more)?)
    }
}
