//! The functions for typed tensors, which call those of [`any`](crate::any).

/// Defines functions that forward to the function of `any` of the same name. A row is the doc comment and the signature,
/// with generic parameters in brackets. Tensor arguments are marked `as any`.
macro_rules! functions {
    (@ $arg:ident) => { $arg };
    (@ $arg:ident any) => { $arg.into_any() };
    ($(
        $(#[$doc:meta])*
        pub fn $name:ident[$($generics:tt)*]($($arg:ident: $ty:ty $(as $any:ident)?),+ $(,)?) -> $out:ty;
    )*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<$($generics)*>($($arg: $ty),+) -> $out {
            $crate::typed::typed(any::$name($(functions!(@ $arg $($any)?)),+))
        }
    )*};
}

pub mod complex;
mod decomposition;
mod determinant;
mod eigen;
mod function;
mod norm;
mod product;
mod solve;

pub use decomposition::{cholesky, ldl, ldl_factor, lu, lu_factor, qr, qr_r, svd, svdvals};
pub use determinant::{det, logdet, slogdet};
pub use eigen::{eig, eigh, eigvals, eigvalsh};
pub use function::{inverse, matrix_exp, matrix_power, pinv, tensorinv, tensorsolve};
pub use norm::{cond, matrix_norm, matrix_rank};
pub use product::{householder_product, multi_dot, vander};
pub use solve::{
    LeastSquares, cholesky_inverse, cholesky_solve, ldl_solve, lstsq, lu_solve, solve, solve_triangular,
};

use kiln_ir::Result;
use kiln_tensor::{AnyComplex, AnyTensor, Backend, Kind, Tensor};

/// Real and imaginary part of a complex tensor, as [`eig`] returns them. [`kiln_tensor::Complex::new`] combines them
/// into the operand type of [`complex`](mod@complex).
pub type Complex<B, const D: usize> = (Tensor<B, D>, Tensor<B, D>);

/// Returns the typed result, or panics with the error at the caller's line.
#[track_caller]
fn typed<T: Typed>(result: Result<T::Any>) -> T {
    T::typed(done(result))
}

/// The typed form of results of [`any`](crate::any).
trait Typed: Sized {
    type Any;

    #[track_caller]
    fn typed(any: Self::Any) -> Self;
}

impl<B: Backend, const D: usize, K: Kind> Typed for Tensor<B, D, K> {
    type Any = AnyTensor;

    #[track_caller]
    fn typed(any: AnyTensor) -> Self {
        // A scalar may also be a tensor of shape `[1]`, like that of a sum.
        Tensor::from_any(if any.rank() == 0 && D == 1 { done(any.reshape([1])) } else { any })
    }
}

impl<B: Backend, const D: usize> Typed for kiln_tensor::Complex<B, D> {
    type Any = AnyComplex;

    #[track_caller]
    fn typed(any: AnyComplex) -> Self {
        let (re, im) = any.into_parts();
        kiln_tensor::Complex::new(typed(Ok(re)), typed(Ok(im)))
    }
}

macro_rules! tuples {
    ($(($($part:ident)+);)*) => {$(
        impl<$($part: Typed),+> Typed for ($($part,)+) {
            type Any = ($($part::Any,)+);

            #[track_caller]
            #[allow(non_snake_case, reason = "a part has the name of its type")]
            fn typed(($($part,)+): Self::Any) -> Self {
                ($($part::typed($part),)+)
            }
        }
    )*};
}

tuples! {
    (T U);
    (T U V);
}

#[track_caller]
fn done<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fail(&error),
    }
}

#[cold]
#[track_caller]
fn fail(error: &kiln_ir::Error) -> ! {
    panic!("{error}")
}
