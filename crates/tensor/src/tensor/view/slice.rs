//! Slices: read and replaced.

use crate::tensor::forward::forward;
use crate::{Axis, Backend, Kind, Number, SliceArg, SliceArgs, Tensor};

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Slices each axis by a range. The argument is a range of the first axis, an array, or [`s!`](crate::s) for steps
    /// and ranges of different types. With fewer ranges than axes, the remaining axes are whole.
    ///
    /// A view. Negative ends count from the end of the axis, and ends beyond it are clamped to it, as in NumPy. A
    /// single index keeps its axis with length 1. A negative step visits the range from its last element to its first:
    /// `1..3;-1` has elements 2 and 1, NumPy's `x[1:3][::-1]`.
    ///
    /// <https://numpy.org/doc/stable/user/basics.indexing.html#slicing-and-striding>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor, s};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1, Int>::arange(0..6, &device).reshape([2, 3]);
    /// assert_eq!(x.clone().slice(1..2).into_data().to_vec::<i32>(), [3, 4, 5]);
    /// assert_eq!(x.clone().slice([0..1, 1..3]).into_data().to_vec::<i32>(), [1, 2]);
    /// assert_eq!(x.clone().slice(s![.., ..;-1]).into_data().to_vec::<i32>(), [2, 1, 0, 5, 4, 3]);
    /// assert_eq!(x.clone().slice(s![-1, ..;2]).into_data().to_vec::<i32>(), [3, 5]);
    /// ```
    ///
    /// # Panics
    /// When there are more ranges than axes, a range starts beyond its axis, or a step is 0.
    #[doc(alias = "getitem")]
    #[track_caller]
    pub fn slice(self, ranges: impl SliceArgs) -> Self {
        self.map(|x| x.slice(ranges))
    }

    /// Slices one axis by a range. A view.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.slice_dim(-1, 1..).into_data().to_vec::<i32>(), [1, 2, 4, 5]);
    /// ```
    ///
    /// # Panics
    /// When the range starts beyond the axis.
    #[track_caller]
    pub fn slice_dim(self, axis: impl Into<Axis>, range: impl Into<SliceArg>) -> Self {
        self.map(|x| x.slice_dim(axis, range))
    }

    /// Replaces a slice; the values broadcast to it.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.slice_scatter.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor, s};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// let y = Tensor::<Flex, 2, Int>::from_ints([[8, 9]], &device);
    /// assert_eq!(x.slice_assign(s![.., ..2], y).into_data().to_vec::<i32>(), [8, 9, 2, 8, 9, 5]);
    /// ```
    ///
    /// # Panics
    /// When the values do not broadcast to the range.
    #[doc(alias = "slice_scatter")]
    #[doc(alias = "index_put")]
    #[track_caller]
    pub fn slice_assign(self, ranges: impl SliceArgs, values: Self) -> Self {
        self.map(|x| x.slice_assign(ranges, values.into_any()))
    }

    /// Fills a slice with a scalar.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor, s};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.slice_fill(s![1, ..;2], 9).into_data().to_vec::<i32>(), [0, 1, 2, 9, 4, 9]);
    /// ```
    #[track_caller]
    pub fn slice_fill(self, ranges: impl SliceArgs, x: impl Number) -> Self {
        self.map(|any| any.slice_fill(ranges, x))
    }
}

forward! {
    impl[B: Backend, const D: usize, K: Kind] Tensor<B, D, K>;

    /// Returns `length` elements of an axis, from `start`. A view.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.narrow.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.narrow(0, 1, 2).into_data().to_vec::<f32>(), [2.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// When `start + length` is beyond the axis.
    pub fn narrow(self, axis: impl Into<Axis>, start: usize, length: usize) -> Self;

    /// Selects the slice at one index of an axis, which is removed; a negative index counts from the end. A view.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.select.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.select_dim::<1>(1, -1).into_data().to_vec::<i32>(), [2, 5]);
    /// ```
    ///
    /// # Panics
    /// When the index is out of range, or `D2` is not `D - 1`.
    #[doc(alias = "select")]
    pub fn select_dim<const D2: usize>(self, axis: impl Into<Axis>, index: i64) -> Tensor<B, D2, K>;

    /// Extracts sliding windows of `size` elements along an axis, `step` elements apart. The axis becomes the number of
    /// windows, `(length - size) / step + 1`, and their elements are a new last axis. A view.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.Tensor.unfold.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0, 4.0], &device);
    /// assert_eq!(x.unfold::<2>(0, 2, 1).into_data().to_vec::<f32>(), [1.0, 2.0, 2.0, 3.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When `size` or `step` is 0, `size` is greater than the length of the axis, or `D2` is not `D + 1`.
    pub fn unfold<const D2: usize>(self, axis: impl Into<Axis>, size: usize, step: usize) -> Tensor<B, D2, K>;
}
