//! Cumulative sums, products, minima and maxima.

use crate::tensor::forward::forward;
use crate::{Axis, Backend, Int, Numeric, Tensor};

forward! {
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// Computes the cumulative sum along an axis. Integers keep their dtype and wrap, 8 bits too. PyTorch sums integers
    /// in `i64`, as does `x.cast(DType::I64).cumsum(axis)`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.cumsum.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// assert_eq!(x.cumsum(0).into_data().to_vec::<f32>(), [3.0, 4.0, 6.0]);
    /// ```
    pub fn cumsum(self, axis: impl Into<Axis>) -> Self;

    /// Computes the cumulative product along an axis. Integers wrap. The gradient does not divide, so it is correct for
    /// zeros too.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.cumprod.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// assert_eq!(x.cumprod(0).into_data().to_vec::<f32>(), [3.0, 3.0, 6.0]);
    /// ```
    pub fn cumprod(self, axis: impl Into<Axis>) -> Self;

    /// Computes the cumulative maximum along an axis; NaN from the first NaN on. The gradient flows to the latest
    /// element that set the maximum.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.cummax.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// assert_eq!(x.cummax(0).into_data().to_vec::<f32>(), [3.0, 3.0, 3.0]);
    /// ```
    pub fn cummax(self, axis: impl Into<Axis>) -> Self;

    /// Computes the cumulative minimum along an axis; NaN from the first NaN on. The gradient flows to the latest
    /// element that set the minimum.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.cummin.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// assert_eq!(x.cummin(0).into_data().to_vec::<f32>(), [3.0, 1.0, 1.0]);
    /// ```
    pub fn cummin(self, axis: impl Into<Axis>) -> Self;

    /// Computes the cumulative maximum along an axis, and the index of the latest element that set it.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.cummax.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 3.0, 2.0, 3.0], &device);
    /// let (values, indices) = x.cummax_with_indices(0);
    /// assert_eq!(indices.into_data().to_vec::<i32>(), [0, 1, 1, 3]);
    /// ```
    pub fn cummax_with_indices(self, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);

    /// Computes the cumulative minimum along an axis, and the index of the latest element that set it.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.cummin.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// let (values, indices) = x.cummin_with_indices(0);
    /// assert_eq!(indices.into_data().to_vec::<i32>(), [0, 1, 1]);
    /// ```
    pub fn cummin_with_indices(self, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);
}

forward! {
    impl[B: Backend, const D: usize] Tensor<B, D>;

    /// Computes the logarithm of the cumulative sum of exponentials along an axis. Adjacent sums are combined pairwise,
    /// and each pair is scaled by its maximum, which prevents overflow and underflow.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.logcumsumexp.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1000.0, 1000.0], &device);
    /// assert_eq!(x.logcumsumexp(0).into_data().to_vec::<f32>(), [1000.0, 1000.0 + 2f32.ln()]);
    /// ```
    pub fn logcumsumexp(self, axis: impl Into<Axis>) -> Self;
}
