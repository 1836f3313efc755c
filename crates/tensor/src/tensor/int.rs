//! Integers.

use crate::AnyTensor;
use crate::{Backend, DType, Float, Int, Tensor};
use kiln_ir::{Comparison, TensorType};

impl<B: Backend, const D: usize> Tensor<B, D, Int> {
    /// The same numbers as floats of the default dtype.
    #[track_caller]
    pub fn float(self) -> Tensor<B, D, Float> {
        self.convert(|any| {
            let dtype = any.stack().float_dtype();
            any.cast(dtype)
        })
    }

    /// Another integer dtype. Narrower ones wrap.
    ///
    /// # Panics
    /// When the dtype is no integer.
    #[track_caller]
    pub fn cast(self, dtype: DType) -> Self {
        self.map(|any| any.cast(dtype))
    }
}

impl<B: Backend> Tensor<B, 1, Int> {
    /// One row per number, with 1 at its place and 0 elsewhere, `[count, classes]`. A number out of `0..classes`
    /// gives a row of zeros.
    #[track_caller]
    pub fn one_hot(self, classes: usize) -> Tensor<B, 2, Int> {
        self.convert(|any| {
            let (count, dtype) = (any.shape()[0], any.dtype());
            let places = AnyTensor::iota(TensorType::new([count, classes], dtype), 1, any.stack())?;
            any.reshape([count, 1])?.compare(Comparison::Eq, places)?.cast(dtype)
        })
    }
}
