//! Scalar operands of tensor ops.

use crate::{DType, Scalar};

/// A scalar operand of a tensor op: `x * 0.5`, `1 - x`, `mask.equal_elem(true)`.
///
/// It is converted to the dtype of the tensor. A fractional number and an integer tensor are an error, except in the
/// arithmetic methods of [`AnyTensor`](crate::AnyTensor), which promote the tensor.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a number nor a tensor of the same backend, rank and kind",
    label = "the tensors differ in backend, rank or kind",
    note = "float and integer tensors do not mix: convert one of them by `.float()` or `.int()`",
    note = "tensors of different ranks do not mix: add dims by `.unsqueeze()`"
)]
pub trait Number: Copy {
    /// Returns the scalar operand of ops.
    fn scalar(self) -> Scalar;
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            fn scalar(self) -> Scalar {
                self.into()
            }
        }
    )*};
}

numbers!(f64, f32, half::f16, half::bf16, i64, i32, i16, i8, u64, u32, u16, u8, usize, bool, Scalar);

/// Returns the greatest finite number of a float dtype; that of `f32` for other dtypes.
pub(crate) fn greatest_float(dtype: DType) -> f64 {
    if dtype == DType::F64 {
        f64::MAX
    } else if dtype == DType::F16 {
        half::f16::MAX.to_f64()
    } else if dtype == DType::BF16 {
        half::bf16::MAX.to_f64()
    } else {
        f64::from(f32::MAX)
    }
}
