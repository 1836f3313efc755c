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

/// Defines functions that forward to the method of [`Tensor`] of the same name, or to the one named after `=`.
macro_rules! methods {
    ($(
        $(#[$doc:meta])*
        pub fn $name:ident[$($generics:tt)*]($x:ident: $first:ty $(, $arg:ident: $ty:ty)* $(,)?) -> $out:ty
        $(= $other:ident)?;
    )*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<$($generics)*>($x: $first $(, $arg: $ty)*) -> $out {
            $crate::tensor::forward::call!($x, $name $($other)?, $($arg),*)
        }
    )*};
}

methods! {
    /// Computes the variance along an axis, over `n - 1`: [`Tensor::var`].
    pub fn var[B: Backend, const D: usize](x: Tensor<B, D>, axis: impl Into<Axis>) -> Tensor<B, D>;

    /// Computes the variance along an axis, over `n`: [`Tensor::var_bias`].
    pub fn var_bias[B: Backend, const D: usize](x: Tensor<B, D>, axis: impl Into<Axis>) -> Tensor<B, D>;

    /// Returns the variance, over `n - 1`, and the mean along an axis: [`Tensor::var_mean`].
    pub fn var_with_mean[B: Backend, const D: usize](
        x: Tensor<B, D>,
        axis: impl Into<Axis>,
    ) -> (Tensor<B, D>, Tensor<B, D>) = var_mean;

    /// Returns the variance, over `n`, and the mean along an axis: [`Tensor::var_mean_bias`].
    pub fn var_with_mean_bias[B: Backend, const D: usize](
        x: Tensor<B, D>,
        axis: impl Into<Axis>,
    ) -> (Tensor<B, D>, Tensor<B, D>) = var_mean_bias;

    /// Computes the standard deviation along an axis, over `n - 1`: [`Tensor::std`].
    pub fn std[B: Backend, const D: usize](x: Tensor<B, D>, axis: impl Into<Axis>) -> Tensor<B, D>;

    /// Computes the median along an axis: [`Tensor::median`].
    pub fn median[B: Backend, const D: usize, K: Numeric](
        x: Tensor<B, D, K>,
        axis: impl Into<Axis>,
    ) -> Tensor<B, D, K>;

    /// Returns the median along an axis, and its index: [`Tensor::median_with_indices`].
    pub fn median_with_indices[B: Backend, const D: usize, K: Numeric](
        x: Tensor<B, D, K>,
        axis: impl Into<Axis>,
    ) -> (Tensor<B, D, K>, Tensor<B, D, Int>);

    /// Computes quantiles along an axis: [`Tensor::quantile`].
    pub fn quantile[B: Backend, const D: usize](
        x: Tensor<B, D>,
        q: &[f64],
        axis: impl Into<Axis>,
        interpolation: Interpolation,
    ) -> Tensor<B, D>;

    /// Returns the most frequent element along an axis, and its index: [`Tensor::mode`].
    pub fn mode[B: Backend, const D: usize, K: Numeric](
        x: Tensor<B, D, K>,
        axis: impl Into<Axis>,
    ) -> (Tensor<B, D, K>, Tensor<B, D, Int>);

    /// Computes the covariance matrix of variables whose observations are along an axis: [`Tensor::cov`].
    pub fn cov[B: Backend](x: Tensor<B, 2>, axis: impl Into<Axis>, correction: f64) -> Tensor<B, 2>;

    /// Computes the correlation matrix of variables whose observations are along an axis: [`Tensor::corrcoef`].
    pub fn corrcoef[B: Backend](x: Tensor<B, 2>, axis: impl Into<Axis>) -> Tensor<B, 2>;

    /// Counts the elements in each of equally wide bins: [`Tensor::histc`].
    pub fn histc[B: Backend, const D: usize](
        x: Tensor<B, D>,
        bins: usize,
        range: Option<(f64, f64)>,
    ) -> Tensor<B, 1>;

    /// Computes a histogram of equally wide bins and their edges: [`Tensor::histogram`].
    pub fn histogram[B: Backend, const D: usize](
        x: Tensor<B, D>,
        bins: usize,
        range: Option<(f64, f64)>,
        weights: Option<Tensor<B, D>>,
        density: bool,
    ) -> (Tensor<B, 1>, Tensor<B, 1>);

    /// Counts the occurrences of each integer: [`Tensor::bincount`].
    pub fn bincount[B: Backend](x: Tensor<B, 1, Int>, min_length: usize) -> Tensor<B, 1, Int>;

    /// Computes the distances between the rows of two tensors: [`Tensor::cdist`].
    pub fn cdist[B: Backend, const D: usize](x: Tensor<B, D>, other: Tensor<B, D>, p: f64) -> Tensor<B, D>;

    /// Computes the distances between the rows of two tensors, with a choice of the method: [`Tensor::cdist_with_mode`].
    pub fn cdist_with_mode[B: Backend, const D: usize](
        x: Tensor<B, D>,
        other: Tensor<B, D>,
        p: f64,
        mode: CdistMode,
    ) -> Tensor<B, D>;

    /// Computes the distances between the rows of a matrix, each pair once: [`Tensor::pdist`].
    pub fn pdist[B: Backend](x: Tensor<B, 2>, p: f64) -> Tensor<B, 1>;
}
