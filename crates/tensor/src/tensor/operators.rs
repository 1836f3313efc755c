//! Operators: on values, on references, and with scalars on either side.
//!
//! On the right any scalar type is accepted. On the left only `i32` and `f64` are accepted, the types of literals. With
//! more than one integer or float type there, the compiler could not infer the type of `(1 - x).exp()`.

use super::ok;
use crate::{Backend, Bool, Float, Int, Number, Numeric, Tensor};
use core::ops;
use kiln_ir::{Binary, Unary};

macro_rules! binary_operators {
    ($($trait:ident $method:ident $assign:ident $assign_method:ident $function:ident;)*) => {$(
        impl<B: Backend, const D: usize, K: Numeric> ops::$trait<Tensor<B, D, K>> for Tensor<B, D, K> {
            type Output = Tensor<B, D, K>;
            #[inline]
            #[track_caller]
            fn $method(self, other: Tensor<B, D, K>) -> Tensor<B, D, K> {
                self.map(|a| a.binary(Binary::$function, other.into_any()))
            }
        }

        impl<B: Backend, const D: usize, K: Numeric> ops::$trait<&Tensor<B, D, K>> for Tensor<B, D, K> {
            type Output = Tensor<B, D, K>;
            #[inline]
            #[track_caller]
            fn $method(self, other: &Tensor<B, D, K>) -> Tensor<B, D, K> {
                self.map(|a| a.binary_with(Binary::$function, other.as_any()))
            }
        }

        impl<B: Backend, const D: usize, K: Numeric> ops::$trait<Tensor<B, D, K>> for &Tensor<B, D, K> {
            type Output = Tensor<B, D, K>;
            #[inline]
            #[track_caller]
            fn $method(self, other: Tensor<B, D, K>) -> Tensor<B, D, K> {
                ops::$trait::$method(self.clone(), other)
            }
        }

        impl<B: Backend, const D: usize, K: Numeric> ops::$trait<&Tensor<B, D, K>> for &Tensor<B, D, K> {
            type Output = Tensor<B, D, K>;
            #[inline]
            #[track_caller]
            fn $method(self, other: &Tensor<B, D, K>) -> Tensor<B, D, K> {
                ops::$trait::$method(self.clone(), other)
            }
        }

        impl<B: Backend, const D: usize, K: Numeric, N: Number> ops::$trait<N> for Tensor<B, D, K> {
            type Output = Tensor<B, D, K>;
            #[inline]
            #[track_caller]
            fn $method(self, x: N) -> Tensor<B, D, K> {
                self.map(|a| a.binary_scalar(Binary::$function, x.scalar()))
            }
        }

        impl<B: Backend, const D: usize, K: Numeric, N: Number> ops::$trait<N> for &Tensor<B, D, K> {
            type Output = Tensor<B, D, K>;
            #[inline]
            #[track_caller]
            fn $method(self, x: N) -> Tensor<B, D, K> {
                ops::$trait::$method(self.clone(), x)
            }
        }

        // The tensor is moved and not cloned, so that the engine can write the result over it. Checks run before, so
        // that a panic leaves the tensor unchanged.
        impl<B: Backend, const D: usize, K: Numeric> ops::$assign<Tensor<B, D, K>> for Tensor<B, D, K> {
            #[inline]
            #[track_caller]
            fn $assign_method(&mut self, other: Tensor<B, D, K>) {
                ok(self.as_any().check_binary(Binary::$function, other.as_any()));
                *self = ops::$trait::$method(self.take_out(), other);
            }
        }

        impl<B: Backend, const D: usize, K: Numeric> ops::$assign<&Tensor<B, D, K>> for Tensor<B, D, K> {
            #[inline]
            #[track_caller]
            fn $assign_method(&mut self, other: &Tensor<B, D, K>) {
                ok(self.as_any().check_binary(Binary::$function, other.as_any()));
                *self = ops::$trait::$method(self.take_out(), other);
            }
        }

        impl<B: Backend, const D: usize, K: Numeric, N: Number> ops::$assign<N> for Tensor<B, D, K> {
            #[inline]
            #[track_caller]
            fn $assign_method(&mut self, x: N) {
                ok(self.as_any().check_binary_scalar(Binary::$function, x.scalar()));
                *self = ops::$trait::$method(self.take_out(), x);
            }
        }

        binary_operators!(@numbers $trait $method $function: f64, i32);
    )*};
    (@numbers $trait:ident $method:ident $function:ident: $($number:ty),*) => {$(
        impl<B: Backend, const D: usize, K: Numeric> ops::$trait<Tensor<B, D, K>> for $number {
            type Output = Tensor<B, D, K>;
            #[inline]
            #[track_caller]
            fn $method(self, x: Tensor<B, D, K>) -> Tensor<B, D, K> {
                x.map(|x| x.scalar_binary(self, Binary::$function))
            }
        }

        impl<B: Backend, const D: usize, K: Numeric> ops::$trait<&Tensor<B, D, K>> for $number {
            type Output = Tensor<B, D, K>;
            #[inline]
            #[track_caller]
            fn $method(self, x: &Tensor<B, D, K>) -> Tensor<B, D, K> {
                ops::$trait::$method(self, x.clone())
            }
        }
    )*};
}

binary_operators! {
    Add add AddAssign add_assign Add;
    Sub sub SubAssign sub_assign Sub;
    Mul mul MulAssign mul_assign Mul;
    Div div DivAssign div_assign Div;
    Rem rem RemAssign rem_assign Rem;
}

impl<B: Backend, const D: usize, K: Numeric> ops::Neg for Tensor<B, D, K> {
    type Output = Tensor<B, D, K>;
    #[track_caller]
    fn neg(self) -> Tensor<B, D, K> {
        self.map(|any| any.unary(Unary::Neg))
    }
}

impl<B: Backend, const D: usize, K: Numeric> ops::Neg for &Tensor<B, D, K> {
    type Output = Tensor<B, D, K>;
    #[track_caller]
    fn neg(self) -> Tensor<B, D, K> {
        -self.clone()
    }
}

macro_rules! logical_operators {
    ($($kind:ident: $($trait:ident $method:ident $function:ident),*;)*) => {$($(
        impl<B: Backend, const D: usize> ops::$trait for Tensor<B, D, $kind> {
            type Output = Tensor<B, D, $kind>;
            #[track_caller]
            fn $method(self, other: Tensor<B, D, $kind>) -> Tensor<B, D, $kind> {
                self.map(|a| a.binary(Binary::$function, other.into_any()))
            }
        }

        impl<B: Backend, const D: usize> ops::$trait<&Tensor<B, D, $kind>> for &Tensor<B, D, $kind> {
            type Output = Tensor<B, D, $kind>;
            #[track_caller]
            fn $method(self, other: &Tensor<B, D, $kind>) -> Tensor<B, D, $kind> {
                ops::$trait::$method(self.clone(), other.clone())
            }
        }
    )*)*};
}

logical_operators! {
    Bool: BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor;
    Int: BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor, Shl shl Shl, Shr shr Shr;
}

macro_rules! complement {
    ($($kind:ident)*) => {$(
        impl<B: Backend, const D: usize> ops::Not for Tensor<B, D, $kind> {
            type Output = Tensor<B, D, $kind>;
            #[track_caller]
            fn not(self) -> Tensor<B, D, $kind> {
                ok_map(self)
            }
        }
    )*};
}

complement!(Bool Int);

#[track_caller]
fn ok_map<B: Backend, const D: usize, K: crate::Kind>(x: Tensor<B, D, K>) -> Tensor<B, D, K> {
    Tensor::from_any(ok(x.into_any().unary(Unary::Not)))
}

impl<B: Backend, const D: usize> core::iter::Sum for Tensor<B, D, Float> {
    /// Sums tensors.
    ///
    /// # Panics
    /// Without tensors: the shape of the sum is not known.
    #[track_caller]
    fn sum<I: Iterator<Item = Self>>(tensors: I) -> Self {
        tensors.reduce(|a, b| a + b).expect("[sum] no tensors to add up")
    }
}
