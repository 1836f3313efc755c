//! Functions that only forward to [`AnyTensor`], as a table.

use crate::tensor::ok;
use crate::{AnyComplex, AnyTensor, Backend, Complex, Kind, Result, Tensor};

/// Defines functions that forward to the method of the first argument's untyped form of the same name, or to the one
/// named after `=`. A row is the doc comment and the signature, with generic parameters in brackets. Tensor arguments
/// are marked `as any`, and optional ones `as anys`. The table starts with the function that converts the result.
macro_rules! functions {
    (
        $convert:ident;
        $(
            $(#[$doc:meta])*
            pub fn $name:ident[$($generics:tt)*](
                $x:ident: $first:ty $(, $arg:ident: $ty:ty $(as $any:ident)?)* $(,)?
            ) -> $out:ty $(= $other:ident)?;
        )*
    ) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<$($generics)*>($x: $first $(, $arg: $ty)*) -> $out {
            $convert($crate::tensor::forward::call!(
                $x.into_any(), $name $($other)?, $($crate::tensor::forward::argument!($arg $($any)?)),*
            ))
        }
    )*};
}
pub(super) use functions;

/// Returns the typed result of a method, or panics with its error at the caller's line.
#[track_caller]
pub(super) fn typed<T: Typed>(result: Result<T::Any>) -> T {
    T::typed(ok(result))
}

/// The typed form of results.
pub(super) trait Typed: Sized {
    type Any;

    #[track_caller]
    fn typed(any: Self::Any) -> Self;
}

impl<B: Backend, const D: usize, K: Kind> Typed for Tensor<B, D, K> {
    type Any = AnyTensor;

    #[track_caller]
    fn typed(any: AnyTensor) -> Self {
        Tensor::from_any(any)
    }
}

impl<B: Backend, const D: usize> Typed for Complex<B, D> {
    type Any = AnyComplex;

    #[track_caller]
    fn typed(any: AnyComplex) -> Self {
        Complex::from_any(any)
    }
}

impl<T: Typed, U: Typed> Typed for (T, U) {
    type Any = (T::Any, U::Any);

    #[track_caller]
    fn typed((a, b): (T::Any, U::Any)) -> Self {
        (T::typed(a), U::typed(b))
    }
}
