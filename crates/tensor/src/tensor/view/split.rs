//! Splits of an axis. All parts are views.

use super::super::ok;
use crate::tensor::forward::forward;
use crate::{Axis, Backend, Kind, Tensor};
use alloc::vec::Vec;

forward! {
    impl[B: Backend, const D: usize, K: Kind] Tensor<B, D, K>;

    /// Splits an axis into parts of that length; the last may be shorter.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.split.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let parts = x.split(2, 0);
    /// assert_eq!(parts[1].clone().into_data().to_vec::<f32>(), [3.0]);
    /// ```
    ///
    /// # Panics
    /// When the length is 0 or the axis is out of range.
    pub fn split(self, length: usize, axis: impl Into<Axis>) -> Vec<Self>;

    /// Splits an axis into parts of these lengths.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.split.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let parts = x.split_with_sizes(&[1, 2], 0);
    /// assert_eq!(parts[1].clone().into_data().to_vec::<f32>(), [2.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// When the lengths do not add up to that of the axis.
    #[doc(alias = "split")]
    pub fn split_with_sizes(self, lengths: &[usize], axis: impl Into<Axis>) -> Vec<Self>;

    /// Splits an axis into at most `count` parts of equal length, the last of which may be shorter; fewer than `count`
    /// when the axis is too short. An empty axis is one part, where PyTorch returns `count` empty parts.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.chunk.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0, 4.0, 5.0], &device);
    /// assert_eq!(x.chunk(4, 0).len(), 3);
    /// ```
    ///
    /// # Panics
    /// When the count is 0 or the axis is out of range.
    pub fn chunk(self, count: usize, axis: impl Into<Axis>) -> Vec<Self>;

    /// Splits an axis into exactly `count` parts; the first parts are longer by 1 where `count` does not divide the
    /// length.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.tensor_split.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0, 4.0, 5.0], &device);
    /// let parts = x.tensor_split(4, 0);
    /// assert_eq!(parts[0].clone().into_data().to_vec::<f32>(), [1.0, 2.0]);
    /// assert_eq!(parts[3].clone().into_data().to_vec::<f32>(), [5.0]);
    /// ```
    ///
    /// # Panics
    /// When the count is 0 or the axis is out of range.
    pub fn tensor_split(self, count: usize, axis: impl Into<Axis>) -> Vec<Self>;

    /// Splits an axis before each of these indices. Negative indices count from the end; indices beyond the end return
    /// empty parts.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.tensor_split.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0, 4.0, 5.0], &device);
    /// let parts = x.tensor_split_at(&[1, -1], 0);
    /// assert_eq!(parts[1].clone().into_data().to_vec::<f32>(), [2.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When the axis is out of range.
    #[doc(alias = "tensor_split")]
    #[doc(alias = "array_split")]
    pub fn tensor_split_at(self, places: &[i64], axis: impl Into<Axis>) -> Vec<Self>;

    /// Returns the slices of an axis, which is removed.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.unbind.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// let columns = x.unbind::<1>(1);
    /// assert_eq!(columns[1].clone().into_data().to_vec::<f32>(), [2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When `D2` is not `D - 1`.
    pub fn unbind<const D2: usize>(self, axis: impl Into<Axis>) -> Vec<Tensor<B, D2, K>>;
}

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Iterates over the slices of an axis, each with the axis of length 1.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// let sums = x.iter_dim(0).map(|row| row.sum().into_scalar::<f32>());
    /// assert_eq!(sums.collect::<Vec<_>>(), [3.0, 7.0]);
    /// ```
    ///
    /// # Panics
    /// When the axis is out of range.
    #[track_caller]
    pub fn iter_dim(
        self,
        axis: impl Into<Axis>,
    ) -> impl ExactSizeIterator<Item = Self> + DoubleEndedIterator {
        let axis = ok(axis.into().of("iter_dim", self.as_any().ty()));
        (0..self.shape()[axis]).map(move |place| self.clone().narrow(axis, place, 1))
    }
}
