//! Order statistics: kth value, median, mode and quantiles.

use crate::tensor::forward::forward;
use crate::{Axis, Backend, Int, Interpolation, Numeric, Tensor};

forward! {
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// Returns the `k`th least element along an axis, counted from 1, and its index (the first of equal elements). The
    /// axis is kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.kthvalue.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// let (values, indices) = x.kthvalue(2, 0);
    /// assert_eq!(values.into_data().to_vec::<f32>(), [2.0]);
    /// assert_eq!(indices.into_data().to_vec::<i32>(), [2]);
    /// ```
    ///
    /// # Panics
    /// When `k` is 0 or greater than the length of the axis.
    pub fn kthvalue(self, k: usize, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);

    /// Computes the median along an axis, which is kept with length 1: the lower of the two middle elements if their
    /// count is even. NaN if an element is NaN.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.median.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([4.0, 1.0, 3.0, 2.0], &device);
    /// assert_eq!(x.median(0).into_data().to_vec::<f32>(), [2.0]);
    /// ```
    ///
    /// # Panics
    /// When the axis is empty.
    pub fn median(self, axis: impl Into<Axis>) -> Self;

    /// Returns the [`median`](Tensor::median) along an axis, and its index. The gradient flows to that element.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.median.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// let (values, indices) = x.median_with_indices(0);
    /// assert_eq!(indices.into_data().to_vec::<i32>(), [2]);
    /// ```
    ///
    /// # Panics
    /// When the axis is empty.
    pub fn median_with_indices(self, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);

    /// Computes the median along an axis, ignoring NaN; the axis is kept with length 1. NaN if all elements are NaN.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nanmedian.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([f32::NAN, 1.0, 3.0], &device);
    /// assert_eq!(x.nanmedian(0).into_data().to_vec::<f32>(), [1.0]);
    /// ```
    ///
    /// # Panics
    /// When the axis is empty.
    pub fn nanmedian(self, axis: impl Into<Axis>) -> Self;

    /// Computes the median along an axis, ignoring NaN, and its index.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nanmedian.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([f32::NAN, 1.0, 3.0], &device);
    /// let (values, indices) = x.nanmedian_with_indices(0);
    /// assert_eq!(indices.into_data().to_vec::<i32>(), [1]);
    /// ```
    ///
    /// # Panics
    /// When the axis is empty.
    pub fn nanmedian_with_indices(self, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);

    /// Returns the most frequent element along an axis, and the index of its last occurrence; the axis is kept with
    /// length 1. Of equally frequent elements it returns the least. Each NaN is a value of its own.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.mode.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([2.0, 1.0, 2.0, 3.0], &device);
    /// let (values, indices) = x.mode(0);
    /// assert_eq!(values.into_data().to_vec::<f32>(), [2.0]);
    /// assert_eq!(indices.into_data().to_vec::<i32>(), [2]);
    /// ```
    ///
    /// # Panics
    /// When the axis is empty.
    pub fn mode(self, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);
}

forward! {
    impl[B: Backend, const D: usize] Tensor<B, D>;

    /// Computes quantiles along an axis, whose length becomes the number of quantiles: the elements at the ranks
    /// `q * (n - 1)` in ascending order. A fractional rank uses the [`Interpolation`]. NaN if an element is NaN.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.quantile.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Interpolation, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([4.0, 1.0, 3.0, 2.0], &device);
    /// assert_eq!(x.quantile(&[0.5, 1.0], 0, Interpolation::Linear).into_data().to_vec::<f32>(), [2.5, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When a quantile is not between 0 and 1, or the axis is empty.
    pub fn quantile(self, q: &[f64], axis: impl Into<Axis>, interpolation: Interpolation) -> Self;

    /// Like [`quantile`](Tensor::quantile), ignoring NaN; NaN if all elements are NaN.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nanquantile.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Interpolation, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([4.0, f32::NAN, 3.0, 2.0], &device);
    /// assert_eq!(x.nanquantile(&[0.5], 0, Interpolation::Linear).into_data().to_vec::<f32>(), [3.0]);
    /// ```
    ///
    /// # Panics
    /// When a quantile is not between 0 and 1, or the axis is empty.
    pub fn nanquantile(self, q: &[f64], axis: impl Into<Axis>, interpolation: Interpolation) -> Self;
}
