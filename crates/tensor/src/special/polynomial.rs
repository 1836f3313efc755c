//! Polynomials of tensors.

use kiln_ir::{DType, Var};

/// A polynomial on an interval, as powers of the variable that runs from -1 to 1 over it, for two precisions.
pub(super) struct Polynomial {
    pub(super) middle: f64,
    pub(super) half: f64,
    pub(super) f32: &'static [f64],
    pub(super) f64: &'static [f64],
}

impl Polynomial {
    /// Computes the value at each element, in the dtype of the elements (`f32` or `f64`).
    pub(super) fn at<'e>(&self, x: &Var<'e>) -> Var<'e> {
        let coefficients = if x.dtype() == DType::F64 { self.f64 } else { self.f32 };
        horner(&((x - self.middle) / self.half), coefficients)
    }
}

/// Computes `c[0] + c[1] x + c[2] x² + ..`; at least two coefficients.
pub(super) fn horner<'e>(x: &Var<'e>, coefficients: &[f64]) -> Var<'e> {
    let (last, rest) = coefficients.split_last().expect("a polynomial has coefficients");
    let (second, rest) = rest.split_last().expect("a polynomial has two coefficients");
    let start = x * *last + *second;
    rest.iter().rev().fold(start, |sum, &c| sum * x + c)
}
