//! Many to one.

use super::ok;
use crate::{AnyTensor, Backend, Bool, Float, Int, Kind, Numeric, Tensor};
use kiln_ir::{Binary, Extremum, Op, Reduction};

impl<B: Backend, const D: usize, K: Numeric> Tensor<B, D, K> {
    /// The sum of all elements, of shape `[1]`.
    #[track_caller]
    pub fn sum(self) -> Tensor<B, 1, K> {
        self.convert(|any| any.reduce_all(Reduction::Sum))
    }

    /// The sum along an axis, which stays with length 1.
    #[track_caller]
    pub fn sum_dim(self, axis: usize) -> Self {
        self.map(|any| any.reduce(Reduction::Sum, &[axis]))
    }

    /// The sum along axes, which stay with length 1.
    #[track_caller]
    pub fn sum_dims(self, axes: &[usize]) -> Self {
        self.map(|any| any.reduce(Reduction::Sum, axes))
    }

    /// The product of all elements, of shape `[1]`.
    #[track_caller]
    pub fn prod(self) -> Tensor<B, 1, K> {
        self.convert(|any| any.reduce_all(Reduction::Prod))
    }

    /// The product along an axis, which stays with length 1.
    #[track_caller]
    pub fn prod_dim(self, axis: usize) -> Self {
        self.map(|any| any.reduce(Reduction::Prod, &[axis]))
    }

    /// The mean of all elements, of shape `[1]`. Integers truncate.
    #[track_caller]
    pub fn mean(self) -> Tensor<B, 1, K> {
        self.convert(|any| {
            let axes: alloc::vec::Vec<usize> = (0..D).collect();
            any.mean_over(&axes)?.reshape([1])
        })
    }

    /// The mean along an axis, which stays with length 1. Integers truncate.
    #[track_caller]
    pub fn mean_dim(self, axis: usize) -> Self {
        self.mean_dims(&[axis])
    }

    /// The mean along axes, which stay with length 1. Integers truncate.
    #[track_caller]
    pub fn mean_dims(self, axes: &[usize]) -> Self {
        self.map(|any| any.mean_over(axes))
    }

    /// The greatest of all elements, of shape `[1]`. NaN if there is one.
    #[track_caller]
    pub fn max(self) -> Tensor<B, 1, K> {
        self.convert(|any| any.reduce_all(Reduction::Max))
    }

    /// The greatest along an axis, which stays with length 1. NaN if there is one.
    #[track_caller]
    pub fn max_dim(self, axis: usize) -> Self {
        self.map(|any| any.reduce(Reduction::Max, &[axis]))
    }

    /// The least of all elements, of shape `[1]`. NaN if there is one.
    #[track_caller]
    pub fn min(self) -> Tensor<B, 1, K> {
        self.convert(|any| any.reduce_all(Reduction::Min))
    }

    /// The least along an axis, which stays with length 1. NaN if there is one.
    #[track_caller]
    pub fn min_dim(self, axis: usize) -> Self {
        self.map(|any| any.reduce(Reduction::Min, &[axis]))
    }

    /// The greatest along an axis and where it is, both with the axis of length 1.
    #[track_caller]
    pub fn max_dim_with_indices(self, axis: usize) -> (Self, Tensor<B, D, Int>) {
        self.extreme_with_indices(Extremum::Max, axis)
    }

    /// The least along an axis and where it is, both with the axis of length 1.
    #[track_caller]
    pub fn min_dim_with_indices(self, axis: usize) -> (Self, Tensor<B, D, Int>) {
        self.extreme_with_indices(Extremum::Min, axis)
    }

    #[track_caller]
    fn extreme_with_indices(self, extremum: Extremum, axis: usize) -> (Self, Tensor<B, D, Int>) {
        let index = ok(self.as_any().clone().arg_reduce(extremum, axis));
        let values = ok(self.into_any().gather(axis, index.clone()));
        (Tensor::from_any(values), Tensor::from_any(index))
    }

    /// Where the greatest along an axis is; the axis stays with length 1. The first among equals.
    #[track_caller]
    pub fn argmax(self, axis: usize) -> Tensor<B, D, Int> {
        self.convert(|any| any.arg_reduce(Extremum::Max, axis))
    }

    /// Where the least along an axis is; the axis stays with length 1. The first among equals.
    #[track_caller]
    pub fn argmin(self, axis: usize) -> Tensor<B, D, Int> {
        self.convert(|any| any.arg_reduce(Extremum::Min, axis))
    }

    /// The running sum along an axis.
    #[track_caller]
    pub fn cumsum(self, axis: usize) -> Self {
        self.map(|any| any.scan(Reduction::Sum, axis))
    }

    /// The running product along an axis.
    #[track_caller]
    pub fn cumprod(self, axis: usize) -> Self {
        self.map(|any| any.scan(Reduction::Prod, axis))
    }

    /// The running maximum along an axis.
    #[track_caller]
    pub fn cummax(self, axis: usize) -> Self {
        self.map(|any| any.scan(Reduction::Max, axis))
    }

    /// The running minimum along an axis.
    #[track_caller]
    pub fn cummin(self, axis: usize) -> Self {
        self.map(|any| any.scan(Reduction::Min, axis))
    }
}

impl<B: Backend, const D: usize> Tensor<B, D, Float> {
    /// The variance along an axis, which stays with length 1: squared deviations over `n - 1`.
    #[track_caller]
    pub fn var(self, axis: usize) -> Self {
        self.map(|any| variance(any, axis, 1))
    }

    /// The biased variance along an axis, which stays with length 1: squared deviations over `n`.
    #[track_caller]
    pub fn var_bias(self, axis: usize) -> Self {
        self.map(|any| variance(any, axis, 0))
    }

    /// The standard deviation along an axis, which stays with length 1: the root of [`var`](Tensor::var).
    #[track_caller]
    pub fn std(self, axis: usize) -> Self {
        self.var(axis).sqrt()
    }
}

fn variance(any: AnyTensor, axis: usize, correction: usize) -> crate::Result<AnyTensor> {
    any.check_axes("var", &[axis])?;
    let count = any.shape()[axis] as f64 - correction as f64;
    let deviation = any.clone().binary(Binary::Sub, any.mean_over(&[axis])?)?;
    let squares = deviation.clone().binary(Binary::Mul, deviation)?;
    // At most `correction` elements have no variance: 0 / 0 is NaN, as everywhere in the field.
    squares.reduce(Reduction::Sum, &[axis])?.binary_scalar(Binary::Div, count.max(0.0))
}

impl<B: Backend, const D: usize> Tensor<B, D, Bool> {
    /// Whether all elements hold, of shape `[1]`.
    #[track_caller]
    pub fn all(self) -> Tensor<B, 1, Bool> {
        self.convert(|any| any.reduce_all(Reduction::Min))
    }

    /// Whether any element holds, of shape `[1]`.
    #[track_caller]
    pub fn any(self) -> Tensor<B, 1, Bool> {
        self.convert(|any| any.reduce_all(Reduction::Max))
    }

    /// Whether all elements along an axis hold; the axis stays with length 1.
    #[track_caller]
    pub fn all_dim(self, axis: usize) -> Self {
        self.map(|any| any.reduce(Reduction::Min, &[axis]))
    }

    /// Whether any element along an axis holds; the axis stays with length 1.
    #[track_caller]
    pub fn any_dim(self, axis: usize) -> Self {
        self.map(|any| any.reduce(Reduction::Max, &[axis]))
    }
}

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// The positions of the non-zero (true) elements in row-major order, `[count, D]`. Waits for the device:
    /// the shape depends on the data.
    #[track_caller]
    pub fn nonzero(self) -> Tensor<B, 2, Int> {
        self.convert(|any| {
            let index = any.stack().int_dtype();
            any.apply(&Op::NonZero { index })
        })
    }
}
