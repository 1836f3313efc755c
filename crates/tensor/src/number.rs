//! Plain numbers beside tensors.

use crate::Scalar;

/// A plain number that may stand beside a tensor: `x * 0.5`, `1 - x`, `mask.equal_elem(true)`.
///
/// It takes the dtype of the tensor. A real number that is not whole beside an integer tensor is an error.
pub trait Number: Copy {
    /// The number, as ops take it.
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
