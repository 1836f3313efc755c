//! Truth values.

use crate::{Backend, Bool, Float, Int, Tensor};
use kiln_ir::{Binary, Comparison, Unary};

impl<B: Backend, const D: usize> Tensor<B, D, Bool> {
    /// 1.0 where true, 0.0 where false.
    #[track_caller]
    pub fn float(self) -> Tensor<B, D, Float> {
        self.convert(|any| {
            let dtype = any.stack().float_dtype();
            any.cast(dtype)
        })
    }

    /// 1 where true, 0 where false.
    #[track_caller]
    pub fn int(self) -> Tensor<B, D, Int> {
        self.convert(|any| {
            let dtype = any.stack().int_dtype();
            any.cast(dtype)
        })
    }

    /// True where false.
    #[doc(alias = "logical_not")]
    #[track_caller]
    pub fn bool_not(self) -> Self {
        self.map(|any| any.unary(Unary::Not))
    }

    /// True where both are; broadcasts.
    #[doc(alias = "logical_and")]
    #[track_caller]
    pub fn bool_and(self, other: Self) -> Self {
        self.map(|any| any.binary(Binary::And, other.into_any()))
    }

    /// True where either is; broadcasts.
    #[doc(alias = "logical_or")]
    #[track_caller]
    pub fn bool_or(self, other: Self) -> Self {
        self.map(|any| any.binary(Binary::Or, other.into_any()))
    }

    /// True where exactly one is; broadcasts.
    #[doc(alias = "logical_xor")]
    #[track_caller]
    pub fn bool_xor(self, other: Self) -> Self {
        self.map(|any| any.binary(Binary::Xor, other.into_any()))
    }
}

impl<B: Backend, const D: usize> Tensor<B, D, Int> {
    /// True where not zero.
    #[track_caller]
    pub fn bool(self) -> Tensor<B, D, Bool> {
        self.convert(|any| any.compare_scalar(Comparison::Ne, 0))
    }
}
