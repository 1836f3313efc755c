//! Transposition, permutation, flips and rolls.

use crate::tensor::forward::forward;
use crate::{Axis, AxisList, Backend, Kind, Tensor};

forward! {
    impl[B: Backend, const D: usize, K: Kind] Tensor<B, D, K>;

    /// Transposes the last two axes. A view.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.Tensor.mT.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.transpose().into_data().to_vec::<i32>(), [0, 3, 1, 4, 2, 5]);
    /// ```
    ///
    /// # Panics
    /// With fewer than two axes.
    #[doc(alias = "mT")]
    #[doc(alias = "matrix_transpose")]
    pub fn transpose(self) -> Self;

    /// Alias of [`transpose`](Tensor::transpose).
    ///
    /// # Panics
    /// With fewer than two axes.
    pub fn t(self) -> Self = transpose;

    /// Swaps two axes. A view.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.swapaxes.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.swap_dims(0, -1).dims(), [3, 2]);
    /// ```
    #[doc(alias = "swapaxes")]
    #[doc(alias = "transpose")]
    pub fn swap_dims(self, a: impl Into<Axis>, b: impl Into<Axis>) -> Self;

    /// Permutes the axes: axis `i` of the result is axis `axes[i]`. A view.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.permute.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.permute([1, 0]).dims(), [3, 2]);
    /// ```
    ///
    /// # Panics
    /// When an axis is missing or repeated.
    #[doc(alias = "transpose")]
    pub fn permute(self, axes: impl Into<AxisList>) -> Self;

    /// Moves axes to other positions; the others keep their order. A view.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.movedim.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 3>::zeros([2, 3, 4], &device);
    /// assert_eq!(x.clone().movedim(0, -1).dims(), [3, 4, 2]);
    /// assert_eq!(x.movedim([0, 1], [2, 0]).dims(), [3, 4, 2]);
    /// ```
    ///
    /// # Panics
    /// When an axis is out of range or repeated, or the lists differ in length.
    #[doc(alias = "moveaxis")]
    pub fn movedim(self, from: impl Into<AxisList>, to: impl Into<AxisList>) -> Self;

    /// Reverses the order of the elements along these axes.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.flip.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.flip([1]).into_data().to_vec::<i32>(), [2, 1, 0, 5, 4, 3]);
    /// ```
    pub fn flip(self, axes: impl Into<AxisList>) -> Self;

    /// Reverses the order of the columns, axis 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fliplr.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.fliplr().into_data().to_vec::<i32>(), [2, 1, 0, 5, 4, 3]);
    /// ```
    ///
    /// # Panics
    /// With fewer than two axes.
    pub fn fliplr(self) -> Self;

    /// Reverses the order of the rows, axis 0.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.flipud.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.flipud().into_data().to_vec::<i32>(), [3, 4, 5, 0, 1, 2]);
    /// ```
    pub fn flipud(self) -> Self;

    /// Rotates `times` times by 90 degrees in the plane of two axes, from the first towards the second.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.rot90.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.rot90(1, [0, 1]).into_data().to_vec::<f32>(), [2.0, 4.0, 1.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// When there are not two distinct axes.
    pub fn rot90(self, times: i64, axes: impl Into<AxisList>) -> Self;

    /// Shifts elements cyclically along axes, by one shift each.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.roll.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 1, 2], [3, 4, 5]], &device);
    /// assert_eq!(x.roll(&[1, -1], [0, 1]).into_data().to_vec::<i32>(), [4, 5, 3, 1, 2, 0]);
    /// ```
    ///
    /// # Panics
    /// When there are not as many shifts as axes.
    pub fn roll(self, shifts: &[i64], axes: impl Into<AxisList>) -> Self;

    /// Shifts elements cyclically along an axis.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.roll.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.roll_dim(1, 0).into_data().to_vec::<f32>(), [3.0, 1.0, 2.0]);
    /// ```
    #[doc(alias = "roll")]
    pub fn roll_dim(self, shift: i64, axis: impl Into<Axis>) -> Self;
}
