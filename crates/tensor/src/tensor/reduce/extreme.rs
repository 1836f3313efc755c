//! The least and the greatest.

use crate::tensor::forward::forward;
use crate::{Axis, AxisList, Backend, Int, Numeric, Tensor};

forward! {
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// The greatest of all elements, of shape `[1]`; of none, -inf, or the least integer. NaN if there is one.
    /// Equal elements share the gradient.
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

    /// The maximum along an axis, which is kept with length 1. NaN if there is one. Equal elements share the
    /// gradient, and so do several NaN (PyTorch's `amax` gives NaN to all elements then); of [`max_dim_with_indices`](Tensor::max_dim_with_indices) the one that was found gets it.
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

    /// The greatest along axes, which stay with length 1. NaN if there is one.
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

    /// The greatest along an axis and where it is, the first among equals; the axis stays with length 1.
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
    /// When the axis is empty, or longer than indices can say: 2³¹ elements in `i32`.
    #[doc(alias = "max")]
    pub fn max_dim_with_indices(self, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);

    /// The index of the maximum along an axis, the first among equals; a NaN counts as the greatest. The axis
    /// stays with length 1.
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
    /// When the axis is empty, or longer than indices can say: 2³¹ elements in `i32`.
    pub fn argmax(self, axis: impl Into<Axis>) -> Tensor<B, D, Int>;

    /// The least of all elements, of shape `[1]`; of none, inf, or the greatest integer. NaN if there is one.
    /// Equal elements share the gradient.
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

    /// The minimum along an axis, which is kept with length 1. NaN if there is one. Equal elements share the
    /// gradient, and so do several NaN (PyTorch's `amin` gives NaN to all elements then); of [`min_dim_with_indices`](Tensor::min_dim_with_indices) the one that was found gets it.
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

    /// The least along axes, which stay with length 1. NaN if there is one.
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

    /// The least along an axis and where it is, the first among equals; the axis stays with length 1.
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
    /// When the axis is empty, or longer than indices can say: 2³¹ elements in `i32`.
    #[doc(alias = "min")]
    pub fn min_dim_with_indices(self, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);

    /// The index of the minimum along an axis, the first among equals; a NaN counts as the least. The axis stays with
    /// length 1.
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
    /// When the axis is empty, or longer than indices can say: 2³¹ elements in `i32`.
    pub fn argmin(self, axis: impl Into<Axis>) -> Tensor<B, D, Int>;

    /// The greatest absolute value of all elements, of shape `[1]`; 0 of none.
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

    /// The greatest absolute value along an axis, which is kept with length 1; 0 of none.
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

    /// The greatest absolute value along axes, which stay with length 1; 0 of none.
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

    /// The minimum and the maximum along an axis, which is kept with length 1.
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
