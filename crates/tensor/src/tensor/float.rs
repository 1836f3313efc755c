//! Dtype conversions of float tensors.

use crate::{Backend, DType, Float, Int, Tensor};

impl<B: Backend, const D: usize> Tensor<B, D, Float> {
    /// Converts to another float dtype.
    ///
    /// # Panics
    /// When the dtype is not a float dtype.
    #[doc(alias = "astype")]
    #[doc(alias = "to")]
    #[track_caller]
    pub fn cast(self, dtype: DType) -> Self {
        self.map(|any| any.cast(dtype))
    }

    /// Converts to integers of the default dtype: truncates towards zero and saturates; NaN becomes 0.
    #[track_caller]
    pub fn int(self) -> Tensor<B, D, Int> {
        self.convert(|any| {
            let dtype = any.stack().int_dtype();
            any.cast(dtype)
        })
    }
}
