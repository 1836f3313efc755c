//! Minima and maxima, and their indices.

use crate::tensor::forward::forward;
use crate::{Axis, AxisList, Backend, Int, Numeric, Tensor};

forward! {
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// Computes the maximum of all elements, of shape `[1]`; NaN if an element is NaN. An empty tensor returns -inf, or
    /// the least integer. Equal elements share the gradient.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.amax.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.max().into_data().to_vec::<f32>(), [4.0]);
    /// ```
    pub fn max(self) -> Tensor<B, 1, K>;

    /// Computes the maximum along an axis, which is kept with length 1. NaN if an element is NaN. Equal maxima, and
    /// several NaN, share the gradient (PyTorch's `amax` assigns NaN to all elements in the second case). With
    /// [`max_dim_with_indices`](Tensor::max_dim_with_indices) the gradient flows to the returned index only.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.amax.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.max_dim(0).into_data().to_vec::<f32>(), [3.0, 4.0]);
    /// ```
    pub fn max_dim(self, axis: impl Into<Axis>) -> Self;

    /// Computes the maximum along axes, which are kept with length 1. NaN if an element is NaN.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.amax.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.max_dims([0, 1]).into_data().to_vec::<f32>(), [4.0]);
    /// ```
    #[doc(alias = "amax")]
    pub fn max_dims(self, axes: impl Into<AxisList>) -> Self;

    /// Computes the maximum along an axis, and its index (the first of equal elements); the axis is kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.max.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// let (values, indices) = x.max_dim_with_indices(1);
    /// assert_eq!(indices.into_data().to_vec::<i32>(), [1, 1]);
    /// ```
    ///
    /// # Panics
    /// When the axis is empty, or too long for `i32` indices: 2³¹ elements.
    #[doc(alias = "max")]
    pub fn max_dim_with_indices(self, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);

    /// Returns the index of the maximum along an axis, the first of equal elements; NaN is the maximum. The axis is
    /// kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.argmax.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.argmax(0).into_data().to_vec::<i32>(), [1, 1]);
    /// ```
    ///
    /// # Panics
    /// When the axis is empty, or too long for `i32` indices: 2³¹ elements.
    pub fn argmax(self, axis: impl Into<Axis>) -> Tensor<B, D, Int>;

    /// Computes the minimum of all elements, of shape `[1]`; NaN if an element is NaN. An empty tensor returns inf, or
    /// the greatest integer. Equal elements share the gradient.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.amin.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.min().into_data().to_vec::<f32>(), [1.0]);
    /// ```
    pub fn min(self) -> Tensor<B, 1, K>;

    /// Computes the minimum along an axis, which is kept with length 1. NaN if an element is NaN. Equal minima, and
    /// several NaN, share the gradient (PyTorch's `amin` assigns NaN to all elements in the second case). With
    /// [`min_dim_with_indices`](Tensor::min_dim_with_indices) the gradient flows to the returned index only.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.amin.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.min_dim(0).into_data().to_vec::<f32>(), [1.0, 2.0]);
    /// ```
    pub fn min_dim(self, axis: impl Into<Axis>) -> Self;

    /// Computes the minimum along axes, which are kept with length 1. NaN if an element is NaN.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.amin.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.min_dims([0, 1]).into_data().to_vec::<f32>(), [1.0]);
    /// ```
    #[doc(alias = "amin")]
    pub fn min_dims(self, axes: impl Into<AxisList>) -> Self;

    /// Computes the minimum along an axis, and its index (the first of equal elements); the axis is kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.min.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// let (values, indices) = x.min_dim_with_indices(1);
    /// assert_eq!(indices.into_data().to_vec::<i32>(), [0, 0]);
    /// ```
    ///
    /// # Panics
    /// When the axis is empty, or too long for `i32` indices: 2³¹ elements.
    #[doc(alias = "min")]
    pub fn min_dim_with_indices(self, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);

    /// Returns the index of the minimum along an axis, the first of equal elements; NaN is the minimum. The axis is
    /// kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.argmin.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.argmin(0).into_data().to_vec::<i32>(), [0, 0]);
    /// ```
    ///
    /// # Panics
    /// When the axis is empty, or too long for `i32` indices: 2³¹ elements.
    pub fn argmin(self, axis: impl Into<Axis>) -> Tensor<B, D, Int>;

    /// Computes the maximum absolute value of all elements, of shape `[1]`; 0 for an empty tensor.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, -3.0], &device);
    /// assert_eq!(x.max_abs().into_data().to_vec::<f32>(), [3.0]);
    /// ```
    pub fn max_abs(self) -> Tensor<B, 1, K>;

    /// Computes the maximum absolute value along an axis, which is kept with length 1; 0 for an empty axis.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, -3.0]], &device);
    /// assert_eq!(x.max_abs_dim(1).into_data().to_vec::<f32>(), [3.0]);
    /// ```
    pub fn max_abs_dim(self, axis: impl Into<Axis>) -> Self;

    /// Computes the maximum absolute value along axes, which are kept with length 1; 0 for empty axes.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, -3.0]], &device);
    /// assert_eq!(x.max_abs_dims([0, 1]).into_data().to_vec::<f32>(), [3.0]);
    /// ```
    pub fn max_abs_dims(self, axes: impl Into<AxisList>) -> Self;

    /// Computes the minimum and the maximum along an axis, which is kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.aminmax.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// let (least, greatest) = x.aminmax(1);
    /// assert_eq!(least.into_data().to_vec::<f32>(), [1.0, 3.0]);
    /// assert_eq!(greatest.into_data().to_vec::<f32>(), [2.0, 4.0]);
    /// ```
    pub fn aminmax(self, axis: impl Into<Axis>) -> (Self, Self);
}
