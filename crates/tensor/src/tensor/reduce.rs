//! Reductions. Reductions along axes keep them with length 1 (PyTorch's `keepdim=True`).

mod difference;
mod extreme;
mod moments;
mod scan;

use crate::tensor::forward::forward;
use crate::{Axis, AxisList, Backend, Bool, Float, Int, Kind, Numeric, Tensor};

forward! {
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// Computes the sum of all elements, of shape `[1]`; 0 for an empty tensor. Integers wrap.
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

    /// Computes the sum along an axis, which is kept with length 1.
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

    /// Computes the sum along axes, which are kept with length 1; without axes, returns the tensor unchanged.
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

    /// Computes the sum along axes, which are removed.
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
    /// When `D2` is not the number of remaining axes.
    pub fn sum_dims_squeeze<const D2: usize>(self, axes: impl Into<AxisList>) -> Tensor<B, D2, K>;

    /// Computes the product of all elements, of shape `[1]`; 1 for an empty tensor. Integers wrap. The gradient does
    /// not divide, so it is correct for zeros too.
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

    /// Computes the product along an axis, which is kept with length 1.
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

    /// Computes the product along axes, which are kept with length 1.
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

    /// Computes the mean of all elements, of shape `[1]`; NaN for an empty tensor. Integers truncate, and return 0 for
    /// an empty tensor.
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

    /// Computes the mean along an axis, which is kept with length 1. Integers truncate.
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

    /// Computes the mean along axes, which are kept with length 1. Integers truncate.
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

    /// Computes the sum of all elements, ignoring NaN, of shape `[1]`; 0 if there are none. The gradient of a NaN is 0.
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

    /// Computes the sum along an axis, ignoring NaN; the axis is kept with length 1.
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

    /// Computes the mean of all elements, ignoring NaN, of shape `[1]`; NaN if there are none.
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

    /// Computes the mean along an axis, ignoring NaN; the axis is kept with length 1. NaN if there are no other
    /// elements.
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

    /// Computes `ln(Σ eˣ)` along an axis, which is kept with length 1. The maximum is subtracted first to prevent
    /// overflow. For an empty axis, or elements that are all -inf, the result is -inf and the gradients are 0.
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

    /// Computes `ln(Σ eˣ)` along axes, which are kept with length 1. See [`logsumexp`](Tensor::logsumexp).
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

    /// Returns whether all elements are true or nonzero, of shape `[1]`; true for an empty tensor. NaN is nonzero.
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

    /// Returns whether all elements along an axis are true or nonzero; the axis is kept with length 1.
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

    /// Returns whether all elements along axes are true or nonzero; the axes are kept with length 1.
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

    /// Returns whether any element is true or nonzero, of shape `[1]`; false for an empty tensor. NaN is nonzero.
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

    /// Returns whether any element along an axis is true or nonzero; the axis is kept with length 1.
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

    /// Returns whether any element along axes is true or nonzero; the axes are kept with length 1.
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

    /// Counts the elements that are true or nonzero, of shape `[1]`. NaN is nonzero.
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

    /// Counts the elements along an axis that are true or nonzero; the axis is kept with length 1.
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
