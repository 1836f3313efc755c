//! By index and by mask.

use crate::{Backend, Bool, Int, Kind, Number, Numeric, Tensor};
use kiln_ir::UpdateMode;

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// The slices of an axis at these indices, `[count]`. An index out of range is an error of the result.
    #[track_caller]
    pub fn select(self, axis: usize, indices: Tensor<B, 1, Int>) -> Self {
        self.map(|any| any.take(axis, indices.into_any()))
    }

    /// Replaces an axis by the axes of the indices: with `[vocabulary, dim]` and indices `[batch, length]`, axis 0
    /// gives `[batch, length, dim]`.
    ///
    /// # Panics
    /// When `D3` is not `D - 1 + D2`.
    #[track_caller]
    pub fn take<const D2: usize, const D3: usize>(
        self,
        axis: usize,
        indices: Tensor<B, D2, Int>,
    ) -> Tensor<B, D3, K> {
        self.convert(|any| any.take(axis, indices.into_any()))
    }

    /// For each index, the element at that place of the axis; the other axes have the lengths of the tensor.
    #[track_caller]
    pub fn gather(self, axis: usize, indices: Tensor<B, D, Int>) -> Self {
        self.map(|any| any.gather(axis, indices.into_any()))
    }

    /// Elements of `values` where the mask holds, otherwise of this tensor; all three broadcast.
    #[track_caller]
    pub fn mask_where(self, mask: Tensor<B, D, Bool>, values: Self) -> Self {
        self.map(|any| mask.into_any().if_else(values.into_any(), any))
    }

    /// The number where the mask holds, otherwise this tensor; broadcasts.
    #[track_caller]
    pub fn mask_fill(self, mask: Tensor<B, D, Bool>, x: impl Number) -> Self {
        self.map(|any| mask.into_any().if_else_number(x, any))
    }
}

impl<B: Backend, const D: usize, K: Numeric> Tensor<B, D, K> {
    /// Adds each value at its index along the axis; the reverse of [`gather`](Tensor::gather).
    #[track_caller]
    pub fn scatter(self, axis: usize, indices: Tensor<B, D, Int>, values: Self) -> Self {
        self.map(|any| any.scatter_mode(axis, indices.into_any(), values.into_any(), UpdateMode::Add))
    }

    /// Adds each slice of the values at its index along the axis; the reverse of [`select`](Tensor::select).
    #[track_caller]
    pub fn select_assign(self, axis: usize, indices: Tensor<B, 1, Int>, values: Self) -> Self {
        self.map(|any| any.put(axis, indices.into_any(), values.into_any(), UpdateMode::Add))
    }
}
