//! Vector norms, and functions of norms.

use super::product::sum_axis;
use crate::{AnyTensor, Axis, AxisList, Error, Result, Shape};
use kiln_ir::{Axes, Binary, Comparison, MAX_RANK, Op, Reduction, Unary};
use smallvec::SmallVec;

/// A vector norm. Numbers convert to it: `2`, `0.5`, `f64::INFINITY`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// The number of nonzero elements.
    L0,
    /// The sum of absolute values.
    L1,
    /// The square root of the sum of squares.
    L2,
    /// The greatest absolute value.
    MaxAbs,
    /// The least absolute value.
    MinAbs,
    /// `(Σ |x|^p)^(1/p)`.
    Lp(f64),
}

impl From<f64> for Norm {
    fn from(p: f64) -> Norm {
        match p {
            0.0 => Norm::L0,
            1.0 => Norm::L1,
            2.0 => Norm::L2,
            f64::INFINITY => Norm::MaxAbs,
            f64::NEG_INFINITY => Norm::MinAbs,
            p => Norm::Lp(p),
        }
    }
}

impl From<i32> for Norm {
    fn from(p: i32) -> Norm {
        Norm::from(f64::from(p))
    }
}

impl AnyTensor {
    /// Returns a norm along an axis, which is kept with length 1. See
    /// [`linalg::vector_norm`](crate::linalg::vector_norm).
    ///
    /// # Errors
    /// When the dtype is not a float, the axis is out of range, or it is empty and the norm is the greatest or least
    /// absolute value.
    pub fn vector_norm(self, norm: impl Into<Norm>, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.norm_along(norm.into(), axis.into())
    }

    /// Computes a vector norm over several axes, which are kept with length 1. No axes mean all axes. See
    /// [`linalg::vector_norm_dims`](crate::linalg::vector_norm_dims).
    ///
    /// # Errors
    /// When the dtype is not a float, an axis is out of range or repeated, or the axes have no elements and the norm is
    /// the greatest or least absolute value.
    pub fn vector_norm_dims(self, norm: impl Into<Norm>, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        self.norm_over(norm.into(), &axes.into())
    }

    fn norm_over(self, norm: Norm, axes: &AxisList) -> Result<AnyTensor> {
        let mut reduced = axes.sorted_of("vector_norm", self.ty())?;
        if reduced.is_empty() {
            reduced = (0..self.rank()).collect();
        }
        let shape: Shape = (0..self.rank())
            .map(|axis| if reduced.contains(&axis) { 1 } else { self.shape()[axis] })
            .collect();
        let kept = (0..self.rank()).filter(|axis| !reduced.contains(axis));
        let order: SmallVec<[usize; MAX_RANK]> = kept.clone().chain(reduced.iter().copied()).collect();
        let count = reduced.iter().map(|&axis| self.shape()[axis]).product();
        let vectors: Shape = kept.map(|axis| self.shape()[axis]).chain([count]).collect();
        self.apply(&Op::Permute(Axes::new(&order)))?
            .reshape(vectors)?
            .norm_along(norm, (-1).into())?
            .reshape(shape)
    }

    fn norm_along(self, norm: Norm, axis: Axis) -> Result<AnyTensor> {
        let axis = axis.of("vector_norm", self.ty())?;
        if !self.dtype().is_float() {
            return Err(Error::type_error("vector_norm", "needs floats", &[self.ty().into()])
                .hint("`float` it first"));
        }
        let dtype = self.dtype();
        match norm {
            Norm::L0 => count_not_zero(self.widened()?, axis)?.cast(dtype),
            Norm::L1 => sum_axis(self.unary(Unary::Abs)?, axis),
            Norm::L2 => sum_axis(self.widened()?.square()?, axis)?.root()?.cast(dtype),
            Norm::MaxAbs => extreme(self, Reduction::Max, axis),
            Norm::MinAbs => extreme(self, Reduction::Min, axis),
            Norm::Lp(p) => power_norm(self.widened()?, p, axis)?.cast(dtype),
        }
    }

    /// Divides by a norm along an axis, or by `epsilon` where that is greater. See
    /// [`linalg::vector_normalize`](crate::linalg::vector_normalize).
    ///
    /// # Errors
    /// As [`vector_norm`](AnyTensor::vector_norm).
    #[doc(alias = "normalize")]
    pub fn vector_normalize(
        self,
        norm: impl Into<Norm>,
        axis: impl Into<Axis>,
        epsilon: f64,
    ) -> Result<AnyTensor> {
        let (dtype, x) = (self.dtype(), self.widened_floats()?);
        let length = x.clone().vector_norm(norm, axis)?.binary_scalar(Binary::Max, epsilon)?;
        x.binary(Binary::Div, length)?.cast(dtype)
    }

    /// Computes the cosine similarity of vectors along an axis, which is kept with length 1. See
    /// [`linalg::cosine_similarity`](crate::linalg::cosine_similarity).
    ///
    /// # Errors
    /// When a dtype is not a float, the axis is out of range, or the shapes do not broadcast.
    pub fn cosine_similarity(
        self,
        other: AnyTensor,
        axis: impl Into<Axis>,
        epsilon: f64,
    ) -> Result<AnyTensor> {
        let similarity = self.cosine_along(other, axis.into(), epsilon);
        similarity.map_err(|error| error.in_op("cosine_similarity"))
    }

    fn cosine_along(self, other: AnyTensor, axis: Axis, epsilon: f64) -> Result<AnyTensor> {
        // A vector of length 1 stands for one of equal elements, and has the norm of that.
        let elements =
            |x: &AnyTensor| -> Result<usize> { Ok(x.shape()[axis.of("cosine_similarity", x.ty())?]) };
        let (own, others) = (elements(&self)?, elements(&other)?);
        let dtype = self.dtype();
        let (x, other) = self.expand_axis(axis, others)?.widened_with(other.expand_axis(axis, own)?)?;
        let length = |x: &AnyTensor| x.clone().vector_norm(2, axis)?.binary_scalar(Binary::Max, epsilon);
        let lengths = length(&x)?.binary(Binary::Mul, length(&other)?)?;
        x.vecdot(other, axis)?.binary(Binary::Div, lengths)?.cast(dtype)
    }

    /// Broadcasts an axis of length 1 to a length.
    fn expand_axis(self, axis: Axis, length: usize) -> Result<AnyTensor> {
        let axis = axis.of("cosine_similarity", self.ty())?;
        match self.shape()[axis] {
            1 => {
                let shape = self.shape().with(axis, length);
                self.expand(shape)
            }
            _ => Ok(self),
        }
    }

    /// Computes the norm of the differences along the last axis, which is kept with length 1. See
    /// [`linalg::pairwise_distance`](crate::linalg::pairwise_distance).
    ///
    /// # Errors
    /// When the shapes do not broadcast, and as [`vector_norm`](AnyTensor::vector_norm) along the last axis of the
    /// differences.
    pub fn pairwise_distance(
        self,
        other: AnyTensor,
        norm: impl Into<Norm>,
        epsilon: f64,
    ) -> Result<AnyTensor> {
        let dtype = self.dtype();
        let (x, other) = self.widened_with(other)?;
        let difference = x.binary(Binary::Sub, other)?;
        difference.binary_scalar(Binary::Add, epsilon)?.vector_norm(norm, -1)?.cast(dtype)
    }
}

fn count_not_zero(x: AnyTensor, axis: usize) -> Result<AnyTensor> {
    let counts = x.clone().compare_scalar(Comparison::Ne, 0.0)?.cast(x.dtype())?;
    sum_axis(counts.with_zero_gradient_of(x)?, axis)
}

fn extreme(x: AnyTensor, reduction: Reduction, axis: usize) -> Result<AnyTensor> {
    if x.shape()[axis] == 0 {
        return Err(Error::type_error("vector_norm", "no elements have no extreme", &[x.ty().into()])
            .hint("the norms by maximum and minimum need at least one element"));
    }
    x.unary(Unary::Abs)?.apply(&Op::Reduce { reduction, axes: Axes::one(axis) })
}

/// Computes `(Σ |x|^p)^(1/p)`, with gradient 0 where an element or the whole is 0.
fn power_norm(x: AnyTensor, p: f64, axis: usize) -> Result<AnyTensor> {
    let at_zero = if p > 0.0 { 0.0 } else { f64::INFINITY };
    let power = |x: AnyTensor, p: f64| {
        let zero = x.clone().compare_scalar(Comparison::Eq, 0.0)?;
        let inside = zero.clone().if_else_number(1.0, x)?;
        zero.if_else_number(at_zero, inside.binary_scalar(Binary::Pow, p)?)
    };
    power(sum_axis(power(x.unary(Unary::Abs)?, p)?, axis)?, 1.0 / p)
}
