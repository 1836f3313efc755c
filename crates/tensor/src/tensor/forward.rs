//! Methods that only forward to [`AnyTensor`], as a table.

use super::{Tensor, ok};
use crate::{AnyTensor, Backend, Kind, Result};
use alloc::vec::Vec;

/// Defines methods of [`Tensor`] that forward to the method of [`AnyTensor`] of the same name, or to the one named
/// after `=`. A row is the doc comment and the signature. Tensor arguments are marked `as any`.
macro_rules! forward {
    (
        $(#[$block:meta])*
        impl[$($generics:tt)*] $target:ty;
        $(
            $(#[$doc:meta])*
            pub fn $name:ident $(<$(const $rank:ident: usize),+>)? (
                self $(, $arg:ident: $ty:ty $(as $any:ident)?)* $(,)?
            ) -> $out:ty $(= $other:ident)?;
        )*
    ) => {
        $(#[$block])*
        impl<$($generics)*> $target {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name $(<$(const $rank: usize),+>)? (self $(, $arg: $ty)*) -> $out {
                let result = $crate::tensor::forward::call!(
                    self.into_any(), $name $($other)?, $($crate::tensor::forward::argument!($arg $($any)?)),*
                );
                $crate::tensor::forward::typed(stringify!($name), result)
            }
        )*}
    };
}
pub(super) use forward;

/// Calls a method, or the method after `=` in its place.
macro_rules! call {
    ($x:expr, $name:ident, $($argument:expr),*) => { $x.$name($($argument),*) };
    ($x:expr, $name:ident $other:ident, $($argument:expr),*) => { $x.$other($($argument),*) };
}
pub(crate) use call;

/// Passes an argument as it is, or converts a tensor or an optional tensor to `AnyTensor`.
macro_rules! argument {
    ($x:ident) => {
        $x
    };
    ($x:ident any) => {
        $x.into_any()
    };
    ($x:ident anys) => {
        $x.map($crate::Tensor::into_any)
    };
}
pub(crate) use argument;

/// The typed form of results of [`AnyTensor`].
pub(super) trait Typed: Sized {
    type Any;

    #[track_caller]
    fn typed(op: &str, any: Self::Any) -> Self;
}

/// Returns the typed result of a method, or panics with its error at the caller's line.
#[inline]
#[track_caller]
pub(super) fn typed<T: Typed>(op: &str, result: Result<T::Any>) -> T {
    T::typed(op, ok(result))
}

impl<B: Backend, const D: usize, K: Kind> Typed for Tensor<B, D, K> {
    type Any = AnyTensor;

    #[inline]
    #[track_caller]
    fn typed(op: &str, any: AnyTensor) -> Self {
        Tensor::from_ranked(op, any)
    }
}

impl<T: Typed, U: Typed> Typed for (T, U) {
    type Any = (T::Any, U::Any);

    #[track_caller]
    fn typed(op: &str, (a, b): (T::Any, U::Any)) -> Self {
        (T::typed(op, a), U::typed(op, b))
    }
}

impl<T: Typed> Typed for Vec<T> {
    type Any = Vec<T::Any>;

    #[track_caller]
    fn typed(op: &str, any: Vec<T::Any>) -> Self {
        // A loop, since closures do not pass on the caller's line.
        let mut list = Vec::with_capacity(any.len());
        for one in any {
            list.push(T::typed(op, one));
        }
        list
    }
}
