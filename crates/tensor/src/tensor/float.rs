//! Floats: other dtypes, and tests.

use super::ok;
use crate::{Backend, Bool, DType, Float, Int, Tensor};
use kiln_ir::Comparison;

impl<B: Backend, const D: usize> Tensor<B, D, Float> {
    /// Another float dtype.
    ///
    /// # Panics
    /// When the dtype is no float.
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

    /// True where NaN.
    #[track_caller]
    pub fn is_nan(self) -> Tensor<B, D, Bool> {
        self.clone().not_equal(self)
    }

    /// True where infinite.
    #[track_caller]
    pub fn is_inf(self) -> Tensor<B, D, Bool> {
        self.abs().equal_elem(f64::INFINITY)
    }

    /// True where neither NaN nor infinite.
    #[track_caller]
    pub fn is_finite(self) -> Tensor<B, D, Bool> {
        self.abs().lower_elem(f64::INFINITY)
    }

    /// True where `|self - other| <= absolute + relative * |other|`, both are the same infinity, or both are NaN;
    /// broadcasts. Defaults: relative 1e-5, absolute 1e-8.
    #[track_caller]
    pub fn is_close(self, other: Self, relative: Option<f64>, absolute: Option<f64>) -> Tensor<B, D, Bool> {
        let bound = other.clone().abs() * relative.unwrap_or(1e-5) + absolute.unwrap_or(1e-8);
        let both_nan = self.clone().is_nan().bool_and(other.clone().is_nan());
        let same = self.clone().equal(other.clone());
        let finite = other.clone().is_finite();
        let near: Tensor<B, D, Bool> =
            (self - other).abs().convert(|any| any.compare(Comparison::Le, bound.into_any()));
        near.bool_and(finite).bool_or(same).bool_or(both_nan)
    }

    /// Whether all elements are close, by [`is_close`](Tensor::is_close). Waits for the device.
    #[track_caller]
    pub fn all_close(self, other: Self, relative: Option<f64>, absolute: Option<f64>) -> bool {
        let data = ok(self.is_close(other, relative, absolute).all().into_any().into_data());
        data.to_vec::<bool>() == [true]
    }
}
