//! Reshapes: the same elements in another shape.

use super::super::ok;
use crate::tensor::forward::forward;
use crate::{AnyTensor, Axis, AxisList, Backend, Kind, Shape, Tensor};
use alloc::vec::Vec;

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Reshapes the tensor; the elements keep their row-major order. One length may be -1 and is inferred; 0 keeps the
    /// length of the same axis, unless the tensor is empty.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.reshape.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.clone().reshape([3, 2]).into_data().to_vec::<i32>(), [0, 1, 2, 3, 4, 5]);
    /// assert_eq!(x.reshape([0, -1, 1]).dims(), [2, 3, 1]);
    /// ```
    ///
    /// # Panics
    /// When the product of the lengths is not the number of elements.
    #[doc(alias = "view")]
    #[track_caller]
    pub fn reshape<const D2: usize>(self, shape: impl ReshapeArgs<D2>) -> Tensor<B, D2, K> {
        let lengths = shape.into_lengths();
        self.convert(|x| x.reshape_lengths(&lengths))
    }

    /// Gathers elements by strides: the element at each index is `offset + Σ strides[i] * index[i]` in row-major order.
    /// Elements may repeat: their gradients add up. The result is a copy. Strides count elements of this tensor in
    /// row-major order, whatever its memory layout.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.as_strided.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0, 4.0], &Default::default());
    /// let windows = x.as_strided([3, 2], [1, 1], 0);
    /// assert_eq!(windows.into_data().to_vec::<f32>(), [1.0, 2.0, 2.0, 3.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When an index is beyond the last element.
    #[track_caller]
    pub fn as_strided<const D2: usize>(
        self,
        shape: [usize; D2],
        strides: [usize; D2],
        offset: usize,
    ) -> Tensor<B, D2, K> {
        self.convert(|x| x.as_strided(&shape, &strides, offset))
    }
}

forward! {
    impl[B: Backend, const D: usize, K: Kind] Tensor<B, D, K>;

    /// Flattens the axes `start..=end` into one.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.flatten.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.flatten::<1>(0, -1).dims(), [6]);
    /// ```
    ///
    /// # Panics
    /// When an axis is out of range, `start` is after `end`, or `D2` does not match.
    #[doc(alias = "ravel")]
    pub fn flatten<const D2: usize>(self, start: impl Into<Axis>, end: impl Into<Axis>) -> Tensor<B, D2, K>;

    /// Splits an axis into axes of these lengths, one of which may be -1 and is inferred.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.unflatten.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.unflatten::<3>(1, &[-1, 1]).dims(), [2, 3, 1]);
    /// ```
    ///
    /// # Panics
    /// When the product of the lengths is not that of the axis, or `D2` does not match.
    pub fn unflatten<const D2: usize>(self, axis: impl Into<Axis>, lengths: &[i64]) -> Tensor<B, D2, K>;

    /// Removes all axes of length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.squeeze.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0]], &device);
    /// assert_eq!(x.squeeze::<1>().dims(), [2]);
    /// ```
    ///
    /// # Panics
    /// When the number of axes of length 1 is not `D - D2`.
    pub fn squeeze<const D2: usize>(self) -> Tensor<B, D2, K>;

    /// Removes one axis of length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.squeeze.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0], [2.0]], &device);
    /// assert_eq!(x.squeeze_dim::<1>(-1).dims(), [2]);
    /// ```
    ///
    /// # Panics
    /// When the axis is not of length 1, or `D2` is not `D - 1`.
    pub fn squeeze_dim<const D2: usize>(self, axis: impl Into<Axis>) -> Tensor<B, D2, K>;

    /// Removes several axes of length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.squeeze.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 3>::from_floats([[[1.0, 2.0]]], &device);
    /// assert_eq!(x.squeeze_dims::<1>([0, 1]).dims(), [2]);
    /// ```
    ///
    /// # Panics
    /// When one of the axes is not of length 1, or `D2` does not match.
    pub fn squeeze_dims<const D2: usize>(self, axes: impl Into<AxisList>) -> Tensor<B, D2, K>;
}

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Inserts axes of length 1 in front.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.unsqueeze::<3>().dims(), [1, 1, 3]);
    /// ```
    ///
    /// # Panics
    /// When `D2` is less than `D`.
    #[track_caller]
    pub fn unsqueeze<const D2: usize>(self) -> Tensor<B, D2, K> {
        self.convert(|x| x.unsqueeze(D2))
    }

    /// Inserts an axis of length 1, which is axis `axis` of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.unsqueeze.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.clone().unsqueeze_dim::<2>(0).dims(), [1, 3]);
    /// assert_eq!(x.unsqueeze_dim::<2>(-1).dims(), [3, 1]);
    /// ```
    ///
    /// # Panics
    /// When the axis is out of range, or `D2` is not `D + 1`.
    #[doc(alias = "expand_dims")]
    #[doc(alias = "newaxis")]
    #[track_caller]
    pub fn unsqueeze_dim<const D2: usize>(self, axis: impl Into<Axis>) -> Tensor<B, D2, K> {
        self.ranked("unsqueeze_dim", |x| x.unsqueeze_dim(axis))
    }

    /// Inserts axes of length 1, which are these axes of the result.
    ///
    /// <https://numpy.org/doc/stable/reference/generated/numpy.expand_dims.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.unsqueeze_dims::<3>([0, -1]).dims(), [1, 3, 1]);
    /// ```
    ///
    /// # Panics
    /// When axes are out of range or repeated, or `D2` does not match.
    #[track_caller]
    pub fn unsqueeze_dims<const D2: usize>(self, axes: impl Into<AxisList>) -> Tensor<B, D2, K> {
        self.ranked("unsqueeze_dims", |x| x.unsqueeze_dims(axes))
    }

    /// Expands axes of length 1 to this shape, and adds axes in front; -1 keeps a length. A view, without a copy.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.Tensor.expand.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0], [2.0]], &device);
    /// assert_eq!(x.expand([-1, 2]).into_data().to_vec::<f32>(), [1.0, 1.0, 2.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// When a length is neither equal nor 1.
    #[doc(alias = "broadcast_to")]
    #[track_caller]
    pub fn expand<const D2: usize>(self, shape: impl ReshapeArgs<D2>) -> Tensor<B, D2, K> {
        let lengths = shape.into_lengths();
        self.convert(|x| x.expand_lengths(&lengths))
    }

    /// Broadcasts all tensors to one shape by NumPy's rule.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.broadcast_tensors.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0], [2.0]], &device);
    /// let y = Tensor::<Flex, 2>::from_floats([[1.0, 2.0, 3.0]], &device);
    /// let both = Tensor::broadcast_tensors(vec![x, y]);
    /// assert_eq!([both[0].dims(), both[1].dims()], [[2, 3], [2, 3]]);
    /// ```
    ///
    /// # Panics
    /// When the shapes do not broadcast.
    #[track_caller]
    pub fn broadcast_tensors(tensors: Vec<Self>) -> Vec<Self> {
        let tensors = ok(AnyTensor::broadcast_tensors(tensors.into_iter().map(Tensor::into_any).collect()));
        tensors.into_iter().map(Tensor::from_any).collect()
    }
}

forward! {
    impl[B: Backend, const D: usize, K: Kind] Tensor<B, D, K>;

    /// Returns the tensor with at least one axis: `D2` is the greater of `D` and 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.atleast_1d.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 0>::full([0; 0], 5.0, &device);
    /// assert_eq!(x.atleast_1d::<1>().dims(), [1]);
    /// ```
    ///
    /// # Panics
    /// When `D2` does not match.
    pub fn atleast_1d<const D2: usize>(self) -> Tensor<B, D2, K>;

    /// Returns the tensor with at least two axes, new ones in front: `D2` is the greater of `D` and 2.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.atleast_2d.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.atleast_2d::<2>().dims(), [1, 3]);
    /// ```
    ///
    /// # Panics
    /// When `D2` does not match.
    pub fn atleast_2d<const D2: usize>(self) -> Tensor<B, D2, K>;

    /// Returns the tensor with at least three axes: a vector becomes `[1, n, 1]`, a matrix `[rows, columns, 1]`. `D2`
    /// is the greater of `D` and 3.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.atleast_3d.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.atleast_3d::<3>().dims(), [1, 3, 1]);
    /// ```
    ///
    /// # Panics
    /// When `D2` does not match.
    pub fn atleast_3d<const D2: usize>(self) -> Tensor<B, D2, K>;
}

/// The shape argument of [`Tensor::reshape`] and [`Tensor::expand`]: an array of lengths or a [`Shape`].
pub trait ReshapeArgs<const D: usize> {
    /// Returns the lengths; -1 is inferred (reshape) or kept (expand), 0 is kept.
    ///
    /// # Panics
    /// When a length is above `i64::MAX`, or a shape has another rank.
    fn into_lengths(self) -> [i64; D];
}

macro_rules! reshape_args {
    ($($ty:ty),*) => {$(
        impl<const D: usize> ReshapeArgs<D> for [$ty; D] {
            #[track_caller]
            fn into_lengths(self) -> [i64; D] {
                let mut lengths = [0; D];
                for (to, length) in lengths.iter_mut().zip(self) {
                    *to = length_of(length);
                }
                lengths
            }
        }
    )*};
}

reshape_args!(usize, i64, i32);

impl<const D: usize> ReshapeArgs<D> for Shape {
    #[track_caller]
    fn into_lengths(self) -> [i64; D] {
        assert_eq!(self.rank(), D, "[reshape] the shape {self} does not have {D} axes");
        let mut lengths = [0; D];
        for (to, &length) in lengths.iter_mut().zip(self.iter()) {
            *to = length_of(length);
        }
        lengths
    }
}

/// Converts a length to `i64`.
///
/// # Panics
/// When it overflows `i64`: it would be read as -1 or another negative number.
#[track_caller]
fn length_of(length: impl TryInto<i64> + Copy + core::fmt::Display) -> i64 {
    length.try_into().unwrap_or_else(|_| {
        panic!("[shape] an axis cannot have {length} elements\n  hint: -1 of a signed type infers the length")
    })
}
