//! Sorting and top-k. NaN is greater than every other number.

mod rank;

use crate::tensor::forward::forward;
use crate::{Axis, Backend, Int, Numeric, Tensor};

forward! {
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// Sorts in ascending order along an axis. NaN is last.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.sort.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// assert_eq!(x.sort(0).into_data().to_vec::<f32>(), [1.0, 2.0, 3.0]);
    /// ```
    pub fn sort(self, axis: impl Into<Axis>) -> Self;

    /// Sorts in descending order along an axis. NaN is first.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.sort.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// assert_eq!(x.sort_descending(0).into_data().to_vec::<f32>(), [3.0, 2.0, 1.0]);
    /// ```
    pub fn sort_descending(self, axis: impl Into<Axis>) -> Self;

    /// Sorts in ascending order along an axis, and returns the index of each element. The sort is stable.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.sort.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// let (values, indices) = x.sort_with_indices(0);
    /// assert_eq!(indices.into_data().to_vec::<i32>(), [1, 2, 0]);
    /// ```
    #[doc(alias = "sort")]
    pub fn sort_with_indices(self, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);

    /// Sorts in descending order along an axis, and returns the index of each element. The sort is stable.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.sort.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// let (values, indices) = x.sort_descending_with_indices(0);
    /// assert_eq!(indices.into_data().to_vec::<i32>(), [0, 2, 1]);
    /// ```
    pub fn sort_descending_with_indices(self, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);

    /// Sorts in ascending order along the first axis.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.msort.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[3.0, 1.0], [2.0, 4.0]], &device);
    /// assert_eq!(x.msort().into_data().to_vec::<f32>(), [2.0, 1.0, 3.0, 4.0]);
    /// ```
    pub fn msort(self) -> Self;

    /// Returns the indices that sort an axis in ascending order. The sort is stable.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.argsort.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// assert_eq!(x.argsort(0).into_data().to_vec::<i32>(), [1, 2, 0]);
    /// ```
    pub fn argsort(self, axis: impl Into<Axis>) -> Tensor<B, D, Int>;

    /// Returns the indices that sort an axis in descending order. The sort is stable.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.argsort.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// assert_eq!(x.argsort_descending(0).into_data().to_vec::<i32>(), [0, 2, 1]);
    /// ```
    pub fn argsort_descending(self, axis: impl Into<Axis>) -> Tensor<B, D, Int>;

    /// Returns the `k` greatest elements along an axis, in descending order.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.topk.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// assert_eq!(x.topk(2, 0).into_data().to_vec::<f32>(), [3.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// When the axis has fewer than `k` elements.
    pub fn topk(self, k: usize, axis: impl Into<Axis>) -> Self;

    /// Returns the `k` greatest elements along an axis, in descending order, and their indices. Equal elements keep
    /// their order.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.topk.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// let (values, indices) = x.topk_with_indices(2, 0);
    /// assert_eq!(indices.into_data().to_vec::<i32>(), [0, 2]);
    /// ```
    ///
    /// # Panics
    /// When the axis has fewer than `k` elements.
    #[doc(alias = "topk")]
    #[doc(alias = "top_k")]
    pub fn topk_with_indices(self, k: usize, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);

    /// Returns the indices of the `k` greatest elements along an axis, in descending order of the elements.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.topk.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// assert_eq!(x.argtopk(2, 0).into_data().to_vec::<i32>(), [0, 2]);
    /// ```
    ///
    /// # Panics
    /// When the axis has fewer than `k` elements.
    pub fn argtopk(self, k: usize, axis: impl Into<Axis>) -> Tensor<B, D, Int>;

    /// Returns the `k` least elements along an axis, in ascending order.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.topk.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// assert_eq!(x.topk_smallest(2, 0).into_data().to_vec::<f32>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// When the axis has fewer than `k` elements.
    pub fn topk_smallest(self, k: usize, axis: impl Into<Axis>) -> Self;

    /// Returns the `k` least elements along an axis, in ascending order, and their indices. Equal elements keep their
    /// order.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.topk.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([3.0, 1.0, 2.0], &device);
    /// let (values, indices) = x.topk_smallest_with_indices(2, 0);
    /// assert_eq!(indices.into_data().to_vec::<i32>(), [1, 2]);
    /// ```
    ///
    /// # Panics
    /// When the axis has fewer than `k` elements.
    pub fn topk_smallest_with_indices(self, k: usize, axis: impl Into<Axis>) -> (Self, Tensor<B, D, Int>);
}
