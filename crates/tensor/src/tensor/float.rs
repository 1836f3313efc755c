//! Floats: other dtypes.

use crate::{Backend, DType, Float, Int, Tensor};

impl<B: Backend, const D: usize> Tensor<B, D, Float> {
    /// Another float dtype.
    ///
    /// # Panics
    /// When the dtype is no float.
    #[doc(alias = "astype")]
    #[doc(alias = "to")]
    #[track_caller]
    pub fn cast(self, dtype: DType) -> Self {
        self.map(|any| any.cast(dtype))
    }

    /// The whole part, as integers: truncates and saturates, NaN gives 0.
    #[track_caller]
    pub fn int(self) -> Tensor<B, D, Int> {
        self.convert(|any| {
            let dtype = any.stack().int_dtype();
            any.cast(dtype)
        })
    }
}
