//! Bitwise operations on integers, and logical operations.

use crate::{AnyTensor, Number, Result};
use kiln_ir::{Binary, Unary};

macro_rules! pairs {
    ($($method:ident $with_number:ident $function:ident;)*) => {
        impl AnyTensor {$(
            #[doc = concat!("See [`Tensor::", stringify!($method), "`](crate::Tensor::", stringify!($method), ").")]
            ///
            /// # Errors
            /// When the shapes do not broadcast, a dtype is a float, or, in a shift, both are `bool`.
            pub fn $method(self, other: AnyTensor) -> Result<AnyTensor> {
                self.binary(Binary::$function, other)
            }

            #[doc = concat!("[`", stringify!($method), "`](AnyTensor::", stringify!($method), ") with a number.")]
            ///
            /// # Errors
            /// When the number is not a value of the dtype, or the dtype is a float or, in a shift, `bool`.
            pub fn $with_number(self, x: impl Number) -> Result<AnyTensor> {
                self.binary_scalar(Binary::$function, x)
            }
        )*}
    };
}

pairs! {
    bitwise_and bitwise_and_scalar And;
    bitwise_or bitwise_or_scalar Or;
    bitwise_xor bitwise_xor_scalar Xor;
    bitwise_left_shift bitwise_left_shift_scalar Shl;
    bitwise_right_shift bitwise_right_shift_scalar Shr;
}

impl AnyTensor {
    /// Computes the bitwise NOT. See [`Tensor::bitwise_not`](crate::Tensor::bitwise_not).
    ///
    /// # Errors
    /// When the dtype is a float.
    pub fn bitwise_not(self) -> Result<AnyTensor> {
        self.unary(Unary::Not)
    }

    /// Counts the 1 bits (population count), in the same dtype. See [`Tensor::count_ones`](crate::Tensor::count_ones).
    ///
    /// # Errors
    /// When the dtype is not an integer.
    pub fn count_ones(self) -> Result<AnyTensor> {
        let bits = self.dtype().size() * 8;
        let mut count = self.clone().bitwise_and_scalar(1)?;
        for bit in 1..bits {
            let shifted = self.clone().bitwise_right_shift_scalar(bit)?;
            count = count.add(shifted.bitwise_and_scalar(1)?)?;
        }
        Ok(count)
    }

    /// Computes the logical AND of elements of any dtype; nonzero elements are true. Defined as
    /// [`torch.logical_and`](https://docs.pytorch.org/docs/stable/generated/torch.logical_and.html).
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    pub fn logical_and(self, other: AnyTensor) -> Result<AnyTensor> {
        self.truth()?.binary(Binary::And, other.truth()?)
    }

    /// Computes the logical OR of elements of any dtype; nonzero elements are true.
    ///
    /// # Errors
    /// As [`logical_and`](AnyTensor::logical_and).
    pub fn logical_or(self, other: AnyTensor) -> Result<AnyTensor> {
        self.truth()?.binary(Binary::Or, other.truth()?)
    }

    /// Computes the logical XOR of elements of any dtype; nonzero elements are true.
    ///
    /// # Errors
    /// As [`logical_and`](AnyTensor::logical_and).
    pub fn logical_xor(self, other: AnyTensor) -> Result<AnyTensor> {
        self.truth()?.binary(Binary::Xor, other.truth()?)
    }

    /// Computes the logical NOT: true where an element is 0.
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn logical_not(self) -> Result<AnyTensor> {
        self.truth()?.unary(Unary::Not)
    }
}
