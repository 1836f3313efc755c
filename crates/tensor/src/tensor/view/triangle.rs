//! Triangular matrices and diagonals.

use super::super::ok;
use crate::tensor::forward::forward;
use crate::{AnyTensor, Axis, Backend, Bool, Kind, Shape, Tensor};

forward! {
    impl[B: Backend, const D: usize, K: Kind] Tensor<B, D, K>;

    /// Returns the lower triangle: zeros above the diagonal `column = row + offset` of the last two axes,
    /// `[.., rows, columns]`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.tril.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.tril(0).into_data().to_vec::<f32>(), [1.0, 0.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// With fewer than two axes.
    pub fn tril(self, offset: i64) -> Self;

    /// Returns the upper triangle: zeros below the diagonal `column = row + offset` of the last two axes,
    /// `[.., rows, columns]`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.triu.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.triu(0).into_data().to_vec::<f32>(), [1.0, 2.0, 0.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// With fewer than two axes.
    pub fn triu(self, offset: i64) -> Self;

    /// Returns the diagonal of the matrices of axes `a` (rows) and `b` (columns). Both are removed; the diagonal is the
    /// last axis of the result. An offset above 0 selects a diagonal above the main one.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.diagonal.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.clone().diagonal::<1>(0, 0, 1).into_data().to_vec::<i32>(), [0, 4]);
    /// assert_eq!(x.diagonal::<1>(1, 0, 1).into_data().to_vec::<i32>(), [1, 5]);
    /// ```
    ///
    /// # Panics
    /// When `a` and `b` are the same axis, or `D2` is not `D - 1`.
    pub fn diagonal<const D2: usize>(
        self,
        offset: i64,
        a: impl Into<Axis>,
        b: impl Into<Axis>,
    ) -> Tensor<B, D2, K>;

    /// Embeds the last axis as a diagonal of square matrices, whose rows and columns are axes `a` and `b` of the
    /// result; zeros elsewhere.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.diag_embed.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
    /// assert_eq!(x.diag_embed::<2>(0, -2, -1).into_data().to_vec::<f32>(), [1.0, 0.0, 0.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// When `D2` is not `D + 1`.
    pub fn diag_embed<const D2: usize>(
        self,
        offset: i64,
        a: impl Into<Axis>,
        b: impl Into<Axis>,
    ) -> Tensor<B, D2, K>;

    /// Returns a matrix with the vector as a diagonal, or a diagonal of a matrix as a vector.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.diag.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.diag::<1>(0).into_data().to_vec::<f32>(), [1.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// With more than two axes, or when `D2` does not match.
    pub fn diag<const D2: usize>(self, offset: i64) -> Tensor<B, D2, K>;
}

impl<B: Backend, const D: usize> Tensor<B, D, Bool> {
    /// Creates a mask that is true on and below the diagonal `column = row + offset` of the last two axes,
    /// `[.., rows, columns]`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Bool, Tensor};
    ///
    /// let device = Default::default();
    /// let mask = Tensor::<Flex, 2, Bool>::tril_mask([2, 3], 0, &device);
    /// assert_eq!(mask.into_data().to_vec::<u8>(), [1, 0, 0, 1, 1, 0]);
    /// ```
    ///
    /// # Panics
    /// With fewer than two axes.
    #[track_caller]
    pub fn tril_mask(shape: impl Into<Shape>, offset: i64, device: &B::Device) -> Self {
        Tensor::from_any(ok(AnyTensor::tril_mask(shape, offset, &B::stack(device))))
    }

    /// Creates a mask that is true on and above the diagonal `column = row + offset` of the last two axes,
    /// `[.., rows, columns]`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Bool, Tensor};
    ///
    /// let device = Default::default();
    /// let mask = Tensor::<Flex, 2, Bool>::triu_mask([2, 3], 0, &device);
    /// assert_eq!(mask.into_data().to_vec::<u8>(), [1, 1, 1, 0, 1, 1]);
    /// ```
    ///
    /// # Panics
    /// With fewer than two axes.
    #[track_caller]
    pub fn triu_mask(shape: impl Into<Shape>, offset: i64, device: &B::Device) -> Self {
        Tensor::from_any(ok(AnyTensor::triu_mask(shape, offset, &B::stack(device))))
    }

    /// Creates a mask that is true on the diagonal `column = row + offset` of the last two axes, `[.., rows, columns]`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Bool, Tensor};
    ///
    /// let device = Default::default();
    /// let mask = Tensor::<Flex, 2, Bool>::diag_mask([2, 3], 1, &device);
    /// assert_eq!(mask.into_data().to_vec::<u8>(), [0, 1, 0, 0, 0, 1]);
    /// ```
    ///
    /// # Panics
    /// With fewer than two axes.
    #[track_caller]
    pub fn diag_mask(shape: impl Into<Shape>, offset: i64, device: &B::Device) -> Self {
        Tensor::from_any(ok(AnyTensor::diag_mask(shape, offset, &B::stack(device))))
    }
}
