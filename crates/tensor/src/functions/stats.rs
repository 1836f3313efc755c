//! Statistics as functions. Each forwards to the method of the same name of [`Tensor`], which has the definition.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::{Tensor, stats};
//!
//! let x = Tensor::<Flex, 2>::from_floats([[1.0, 3.0, 5.0]], &Default::default());
//! let (variance, mean) = stats::var_with_mean(x.clone(), 1);
//! assert_eq!(variance.into_scalar::<f32>(), 4.0);
//! assert_eq!(mean.into_scalar::<f32>(), 3.0);
//! assert_eq!(stats::median(x, 1).into_scalar::<f32>(), 3.0);
//! ```

pub use crate::any::CdistMode;

use crate::{Axis, Backend, Int, Interpolation, Numeric, Tensor};

/// Computes the variance along an axis, over `n - 1`: [`Tensor::var`].
#[track_caller]
pub fn var<B: Backend, const D: usize>(x: Tensor<B, D>, axis: impl Into<Axis>) -> Tensor<B, D> {
    x.var(axis)
}

/// Computes the variance along an axis, over `n`: [`Tensor::var_bias`].
#[track_caller]
pub fn var_bias<B: Backend, const D: usize>(x: Tensor<B, D>, axis: impl Into<Axis>) -> Tensor<B, D> {
    x.var_bias(axis)
}

/// Returns the variance, over `n - 1`, and the mean along an axis: [`Tensor::var_mean`].
#[track_caller]
pub fn var_with_mean<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    axis: impl Into<Axis>,
) -> (Tensor<B, D>, Tensor<B, D>) {
    x.var_mean(axis)
}

/// Returns the variance, over `n`, and the mean along an axis: [`Tensor::var_mean_bias`].
#[track_caller]
pub fn var_with_mean_bias<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    axis: impl Into<Axis>,
) -> (Tensor<B, D>, Tensor<B, D>) {
    x.var_mean_bias(axis)
}

/// Computes the standard deviation along an axis, over `n - 1`: [`Tensor::std`].
#[track_caller]
pub fn std<B: Backend, const D: usize>(x: Tensor<B, D>, axis: impl Into<Axis>) -> Tensor<B, D> {
    x.std(axis)
}

/// Computes the median along an axis: [`Tensor::median`].
#[track_caller]
pub fn median<B: Backend, const D: usize, K: Numeric>(
    x: Tensor<B, D, K>,
    axis: impl Into<Axis>,
) -> Tensor<B, D, K> {
    x.median(axis)
}

/// Returns the median along an axis, and its index: [`Tensor::median_with_indices`].
#[track_caller]
pub fn median_with_indices<B: Backend, const D: usize, K: Numeric>(
    x: Tensor<B, D, K>,
    axis: impl Into<Axis>,
) -> (Tensor<B, D, K>, Tensor<B, D, Int>) {
    x.median_with_indices(axis)
}

/// Computes quantiles along an axis: [`Tensor::quantile`].
#[track_caller]
pub fn quantile<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    q: &[f64],
    axis: impl Into<Axis>,
    interpolation: Interpolation,
) -> Tensor<B, D> {
    x.quantile(q, axis, interpolation)
}

/// Returns the most frequent element along an axis, and its index: [`Tensor::mode`].
#[track_caller]
pub fn mode<B: Backend, const D: usize, K: Numeric>(
    x: Tensor<B, D, K>,
    axis: impl Into<Axis>,
) -> (Tensor<B, D, K>, Tensor<B, D, Int>) {
    x.mode(axis)
}

/// Computes the covariance matrix of variables whose observations are along an axis: [`Tensor::cov`].
#[track_caller]
pub fn cov<B: Backend>(x: Tensor<B, 2>, axis: impl Into<Axis>, correction: f64) -> Tensor<B, 2> {
    x.cov(axis, correction)
}

/// Computes the correlation matrix of variables whose observations are along an axis: [`Tensor::corrcoef`].
#[track_caller]
pub fn corrcoef<B: Backend>(x: Tensor<B, 2>, axis: impl Into<Axis>) -> Tensor<B, 2> {
    x.corrcoef(axis)
}

/// Counts the elements in each of equally wide bins: [`Tensor::histc`].
#[track_caller]
pub fn histc<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    bins: usize,
    range: Option<(f64, f64)>,
) -> Tensor<B, 1> {
    x.histc(bins, range)
}

/// Computes a histogram of equally wide bins and their edges: [`Tensor::histogram`].
#[track_caller]
pub fn histogram<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    bins: usize,
    range: Option<(f64, f64)>,
    weights: Option<Tensor<B, D>>,
    density: bool,
) -> (Tensor<B, 1>, Tensor<B, 1>) {
    x.histogram(bins, range, weights, density)
}

/// Counts the occurrences of each integer: [`Tensor::bincount`].
#[track_caller]
pub fn bincount<B: Backend>(x: Tensor<B, 1, Int>, min_length: usize) -> Tensor<B, 1, Int> {
    x.bincount(min_length)
}

/// Computes the distances between the rows of two tensors: [`Tensor::cdist`].
#[track_caller]
pub fn cdist<B: Backend, const D: usize>(x: Tensor<B, D>, other: Tensor<B, D>, p: f64) -> Tensor<B, D> {
    x.cdist(other, p)
}

/// Computes the distances between the rows of two tensors, with a choice of the method: [`Tensor::cdist_with_mode`].
#[track_caller]
pub fn cdist_with_mode<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    other: Tensor<B, D>,
    p: f64,
    mode: CdistMode,
) -> Tensor<B, D> {
    x.cdist_with_mode(other, p, mode)
}

/// Computes the distances between the rows of a matrix, each pair once: [`Tensor::pdist`].
#[track_caller]
pub fn pdist<B: Backend>(x: Tensor<B, 2>, p: f64) -> Tensor<B, 1> {
    x.pdist(p)
}
