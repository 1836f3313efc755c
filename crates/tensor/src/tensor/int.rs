//! Integers.

use crate::Raw;
use crate::{Backend, DType, Float, Int, Tensor};
use kiln_ir::{Comparison, TensorType};

impl<B: Backend, const D: usize> Tensor<B, D, Int> {
    /// The same numbers as floats of the default dtype.
    #[track_caller]
    pub fn float(self) -> Tensor<B, D, Float> {
        self.convert(|raw| {
            let dtype = raw.stack().float_dtype();
            raw.cast(dtype)
        })
    }

    /// Another integer dtype. Narrower ones wrap.
    ///
    /// # Panics
    /// When the dtype is no integer.
    #[track_caller]
    pub fn cast(self, dtype: DType) -> Self {
        self.map(|raw| raw.cast(dtype))
    }
}

impl<B: Backend> Tensor<B, 1, Int> {
    /// One row per number, with 1 at its place and 0 elsewhere, `[count, classes]`. A number out of `0..classes`
    /// gives a row of zeros.
    #[track_caller]
    pub fn one_hot(self, classes: usize) -> Tensor<B, 2, Int> {
        self.convert(|raw| {
            let (count, dtype) = (raw.shape()[0], raw.dtype());
            let places = Raw::iota(raw.stack(), TensorType::new([count, classes], dtype), 1)?;
            raw.reshape([count, 1])?.compare(Comparison::Eq, places)?.cast(dtype)
        })
    }
}
