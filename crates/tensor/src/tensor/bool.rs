//! Conversions and logic of boolean tensors.

use crate::{Backend, Bool, Float, Int, Tensor};
use kiln_ir::{Binary, Comparison, Unary};

impl<B: Backend, const D: usize> Tensor<B, D, Bool> {
    /// Converts to floats of the default dtype: 1.0 where true, 0.0 where false.
    #[track_caller]
    pub fn float(self) -> Tensor<B, D, Float> {
        self.convert(|any| {
            let dtype = any.stack().float_dtype();
            any.cast(dtype)
        })
    }

    /// Converts to integers of the default dtype: 1 where true, 0 where false.
    #[track_caller]
    pub fn int(self) -> Tensor<B, D, Int> {
        self.convert(|any| {
            let dtype = any.stack().int_dtype();
            any.cast(dtype)
        })
    }

    /// Computes the logical NOT.
    #[doc(alias = "logical_not")]
    #[track_caller]
    pub fn bool_not(self) -> Self {
        self.map(|any| any.unary(Unary::Not))
    }

    /// Computes the logical AND; broadcasts.
    #[doc(alias = "logical_and")]
    #[track_caller]
    pub fn bool_and(self, other: Self) -> Self {
        self.map(|any| any.binary(Binary::And, other.into_any()))
    }

    /// Computes the logical OR; broadcasts.
    #[doc(alias = "logical_or")]
    #[track_caller]
    pub fn bool_or(self, other: Self) -> Self {
        self.map(|any| any.binary(Binary::Or, other.into_any()))
    }

    /// Computes the logical XOR; broadcasts.
    #[doc(alias = "logical_xor")]
    #[track_caller]
    pub fn bool_xor(self, other: Self) -> Self {
        self.map(|any| any.binary(Binary::Xor, other.into_any()))
    }
}

impl<B: Backend, const D: usize> Tensor<B, D, Int> {
    /// Converts to booleans: true where not zero.
    #[track_caller]
    pub fn bool(self) -> Tensor<B, D, Bool> {
        self.convert(|any| any.compare_scalar(Comparison::Ne, 0))
    }
}
