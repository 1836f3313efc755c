//! Comparisons. All broadcast.

use crate::{Backend, Bool, Kind, Number, Numeric, Tensor};
use kiln_ir::Comparison;

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// `self == other`.
    #[track_caller]
    pub fn equal(self, other: Self) -> Tensor<B, D, Bool> {
        self.convert(|any| any.compare(Comparison::Eq, other.into_any()))
    }

    /// `self != other`.
    #[track_caller]
    pub fn not_equal(self, other: Self) -> Tensor<B, D, Bool> {
        self.convert(|any| any.compare(Comparison::Ne, other.into_any()))
    }

    /// `self == x`.
    #[track_caller]
    pub fn equal_elem(self, x: impl Number) -> Tensor<B, D, Bool> {
        self.convert(|any| any.compare_scalar(Comparison::Eq, x))
    }

    /// `self != x`.
    #[track_caller]
    pub fn not_equal_elem(self, x: impl Number) -> Tensor<B, D, Bool> {
        self.convert(|any| any.compare_scalar(Comparison::Ne, x))
    }
}

impl<B: Backend, const D: usize, K: Numeric> Tensor<B, D, K> {
    /// `self < other`.
    #[track_caller]
    pub fn lower(self, other: Self) -> Tensor<B, D, Bool> {
        self.convert(|any| any.compare(Comparison::Lt, other.into_any()))
    }

    /// `self <= other`.
    #[track_caller]
    pub fn lower_equal(self, other: Self) -> Tensor<B, D, Bool> {
        self.convert(|any| any.compare(Comparison::Le, other.into_any()))
    }

    /// `self > other`.
    #[track_caller]
    pub fn greater(self, other: Self) -> Tensor<B, D, Bool> {
        other.lower(self)
    }

    /// `self >= other`.
    #[track_caller]
    pub fn greater_equal(self, other: Self) -> Tensor<B, D, Bool> {
        other.lower_equal(self)
    }

    /// `self < x`.
    #[track_caller]
    pub fn lower_elem(self, x: impl Number) -> Tensor<B, D, Bool> {
        self.convert(|any| any.compare_scalar(Comparison::Lt, x))
    }

    /// `self <= x`.
    #[track_caller]
    pub fn lower_equal_elem(self, x: impl Number) -> Tensor<B, D, Bool> {
        self.convert(|any| any.compare_scalar(Comparison::Le, x))
    }

    /// `self > x`.
    #[track_caller]
    pub fn greater_elem(self, x: impl Number) -> Tensor<B, D, Bool> {
        self.convert(|any| any.scalar_compare(x, Comparison::Lt))
    }

    /// `self >= x`.
    #[track_caller]
    pub fn greater_equal_elem(self, x: impl Number) -> Tensor<B, D, Bool> {
        self.convert(|any| any.scalar_compare(x, Comparison::Le))
    }
}
