//! Indexing by integers and masks. Indices are in `0..length`: negative indices do not count from the end. An index out
//! of range is an error of the result, reported when the result is read.

mod mask;
mod search;
mod write;

use crate::tensor::forward::forward;
pub use search::Unique;

use crate::{Axis, Backend, Int, Kind, Tensor};

forward! {
    impl[B: Backend, const D: usize, K: Kind] Tensor<B, D, K>;

    /// Selects the slices of an axis at the indices, `[count]`. An index that is negative or out of range is an error
    /// of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.index_select.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let i = Tensor::<Flex, 1, Int>::from_ints([2, 0], &device);
    /// assert_eq!(x.select(0, i).into_data().to_vec::<f32>(), [3.0, 1.0]);
    /// ```
    #[doc(alias = "index_select")]
    pub fn select(self, axis: impl Into<Axis>, indices: Tensor<B, 1, Int> as any) -> Self;

    /// Replaces an axis by the axes of the indices. For `[vocabulary, dim]`, axis 0 and indices `[batch, length]`, the
    /// result is `[batch, length, dim]`. An index that is negative or out of range is an error of the result.
    ///
    /// <https://numpy.org/doc/stable/reference/generated/numpy.take.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let i = Tensor::<Flex, 2, Int>::from_ints([[2, 0]], &device);
    /// assert_eq!(x.take::<2, 2>(0, i).dims(), [1, 2]);
    /// ```
    ///
    /// # Panics
    /// When `D3` is not `D - 1 + D2`.
    pub fn take<const D2: usize, const D3: usize>(
        self,
        axis: impl Into<Axis>,
        indices: Tensor<B, D2, Int> as any,
    ) -> Tensor<B, D3, K>;

    /// Gathers elements along an axis by index: `y[i, j] = x[i, index[i, j]]` for axis 1. In other axes the indices may
    /// be shorter than the tensor. An index that is negative or out of range is an error of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.gather.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// let i = Tensor::<Flex, 2, Int>::from_ints([[1], [0]], &device);
    /// assert_eq!(x.gather(1, i).into_data().to_vec::<f32>(), [2.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// When the indices are longer than the tensor in another axis.
    pub fn gather(self, axis: impl Into<Axis>, indices: Tensor<B, D, Int> as any) -> Self;

    /// Like [`gather`](Tensor::gather), but tensor and indices broadcast outside the axis. With the indices of
    /// [`argsort`](Tensor::argsort) it sorts. An index that is negative or out of range is an error of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.take_along_dim.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// let i = Tensor::<Flex, 2, Int>::from_ints([[1, 0]], &device);
    /// assert_eq!(x.take_along_dim(1, i).into_data().to_vec::<f32>(), [2.0, 1.0, 4.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// When tensor and indices do not broadcast outside the axis.
    #[doc(alias = "take_along_axis")]
    pub fn take_along_dim(self, axis: impl Into<Axis>, indices: Tensor<B, D, Int> as any) -> Self;

    /// Gathers elements, or slices, by coordinates: the last axis of `places`, `[.., depth]`, has an index for each of
    /// the first `depth` axes. The result is `[.., rest..]`. An index that is negative or out of range is an error of
    /// the result.
    ///
    /// <https://onnx.ai/onnx/operators/onnx__GatherND.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// let i = Tensor::<Flex, 2, Int>::from_ints([[1, 0], [0, 1]], &device);
    /// assert_eq!(x.gather_nd::<2, 1>(i).into_data().to_vec::<f32>(), [3.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// When there are more coordinates than axes, or `D3` is not `D2 - 1 + D - depth`.
    pub fn gather_nd<const D2: usize, const D3: usize>(
        self,
        places: Tensor<B, D2, Int> as any,
    ) -> Tensor<B, D3, K>;
}
