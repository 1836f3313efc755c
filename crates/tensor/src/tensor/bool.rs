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
    #[track_caller]
    pub fn bool_not(self) -> Self {
        self.map(|any| any.unary(Unary::Not))
    }

    /// True where both are; broadcasts.
    #[track_caller]
    pub fn bool_and(self, other: Self) -> Self {
        self.map(|any| any.binary(Binary::And, other.into_any()))
    }

    /// True where either is; broadcasts.
    #[track_caller]
    pub fn bool_or(self, other: Self) -> Self {
        self.map(|any| any.binary(Binary::Or, other.into_any()))
    }

    /// True where exactly one is; broadcasts.
    #[track_caller]
    pub fn bool_xor(self, other: Self) -> Self {
        self.map(|any| any.binary(Binary::Xor, other.into_any()))
    }
}

impl<B: Backend> Tensor<B, 2, Bool> {
    /// True on and below the diagonal `offset` above the main one, `[rows, columns]`: `column <= row + offset`.
    #[track_caller]
    pub fn tril_mask(shape: [usize; 2], offset: i64, device: &B::Device) -> Self {
        let [rows, columns] = indices::<B>(shape, device);
        columns.lower_equal(rows + offset)
    }

    /// True on and above the diagonal `offset` above the main one, `[rows, columns]`: `column >= row + offset`.
    #[track_caller]
    pub fn triu_mask(shape: [usize; 2], offset: i64, device: &B::Device) -> Self {
        let [rows, columns] = indices::<B>(shape, device);
        columns.greater_equal(rows + offset)
    }
}

fn indices<B: Backend>(shape: [usize; 2], device: &B::Device) -> [Tensor<B, 2, Int>; 2] {
    let stack = B::stack(device);
    let ty = crate::TensorType::new(shape, stack.int_dtype());
    [0, 1].map(|axis| Tensor::from_any(super::ok(crate::AnyTensor::iota(ty, axis, &stack))))
}

impl<B: Backend, const D: usize> Tensor<B, D, Int> {
    /// True where not zero.
    #[track_caller]
    pub fn bool(self) -> Tensor<B, D, Bool> {
        self.convert(|any| any.compare_scalar(Comparison::Ne, 0))
    }
}
