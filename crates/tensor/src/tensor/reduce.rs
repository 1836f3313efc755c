//! Many to one. Reductions along axes keep them with length 1.

mod difference;
mod extreme;
mod moments;
mod scan;

use crate::tensor::forward::forward;
use crate::{Axis, AxisList, Backend, Bool, Float, Int, Kind, Numeric, Tensor};

forward! {
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// The sum of all elements, of shape `[1]`; of none, 0. Integers wrap.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.sum.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.sum().into_data().to_vec::<f32>(), [10.0]);
    /// ```
    pub fn sum(self) -> Tensor<B, 1, K>;

    /// The sum along an axis, which is kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.sum.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.sum_dim(-1).into_data().to_vec::<f32>(), [3.0, 7.0]);
    /// ```
    #[doc(alias = "sum")]
    pub fn sum_dim(self, axis: impl Into<Axis>) -> Self;

    /// The sum along axes, which stay with length 1; along none, the tensor itself.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.sum.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.sum_dims([0, 1]).dims(), [1, 1]);
    /// ```
    pub fn sum_dims(self, axes: impl Into<AxisList>) -> Self;

    /// The sum along axes, which are removed.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.sum.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.sum_dims_squeeze::<1>([0]).into_data().to_vec::<f32>(), [4.0, 6.0]);
    /// ```
    ///
    /// # Panics
    /// When `D2` is not the number of other axes.
    pub fn sum_dims_squeeze<const D2: usize>(self, axes: impl Into<AxisList>) -> Tensor<B, D2, K>;

    /// The product of all elements, of shape `[1]`; of none, 1. Integers wrap. Its gradient does not divide, so
    /// zeros are no trouble.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.prod.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.prod().into_data().to_vec::<f32>(), [24.0]);
    /// ```
    pub fn prod(self) -> Tensor<B, 1, K>;

    /// The product along an axis, which is kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.prod.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.prod_dim(0).into_data().to_vec::<f32>(), [3.0, 8.0]);
    /// ```
    pub fn prod_dim(self, axis: impl Into<Axis>) -> Self;

    /// The product along axes, which stay with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.prod.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.prod_dims([0, 1]).into_data().to_vec::<f32>(), [24.0]);
    /// ```
    pub fn prod_dims(self, axes: impl Into<AxisList>) -> Self;

    /// The mean of all elements, of shape `[1]`; of none, NaN. Integers truncate (0 of none).
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.mean.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.mean().into_data().to_vec::<f32>(), [2.5]);
    /// ```
    pub fn mean(self) -> Tensor<B, 1, K>;

    /// The mean along an axis, which is kept with length 1. Integers truncate.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.mean.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.mean_dim(0).into_data().to_vec::<f32>(), [2.0, 3.0]);
    /// ```
    pub fn mean_dim(self, axis: impl Into<Axis>) -> Self;

    /// The mean along axes, which stay with length 1. Integers truncate.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.mean.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.mean_dims([0, 1]).into_data().to_vec::<f32>(), [2.5]);
    /// ```
    pub fn mean_dims(self, axes: impl Into<AxisList>) -> Self;
}

forward! {
    impl[B: Backend, const D: usize] Tensor<B, D, Float>;

    /// The sum of all elements that are not NaN, of shape `[1]`; of none, 0. The gradient of a NaN is 0.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nansum.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, f32::NAN, 2.0], &device);
    /// assert_eq!(x.nansum().into_data().to_vec::<f32>(), [3.0]);
    /// ```
    pub fn nansum(self) -> Tensor<B, 1>;

    /// The sum of the elements that are not NaN along an axis, which is kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nansum.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, f32::NAN], [2.0, 3.0]], &device);
    /// assert_eq!(x.nansum_dim(1).into_data().to_vec::<f32>(), [1.0, 5.0]);
    /// ```
    pub fn nansum_dim(self, axis: impl Into<Axis>) -> Self;

    /// The mean of all elements that are not NaN, of shape `[1]`; of none, NaN.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nanmean.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, f32::NAN, 2.0], &device);
    /// assert_eq!(x.nanmean().into_data().to_vec::<f32>(), [1.5]);
    /// ```
    pub fn nanmean(self) -> Tensor<B, 1>;

    /// The mean of the elements that are not NaN along an axis, which is kept with length 1; of none, NaN.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nanmean.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, f32::NAN], [2.0, 4.0]], &device);
    /// assert_eq!(x.nanmean_dim(1).into_data().to_vec::<f32>(), [1.0, 3.0]);
    /// ```
    pub fn nanmean_dim(self, axis: impl Into<Axis>) -> Self;

    /// `ln(Σ eˣ)` along an axis, which is kept with length 1. The greatest element is subtracted first, so that
    /// nothing overflows; of none, or of -inf only, -inf, with gradients of 0.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.logsumexp.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1000.0, 1000.0]], &device);
    /// assert_eq!(x.logsumexp(1).into_data().to_vec::<f32>(), [1000.0 + 2f32.ln()]);
    /// ```
    pub fn logsumexp(self, axis: impl Into<Axis>) -> Self;

    /// `ln(Σ eˣ)` along axes, which stay with length 1. See [`logsumexp`](Tensor::logsumexp).
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.logsumexp.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::zeros([2, 3], &device);
    /// assert_eq!(x.logsumexp_dims([0, 1]).into_data().to_vec::<f32>(), [6f32.ln()]);
    /// ```
    pub fn logsumexp_dims(self, axes: impl Into<AxisList>) -> Self;
}

forward! {
    impl[B: Backend, const D: usize, K: Kind] Tensor<B, D, K>;

    /// Whether all elements are true, or not zero, of shape `[1]`; of none, true. NaN is not zero.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.all.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Bool, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1, Bool>::from_bools([true, false], &device);
    /// assert_eq!(x.all().into_data().to_vec::<bool>(), [false]);
    /// ```
    pub fn all(self) -> Tensor<B, 1, Bool>;

    /// Whether all elements along an axis are true, or not zero; the axis stays with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.all.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[1, 2], [0, 3]], &device);
    /// assert_eq!(x.all_dim(1).into_data().to_vec::<bool>(), [true, false]);
    /// ```
    pub fn all_dim(self, axis: impl Into<Axis>) -> Tensor<B, D, Bool>;

    /// Whether all elements along axes are true, or not zero; the axes stay with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.all.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[1, 2], [0, 3]], &device);
    /// assert_eq!(x.all_dims([0, 1]).into_data().to_vec::<bool>(), [false]);
    /// ```
    pub fn all_dims(self, axes: impl Into<AxisList>) -> Tensor<B, D, Bool>;

    /// Whether any element is true, or not zero, of shape `[1]`; of none, false. NaN is not zero.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.any.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Bool, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1, Bool>::from_bools([true, false], &device);
    /// assert_eq!(x.any().into_data().to_vec::<bool>(), [true]);
    /// ```
    pub fn any(self) -> Tensor<B, 1, Bool>;

    /// Whether any element along an axis is true, or not zero; the axis stays with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.any.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 2], [0, 0]], &device);
    /// assert_eq!(x.any_dim(1).into_data().to_vec::<bool>(), [true, false]);
    /// ```
    pub fn any_dim(self, axis: impl Into<Axis>) -> Tensor<B, D, Bool>;

    /// Whether any element along axes is true, or not zero; the axes stay with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.any.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[0, 2], [0, 0]], &device);
    /// assert_eq!(x.any_dims([0, 1]).into_data().to_vec::<bool>(), [true]);
    /// ```
    pub fn any_dims(self, axes: impl Into<AxisList>) -> Tensor<B, D, Bool>;

    /// The number of elements that are true, or not zero, of shape `[1]`. NaN is not zero.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.count_nonzero.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[0.0, 2.0], [3.0, 0.0]], &device);
    /// assert_eq!(x.count_nonzero().into_data().to_vec::<i32>(), [2]);
    /// ```
    pub fn count_nonzero(self) -> Tensor<B, 1, Int>;

    /// The number of elements along an axis that are true, or not zero; the axis is kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.count_nonzero.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[0.0, 2.0], [3.0, 4.0]], &device);
    /// assert_eq!(x.count_nonzero_dim(1).into_data().to_vec::<i32>(), [1, 2]);
    /// ```
    pub fn count_nonzero_dim(self, axis: impl Into<Axis>) -> Tensor<B, D, Int>;
}
