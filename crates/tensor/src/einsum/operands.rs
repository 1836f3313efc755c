//! The operands of `einsum`.

use crate::{AnyTensor, Backend, Numeric, Tensor};
use alloc::vec::Vec;

/// One operand of [`einsum`](crate::einsum): a tensor, or a reference to one.
pub trait EinsumOperand {
    /// The backend of the tensor.
    type Backend: Backend;
    /// The kind of its elements.
    type Kind: Numeric;

    /// Converts to a tensor whose rank is known at run time.
    fn into_any(self) -> AnyTensor;
}

impl<B: Backend, const D: usize, K: Numeric> EinsumOperand for Tensor<B, D, K> {
    type Backend = B;
    type Kind = K;

    fn into_any(self) -> AnyTensor {
        Tensor::into_any(self)
    }
}

impl<B: Backend, const D: usize, K: Numeric> EinsumOperand for &Tensor<B, D, K> {
    type Backend = B;
    type Kind = K;

    fn into_any(self) -> AnyTensor {
        self.as_any().clone()
    }
}

/// The operands of [`einsum`](crate::einsum): an array or vector of tensors of one rank, or a tuple of tensors of any
/// rank.
pub trait EinsumOperands {
    /// The backend of the tensors.
    type Backend: Backend;
    /// The kind of their elements.
    type Kind: Numeric;

    /// Returns the tensors in order.
    fn into_anys(self) -> Vec<AnyTensor>;
}

impl<T: EinsumOperand, const N: usize> EinsumOperands for [T; N] {
    type Backend = T::Backend;
    type Kind = T::Kind;

    fn into_anys(self) -> Vec<AnyTensor> {
        self.into_iter().map(T::into_any).collect()
    }
}

impl<T: EinsumOperand> EinsumOperands for Vec<T> {
    type Backend = T::Backend;
    type Kind = T::Kind;

    fn into_anys(self) -> Vec<AnyTensor> {
        self.into_iter().map(T::into_any).collect()
    }
}

macro_rules! tuples {
    ($($first:ident $(, $other:ident)*;)*) => {$(
        #[allow(non_snake_case, reason = "one name stands for the type and the value")]
        impl<$first: EinsumOperand $(, $other)*> EinsumOperands for ($first, $($other,)*)
        where
            $($other: EinsumOperand<Backend = $first::Backend, Kind = $first::Kind>,)*
        {
            type Backend = $first::Backend;
            type Kind = $first::Kind;

            fn into_anys(self) -> Vec<AnyTensor> {
                let ($first, $($other,)*) = self;
                Vec::from([$first.into_any(), $($other.into_any(),)*])
            }
        }
    )*};
}

tuples! {
    T0;
    T0, T1;
    T0, T1, T2;
    T0, T1, T2, T3;
    T0, T1, T2, T3, T4;
    T0, T1, T2, T3, T4, T5;
    T0, T1, T2, T3, T4, T5, T6;
    T0, T1, T2, T3, T4, T5, T6, T7;
}
