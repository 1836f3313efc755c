//! Softmax and related functions along an axis.

use crate::{AnyTensor, Axis, Result};
use kiln_ir::{Op, PadAxis, SliceAxis, Var};

impl AnyTensor {
    /// Applies softmax along an axis, `exp(x) / Σ exp(x)`. See [`activation::softmax`](crate::activation::softmax).
    ///
    /// # Errors
    /// When the dtype is not a float, or the axis is out of range.
    pub fn softmax(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("softmax", self.ty())?;
        self.apply(&Op::Softmax { axis, log: false })
    }

    /// Applies log-softmax along an axis. See [`activation::log_softmax`](crate::activation::log_softmax).
    ///
    /// # Errors
    /// As [`softmax`](AnyTensor::softmax).
    pub fn log_softmax(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("log_softmax", self.ty())?;
        self.apply(&Op::Softmax { axis, log: true })
    }

    /// Applies softmin along an axis: the softmax of `-x`. See [`activation::softmin`](crate::activation::softmin).
    ///
    /// # Errors
    /// As [`softmax`](AnyTensor::softmax).
    pub fn softmin(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.check_float("softmin")?;
        let axis = axis.into().of("softmin", self.ty())?;
        self.unary(kiln_ir::Unary::Neg)?.apply(&Op::Softmax { axis, log: false })
    }

    /// Applies `exp(x) / (1 + Σ exp(x))` along an axis. See
    /// [`activation::quiet_softmax`](crate::activation::quiet_softmax).
    ///
    /// # Errors
    /// As [`softmax`](AnyTensor::softmax).
    pub fn quiet_softmax(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.check_float("quiet_softmax")?;
        let axis = axis.into().of("quiet_softmax", self.ty())?;
        let len = self.shape()[axis];
        let mut pads = alloc::vec![PadAxis::default(); self.rank()];
        pads[axis] = PadAxis::new(0, 1);
        // The 1 of the divisor is the exponential of one more element, 0, which is not part of the result.
        let all = self.pad_axes(pads, 0.0)?.apply(&Op::Softmax { axis, log: false })?;
        all.slice_axis(axis, SliceAxis::range(0..len))
    }
}

/// Divides directly where `|x|` is at most 1; beyond, computes `1 / (1 + 1 / |x|)`, which is correct for infinity too.
pub(super) fn softsign<'e>(x: &Var<'e>) -> Var<'e> {
    let one = x.scalar(1.0);
    let far = one.less(&x.abs());
    let near = far.select(&x.scalar(0.0), x);
    let rest = far.select(x, &x.scalar(1.0));
    let beyond = rest.sign() / (rest.abs().recip() + 1.0);
    far.select(&beyond, &(&near / (near.abs() + 1.0)))
}
