//! Variance and standard deviation.

use crate::tensor::forward::forward;
use crate::{Axis, AxisList, Backend, Tensor};

forward! {
    impl[B: Backend, const D: usize] Tensor<B, D>;

    /// Computes the variance along an axis, which is kept with length 1: squared deviations from the mean over `n - 1`.
    /// NaN for fewer than two elements.
    ///
    /// It uses the corrected two-pass algorithm on scaled elements, in `f32` for 16-bit dtypes. The result is exact to
    /// rounding also for elements far from 0, and overflows only where the exact result does.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.var.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.var(1).into_data().to_vec::<f32>(), [0.5, 0.5]);
    /// ```
    pub fn var(self, axis: impl Into<Axis>) -> Self;

    /// Computes the biased variance along an axis, which is kept with length 1: squared deviations over `n`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.var.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.var_bias(1).into_data().to_vec::<f32>(), [0.25, 0.25]);
    /// ```
    #[doc(alias = "var")]
    pub fn var_bias(self, axis: impl Into<Axis>) -> Self;

    /// Computes the variance along axes, which are kept with length 1: squared deviations over `n - correction`, where
    /// `n` is the number of elements along all of them.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.var.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.var_dims([0, 1], 0.0).into_data().to_vec::<f32>(), [1.25]);
    /// ```
    pub fn var_dims(self, axes: impl Into<AxisList>, correction: f64) -> Self;

    /// Computes the variance, over `n - 1`, and the mean along an axis, which is kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.var_mean.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// let (variance, mean) = x.var_mean(1);
    /// assert_eq!(mean.into_data().to_vec::<f32>(), [1.5, 3.5]);
    /// ```
    pub fn var_mean(self, axis: impl Into<Axis>) -> (Self, Self);

    /// Computes the biased variance, over `n`, and the mean along an axis, which is kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.var_mean.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// let (variance, mean) = x.var_mean_bias(1);
    /// assert_eq!(variance.into_data().to_vec::<f32>(), [0.25, 0.25]);
    /// ```
    pub fn var_mean_bias(self, axis: impl Into<Axis>) -> (Self, Self);

    /// Computes the standard deviation along an axis, which is kept with length 1: the square root of
    /// [`var`](Tensor::var). Where it is 0, its gradient is 0.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.std.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 3.0, 5.0]], &device);
    /// assert_eq!(x.std(1).into_data().to_vec::<f32>(), [2.0]);
    /// ```
    pub fn std(self, axis: impl Into<Axis>) -> Self;

    /// Computes the standard deviation along axes, which are kept with length 1: the square root of
    /// [`var_dims`](Tensor::var_dims). Where it is 0, its gradient is 0.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.std.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 1.0], [3.0, 3.0]], &device);
    /// assert_eq!(x.std_dims([0, 1], 0.0).into_data().to_vec::<f32>(), [1.0]);
    /// ```
    pub fn std_dims(self, axes: impl Into<AxisList>, correction: f64) -> Self;

    /// Computes the standard deviation, over `n - 1`, and the mean along an axis, which is kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.std_mean.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 3.0, 5.0]], &device);
    /// let (deviation, mean) = x.std_mean(1);
    /// assert_eq!(mean.into_data().to_vec::<f32>(), [3.0]);
    /// ```
    pub fn std_mean(self, axis: impl Into<Axis>) -> (Self, Self);
}
