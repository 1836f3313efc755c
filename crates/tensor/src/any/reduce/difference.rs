//! Finite differences and trapezoidal integration.

use crate::{AnyTensor, Axis, Error, Result};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Binary, Comparison, Reduction};

impl AnyTensor {
    /// Computes the `n`th finite difference along an axis. See [`Tensor::diff`](crate::Tensor::diff).
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn diff(self, n: usize, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("diff", self.ty())?;
        // After as many rounds as its length the axis is empty and remains so.
        let rounds = n.min(self.shape()[axis]);
        let mut rest = self;
        for _ in 0..rounds {
            let length = rest.shape()[axis].saturating_sub(1);
            // An empty axis has no differences.
            let later = rest.clone().narrow(axis, rest.shape()[axis].min(1), length)?;
            let earlier = rest.narrow(axis, 0, length)?;
            rest = match later.dtype().is_bool() {
                true => later.compare(Comparison::Ne, earlier)?,
                false => later.binary(Binary::Sub, earlier)?,
            };
        }
        Ok(rest)
    }

    /// Like [`diff`](AnyTensor::diff), with tensors prepended and appended first. See
    /// [`Tensor::diff_with`](crate::Tensor::diff_with).
    ///
    /// # Errors
    /// When the axis is out of range, or the shapes differ outside the axis.
    pub fn diff_with(
        self,
        n: usize,
        axis: impl Into<Axis>,
        before: Option<AnyTensor>,
        after: Option<AnyTensor>,
    ) -> Result<AnyTensor> {
        let axis = axis.into().of("diff_with", self.ty())?;
        let parts: Vec<AnyTensor> = before.into_iter().chain([self]).chain(after).collect();
        AnyTensor::cat(parts, axis)?.diff(n, axis)
    }

    /// Integrates evenly spaced samples by the trapezoidal rule. See [`Tensor::trapezoid`](crate::Tensor::trapezoid).
    ///
    /// # Errors
    /// When the dtype is not a float, or the axis is out of range.
    pub fn trapezoid(self, dx: f64, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("trapezoid", self.ty())?;
        self.trapezoids("trapezoid", axis)?.reduce(Reduction::Sum, &[axis])?.binary_scalar(Binary::Mul, dx)
    }

    /// Integrates samples at positions by the trapezoidal rule. See
    /// [`Tensor::trapezoid_at`](crate::Tensor::trapezoid_at).
    ///
    /// # Errors
    /// When the dtype is not a float, the axis is out of range, or the positions are neither a vector along the axis
    /// nor broadcast to the samples.
    pub fn trapezoid_at(self, x: AnyTensor, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("trapezoid_at", self.ty())?;
        self.trapezoids_at("trapezoid_at", x, axis)?.reduce(Reduction::Sum, &[axis])
    }

    /// Computes the cumulative integral of evenly spaced samples. See
    /// [`Tensor::cumulative_trapezoid`](crate::Tensor::cumulative_trapezoid).
    ///
    /// # Errors
    /// As [`trapezoid`](AnyTensor::trapezoid).
    pub fn cumulative_trapezoid(self, dx: f64, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("cumulative_trapezoid", self.ty())?;
        self.trapezoids("cumulative_trapezoid", axis)?.cumsum(axis)?.binary_scalar(Binary::Mul, dx)
    }

    /// Computes the cumulative integral of samples at positions. See
    /// [`Tensor::cumulative_trapezoid_at`](crate::Tensor::cumulative_trapezoid_at).
    ///
    /// # Errors
    /// As [`trapezoid_at`](AnyTensor::trapezoid_at).
    pub fn cumulative_trapezoid_at(self, x: AnyTensor, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("cumulative_trapezoid_at", self.ty())?;
        self.trapezoids_at("cumulative_trapezoid_at", x, axis)?.cumsum(axis)
    }

    /// Returns the means of adjacent elements along an axis.
    fn trapezoids(self, op: &str, axis: usize) -> Result<AnyTensor> {
        if !self.dtype().is_float() {
            return Err(Error::type_error(op, "needs floats", &[self.ty().into()])
                .hint("convert it first: `float()`, or `cast` to a float dtype"));
        }
        let length = self.shape()[axis];
        let earlier = self.clone().narrow(axis, 0, length.saturating_sub(1))?;
        let later = self.narrow(axis, length.min(1), length.saturating_sub(1))?;
        earlier.binary(Binary::Add, later)?.binary_scalar(Binary::Mul, 0.5)
    }

    /// Returns the areas between adjacent samples; the positions are a vector along the axis, or broadcast to the
    /// samples.
    fn trapezoids_at(self, op: &str, x: AnyTensor, axis: usize) -> Result<AnyTensor> {
        let shape = *self.shape();
        let x = match (x.rank(), x.shape().first()) {
            (1, Some(&length)) if length == shape[axis] => {
                let mut along = crate::Shape::new(&[1; crate::MAX_RANK][..shape.rank()]);
                along[axis] = length;
                x.reshape(along)?
            }
            _ if kiln_ir::infer::broadcast_shapes(x.shape(), &shape) == Some(shape) => x.expand(shape)?,
            _ => {
                let problem = format!("the places do not fit axis {axis}");
                return Err(Error::type_error(op, problem, &[self.ty().into(), x.ty().into()]));
            }
        };
        self.trapezoids(op, axis)?.binary(Binary::Mul, x.diff(1, axis)?)
    }
}
