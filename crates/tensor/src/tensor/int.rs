//! Dtype conversions of integer tensors.

use crate::{Backend, DType, Float, Int, Tensor};

impl<B: Backend, const D: usize> Tensor<B, D, Int> {
    /// Converts to floats of the default dtype.
    #[track_caller]
    pub fn float(self) -> Tensor<B, D, Float> {
        self.convert(|any| {
            let dtype = any.stack().float_dtype();
            any.cast(dtype)
        })
    }

    /// Converts to another integer dtype. Narrower dtypes wrap.
    ///
    /// # Panics
    /// When the dtype is not an integer dtype.
    #[doc(alias = "astype")]
    #[doc(alias = "to")]
    #[track_caller]
    pub fn cast(self, dtype: DType) -> Self {
        self.map(|any| any.cast(dtype))
    }
}
