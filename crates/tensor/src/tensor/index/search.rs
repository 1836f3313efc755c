//! Binary search in sorted tensors, membership and distinct elements.

use super::super::forward::Typed;
use crate::tensor::forward::forward;
use crate::{Axis, Backend, Bool, Int, Numeric, Result, Tensor, UniqueAny};

forward! {
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// Finds the insertion indices of values in this tensor, which is sorted in ascending order along its last axis:
    /// before equal elements, or after them with `right`. NaN is the greatest. The axes before the last are equal:
    /// `[.., n]` and `[.., m]` return `[.., m]`. For one sorted vector and values of any shape see
    /// [`bucketize`](Tensor::bucketize).
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.searchsorted.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 3.0, 5.0], &device);
    /// let v = Tensor::<Flex, 1>::from_floats([3.0, 6.0], &device);
    /// assert_eq!(x.clone().searchsorted(v.clone(), false).into_data().to_vec::<i32>(), [1, 3]);
    /// assert_eq!(x.searchsorted(v, true).into_data().to_vec::<i32>(), [2, 3]);
    /// ```
    ///
    /// # Panics
    /// When the axes before the last differ.
    pub fn searchsorted(self, values: Self as any, right: bool) -> Tensor<B, D, Int>;

    /// Returns the bucket of each element between boundaries in ascending order. Bucket `i` holds
    /// `boundaries[i - 1] < x <= boundaries[i]`, or with `right` `boundaries[i - 1] <= x < boundaries[i]`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.bucketize.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[3.0, 6.0]], &device);
    /// let b = Tensor::<Flex, 1>::from_floats([1.0, 3.0, 5.0], &device);
    /// assert_eq!(x.bucketize(b, false).into_data().to_vec::<i32>(), [1, 3]);
    /// ```
    pub fn bucketize(self, boundaries: Tensor<B, 1, K> as any, right: bool) -> Tensor<B, D, Int>;

    /// Returns whether each element is in `others`; false for NaN.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.isin.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &device);
    /// let y = Tensor::<Flex, 1, Int>::from_ints([3, 1], &device);
    /// assert_eq!(x.isin(y).into_data().to_vec::<bool>(), [true, false, true]);
    /// ```
    pub fn isin<const D2: usize>(self, others: Tensor<B, D2, K> as any) -> Tensor<B, D, Bool>;

    /// Returns the distinct elements in ascending order, `[count]`. Each NaN is distinct. Waits for the device, because
    /// the shape depends on the data. The gradient flows to the first of equal elements.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.unique.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1, Int>::from_ints([3, 1, 3], &device);
    /// assert_eq!(x.unique().into_data().to_vec::<i32>(), [1, 3]);
    /// ```
    ///
    /// # Panics
    /// When the computation of the elements failed.
    pub fn unique(self) -> Tensor<B, 1, K>;

    /// Returns the distinct elements in ascending order, the index of each element among them, and their counts. Waits
    /// for the device, because the shape depends on the data.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.unique.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1, Int>::from_ints([3, 1, 3], &device);
    /// let unique = x.unique_with_counts();
    /// assert_eq!(unique.inverse.into_data().to_vec::<i32>(), [1, 0, 1]);
    /// assert_eq!(unique.counts.into_data().to_vec::<i32>(), [1, 2]);
    /// ```
    ///
    /// # Panics
    /// When the computation of the elements failed.
    pub fn unique_with_counts(self) -> Unique<B, 1, D, K>;

    /// Returns the distinct slices along an axis in lexicographic order, the index of each slice among them, and their
    /// counts. Waits for the device, because the shape depends on the data.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.unique.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[3, 1], [0, 2], [3, 1]], &device);
    /// let unique = x.unique_dim(0);
    /// assert_eq!(unique.values.into_data().to_vec::<i32>(), [0, 2, 3, 1]);
    /// assert_eq!(unique.inverse.into_data().to_vec::<i32>(), [1, 0, 1]);
    /// ```
    ///
    /// # Panics
    /// When the axis is out of range, or the computation of the elements failed.
    pub fn unique_dim(self, axis: impl Into<Axis>) -> Unique<B, D, 1, K>;

    /// Removes consecutive duplicates among the elements in row-major order. Returns the remaining elements, the index
    /// of each element among them, and the length of each run. Waits for the device, because the shape depends on the
    /// data.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.unique_consecutive.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1, Int>::from_ints([3, 3, 1, 3], &device);
    /// let unique = x.unique_consecutive();
    /// assert_eq!(unique.values.into_data().to_vec::<i32>(), [3, 1, 3]);
    /// assert_eq!(unique.counts.into_data().to_vec::<i32>(), [2, 1, 1]);
    /// ```
    ///
    /// # Panics
    /// When the computation of the elements failed.
    pub fn unique_consecutive(self) -> Unique<B, 1, D, K>;

    /// Removes consecutive duplicate slices along an axis. Returns the remaining slices, the index of each slice among
    /// them, and the length of each run. Waits for the device, because the shape depends on the data.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.unique_consecutive.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2, Int>::from_ints([[3, 1], [3, 1], [0, 2]], &device);
    /// assert_eq!(x.unique_consecutive_dim(0).counts.into_data().to_vec::<i32>(), [2, 1]);
    /// ```
    ///
    /// # Panics
    /// When the axis is out of range, or the computation of the elements failed.
    pub fn unique_consecutive_dim(self, axis: impl Into<Axis>) -> Unique<B, D, 1, K>;
}

/// The forms for browsers, where no thread may wait for a GPU.
impl<B: Backend, const D: usize, K: Numeric> Tensor<B, D, K> {
    /// Like [`unique`](Tensor::unique), without blocking the thread.
    ///
    /// # Errors
    /// When the computation of the elements failed.
    pub async fn unique_async(self) -> Result<Tensor<B, 1, K>> {
        Ok(Tensor::from_any(self.into_any().unique_async().await?))
    }

    /// Like [`unique_with_counts`](Tensor::unique_with_counts), without blocking the thread.
    ///
    /// # Errors
    /// When the computation of the elements failed.
    pub async fn unique_with_counts_async(self) -> Result<Unique<B, 1, D, K>> {
        Ok(Typed::typed("unique_with_counts", self.into_any().unique_with_counts_async().await?))
    }

    /// Like [`unique_dim`](Tensor::unique_dim), without blocking the thread.
    ///
    /// # Errors
    /// When the axis is out of range, or the computation of the elements failed.
    pub async fn unique_dim_async(self, axis: impl Into<Axis>) -> Result<Unique<B, D, 1, K>> {
        Ok(Typed::typed("unique_dim", self.into_any().unique_dim_async(axis).await?))
    }

    /// Like [`unique_consecutive`](Tensor::unique_consecutive), without blocking the thread.
    ///
    /// # Errors
    /// When the computation of the elements failed.
    pub async fn unique_consecutive_async(self) -> Result<Unique<B, 1, D, K>> {
        Ok(Typed::typed("unique_consecutive", self.into_any().unique_consecutive_async().await?))
    }

    /// Like [`unique_consecutive_dim`](Tensor::unique_consecutive_dim), without blocking the thread.
    ///
    /// # Errors
    /// When the axis is out of range, or the computation of the elements failed.
    pub async fn unique_consecutive_dim_async(self, axis: impl Into<Axis>) -> Result<Unique<B, D, 1, K>> {
        Ok(Typed::typed("unique_consecutive_dim", self.into_any().unique_consecutive_dim_async(axis).await?))
    }
}

/// Distinct elements or slices: the result of [`Tensor::unique_with_counts`] and related methods.
#[derive(Clone, Debug)]
pub struct Unique<B: Backend, const D: usize, const D2: usize, K: Numeric> {
    /// The distinct elements, `[count]`, or slices.
    pub values: Tensor<B, D, K>,
    /// For each element (or slice), the index of its value.
    pub inverse: Tensor<B, D2, Int>,
    /// The number of occurrences of each value, `[count]`.
    pub counts: Tensor<B, 1, Int>,
}

impl<B: Backend, const D: usize, const D2: usize, K: Numeric> Typed for Unique<B, D, D2, K> {
    type Any = UniqueAny;

    #[track_caller]
    fn typed(_op: &str, any: UniqueAny) -> Self {
        let UniqueAny { values, inverse, counts } = any;
        Unique {
            values: Tensor::from_any(values),
            inverse: Tensor::from_any(inverse),
            counts: Tensor::from_any(counts),
        }
    }
}
