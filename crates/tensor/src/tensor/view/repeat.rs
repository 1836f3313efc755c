//! Repetition and padding.

use crate::tensor::forward::forward;
use crate::{Axis, Backend, Int, Kind, PadMode, Tensor};

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Repeats the tensor along each axis by the given counts.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.Tensor.repeat.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.repeat([1, 2]).into_data().to_vec::<f32>(), [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
    /// ```
    #[doc(alias = "tile")]
    #[track_caller]
    pub fn repeat(self, times: [usize; D]) -> Self {
        self.map(|x| x.repeat(&times))
    }
}

forward! {
    impl[B: Backend, const D: usize, K: Kind] Tensor<B, D, K>;

    /// Repeats the tensor along one axis.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.Tensor.repeat.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.repeat_dim(0, 2).into_data().to_vec::<f32>(), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    /// ```
    pub fn repeat_dim(self, axis: impl Into<Axis>, times: usize) -> Self;

    /// Repeats the tensor. The counts are of the last axes. If there are more counts than axes, axes are added in
    /// front: `D2` is the greater of both.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.tile.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.tile::<2>(&[2, 1]).dims(), [2, 3]);
    /// ```
    ///
    /// # Panics
    /// When `D2` does not match.
    pub fn tile<const D2: usize>(self, times: &[usize]) -> Tensor<B, D2, K>;

    /// Repeats each slice of an axis `times` times, copies adjacent.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.repeat_interleave.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.repeat_interleave(2, 0).into_data().to_vec::<f32>(), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
    /// ```
    #[doc(alias = "repeat")]
    pub fn repeat_interleave(self, times: usize, axis: impl Into<Axis>) -> Self;

    /// Repeats each slice of an axis as often as the integer at its index. Waits for the device, because the shape
    /// depends on the integers.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.repeat_interleave.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let n = Tensor::<Flex, 1, Int>::from_ints([2, 0, 1], &device);
    /// assert_eq!(x.repeat_interleave_each(n, 0).into_data().to_vec::<f32>(), [1.0, 1.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// When there are not as many integers as slices, or one is negative.
    pub fn repeat_interleave_each(self, times: Tensor<B, 1, Int> as any, axis: impl Into<Axis>) -> Self;
}

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Pads each axis by `(before, after)` elements. A scalar as the mode pads with that constant; see [`PadMode`] for
    /// other modes.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pad.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{PadMode, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.clone().pad([(1, 2)], 0).into_data().to_vec::<f32>(), [0.0, 1.0, 2.0, 3.0, 0.0, 0.0]);
    /// assert_eq!(x.clone().pad([(2, 1)], PadMode::Reflect).into_data().to_vec::<f32>(), [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
    /// assert_eq!(x.clone().pad([(1, 1)], PadMode::Edge).into_data().to_vec::<f32>(), [1.0, 1.0, 2.0, 3.0, 3.0]);
    /// assert_eq!(x.pad([(1, 1)], PadMode::Circular).into_data().to_vec::<f32>(), [3.0, 1.0, 2.0, 3.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// When an axis has too few elements for the mode.
    #[track_caller]
    pub fn pad(self, pads: [(usize, usize); D], mode: impl Into<PadMode>) -> Self {
        self.map(|x| x.pad(&pads, mode))
    }

    /// Like [`pad`](Tensor::pad), where a negative width removes elements. Axes are padded first, then cropped; with
    /// [`PadMode::Circular`] they are cropped first, as in PyTorch.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pad.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &Default::default());
    /// assert_eq!(x.pad_signed([(-1, 2)], 0).into_data().to_vec::<f32>(), [2.0, 3.0, 0.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// When an axis has fewer elements than are removed, or too few for the mode.
    #[track_caller]
    pub fn pad_signed(self, pads: [(isize, isize); D], mode: impl Into<PadMode>) -> Self {
        self.map(|x| x.pad_signed(&pads, mode))
    }
}
