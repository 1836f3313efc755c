//! Scattered writes: elements written by index or mask.

use crate::tensor::forward::forward;
use crate::{Axis, Backend, Bool, Int, Kind, Number, Numeric, ScatterReduction, Tensor, UpdateMode};

forward! {
    impl[B: Backend, const D: usize, K: Kind] Tensor<B, D, K>;

    /// Combines each slice of the values with the slice of the axis at its index; the reverse of
    /// [`take`](Tensor::take). With [`UpdateMode::Set`] and duplicate indices, the last value is stored. An index that
    /// is negative or out of range is an error of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_copy_.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor, UpdateMode};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let i = Tensor::<Flex, 1, Int>::from_ints([2, 0], &device);
    /// let y = Tensor::<Flex, 1>::from_floats([8.0, 9.0], &device);
    /// assert_eq!(x.put(0, i, y, UpdateMode::Set).into_data().to_vec::<f32>(), [9.0, 2.0, 8.0]);
    /// ```
    ///
    /// # Panics
    /// When the values do not have the shape that `take` would return.
    #[doc(alias = "index_copy")]
    #[doc(alias = "index_put")]
    pub fn put<const D2: usize, const D3: usize>(
        self,
        axis: impl Into<Axis>,
        indices: Tensor<B, D2, Int> as any,
        values: Tensor<B, D3, K> as any,
        mode: UpdateMode,
    ) -> Self;

    /// Fills the slices of an axis at the indices with a scalar. An index that is negative or out of range is an error
    /// of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_fill_.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let i = Tensor::<Flex, 1, Int>::from_ints([0, 2], &device);
    /// assert_eq!(x.index_fill(0, i, 9).into_data().to_vec::<f32>(), [9.0, 2.0, 9.0]);
    /// ```
    pub fn index_fill(self, axis: impl Into<Axis>, indices: Tensor<B, 1, Int> as any, x: impl Number) -> Self;

    /// Combines each value with the element at its index, the reverse of [`gather`](Tensor::gather):
    /// `x[i, index[i, j]]` with `values[i, j]` for axis 1. With [`UpdateMode::Set`] and duplicate indices, the last
    /// value is stored. Indices may be shorter than the tensor in other axes, and than the values in all axes. An index
    /// that is negative or out of range is an error of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.scatter.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor, UpdateMode};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let i = Tensor::<Flex, 1, Int>::from_ints([1, 1], &device);
    /// let y = Tensor::<Flex, 1>::from_floats([5.0, 6.0], &device);
    /// assert_eq!(x.scatter_mode(0, i, y, UpdateMode::Max).into_data().to_vec::<f32>(), [1.0, 6.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// When the indices are longer than tensor or values.
    pub fn scatter_mode(
        self,
        axis: impl Into<Axis>,
        indices: Tensor<B, D, Int> as any,
        values: Self as any,
        mode: UpdateMode,
    ) -> Self;

    /// Replaces the elements where the mask is true by the first elements of the source, in row-major order. The mask
    /// broadcasts. A source with too few elements is an error of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.Tensor.masked_scatter_.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Bool, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let m = Tensor::<Flex, 1, Bool>::from_bools([true, false, true], &device);
    /// let y = Tensor::<Flex, 1>::from_floats([8.0, 9.0], &device);
    /// assert_eq!(x.masked_scatter(m, y).into_data().to_vec::<f32>(), [8.0, 2.0, 9.0]);
    /// ```
    ///
    /// # Panics
    /// When the mask does not broadcast to the tensor.
    pub fn masked_scatter(self, mask: Tensor<B, D, Bool> as any, source: Self as any) -> Self;

    /// Combines values, or slices, with the elements at the given coordinates; the reverse of
    /// [`gather_nd`](Tensor::gather_nd). An index that is negative or out of range is an error of the result.
    ///
    /// <https://onnx.ai/onnx/operators/onnx__ScatterND.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor, UpdateMode};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// let i = Tensor::<Flex, 2, Int>::from_ints([[1, 0], [0, 1]], &device);
    /// let y = Tensor::<Flex, 1>::from_floats([8.0, 9.0], &device);
    /// assert_eq!(x.scatter_nd(i, y, UpdateMode::Set).into_data().to_vec::<f32>(), [1.0, 9.0, 8.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When the values do not have the shape that `gather_nd` would return.
    pub fn scatter_nd<const D2: usize, const D3: usize>(
        self,
        places: Tensor<B, D2, Int> as any,
        values: Tensor<B, D3, K> as any,
        mode: UpdateMode,
    ) -> Self;
}

forward! {
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// Adds each value at its index along the axis; the reverse of [`gather`](Tensor::gather).
    /// [`scatter_mode`](Tensor::scatter_mode) has other update modes. An index that is negative or out of range is an
    /// error of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.scatter_add.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let i = Tensor::<Flex, 1, Int>::from_ints([1, 1], &device);
    /// let y = Tensor::<Flex, 1>::from_floats([5.0, 6.0], &device);
    /// assert_eq!(x.scatter(0, i, y).into_data().to_vec::<f32>(), [1.0, 13.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// When the indices are longer than tensor or values.
    #[doc(alias = "scatter_add")]
    pub fn scatter(self, axis: impl Into<Axis>, indices: Tensor<B, D, Int> as any, values: Self as any) -> Self;

    /// Reduces the values with the same index, and, with `include_self`, the previous element. Elements that no index
    /// selects do not change. Equal minima or maxima share the gradient. Without `include_self`, PyTorch also assigns a
    /// share to the tensor's own element if it is equal, and loses that share. An index that is negative or out of
    /// range is an error of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.scatter_reduce.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, ScatterReduction, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let i = Tensor::<Flex, 1, Int>::from_ints([1, 1], &device);
    /// let y = Tensor::<Flex, 1>::from_floats([5.0, 6.0], &device);
    /// assert_eq!(x.scatter_reduce(0, i, y, ScatterReduction::Mean, false).into_data().to_vec::<f32>(), [1.0, 5.5, 3.0]);
    /// ```
    ///
    /// # Panics
    /// When the indices are longer than tensor or values.
    pub fn scatter_reduce(
        self,
        axis: impl Into<Axis>,
        indices: Tensor<B, D, Int> as any,
        values: Self as any,
        reduction: ScatterReduction,
        include_self: bool,
    ) -> Self;

    /// Reduces the slices of the source into the slices of an axis that the indices, `[count]`, select. With
    /// `include_self` the reduction includes the previous slice. Unselected slices do not change. The source has one
    /// slice for each index. An index that is negative or out of range is an error of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_reduce_.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, ScatterReduction, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let i = Tensor::<Flex, 1, Int>::from_ints([1, 1], &device);
    /// let y = Tensor::<Flex, 1>::from_floats([5.0, 6.0], &device);
    /// assert_eq!(x.index_reduce(0, i, y, ScatterReduction::Prod, true).into_data().to_vec::<f32>(), [1.0, 60.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// When the source has another shape.
    pub fn index_reduce(
        self,
        axis: impl Into<Axis>,
        indices: Tensor<B, 1, Int> as any,
        source: Self as any,
        reduction: ScatterReduction,
        include_self: bool,
    ) -> Self;

    /// Adds each slice of the values at its index along the axis; the reverse of [`select`](Tensor::select). An index
    /// that is negative or out of range is an error of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.index_add.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let i = Tensor::<Flex, 1, Int>::from_ints([0, 0], &device);
    /// let y = Tensor::<Flex, 1>::from_floats([5.0, 6.0], &device);
    /// assert_eq!(x.select_assign(0, i, y).into_data().to_vec::<f32>(), [12.0, 2.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// When the values do not have the shape that `select` would return.
    #[doc(alias = "index_add")]
    pub fn select_assign(
        self,
        axis: impl Into<Axis>,
        indices: Tensor<B, 1, Int> as any,
        values: Self as any,
    ) -> Self;
}
