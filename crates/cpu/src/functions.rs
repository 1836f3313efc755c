//! The elementary functions of one float: a row for each, from which its loops are made.

use crate::isa::Widest;
use crate::kernels::{Loop1, Map1, loop_angle, loop1};
use crate::lane::{FloatLane, Lane};
use crate::math::loops::{self, Vector1};
use crate::math::vector::Single;
use crate::math::{self, single};
use kiln_ir::Unary;

/// Calls the standard library's function where there is one, otherwise that of `libm`.
macro_rules! float_function {
    ($x:expr, $std:ident, $libm:ident $(, $other:expr)?) => {{
        #[cfg(feature = "std")]
        let y = $x.$std($($other)?);
        #[cfg(not(feature = "std"))]
        let y = libm::$libm($x $(, $other)?);
        y
    }};
}
pub(crate) use float_function;

macro_rules! elementary {
    ($($function:ident $method:ident $form:ident |$x:ident| $double:expr;)*) => {
        /// The elementary functions.
        pub(crate) trait Elementary: Lane {
            $(fn $method(self) -> Self;)*
        }

        impl Elementary for f32 {$(
            #[inline(always)]
            fn $method(self) -> f32 {
                math::$method(self)
            }
        )*}

        impl Elementary for f64 {$(
            fn $method(self) -> f64 {
                let $x = self;
                $double
            }
        )*}

        $(
            pub(crate) struct $function;

            impl<T: FloatLane> Map1<T, T> for $function {
                const WIDEST: Widest = Widest::Baseline;
                #[inline(always)]
                fn map(x: T) -> T {
                    x.$method()
                }
            }

            elementary!(@form $form $function $method);
        )*

        /// The loop of an elementary function of `f32`; `None` for other functions.
        pub(crate) fn single(function: Unary) -> Option<Loop1> {
            match function {
                $(Unary::$function => Some(elementary!(@loop $form $function)),)*
                _ => None,
            }
        }

        /// The loop of an elementary function of `f64`; `None` for other functions.
        pub(crate) fn double(function: Unary) -> Option<Loop1> {
            match function {
                $(Unary::$function => Some(loop1::<f64, f64, $function>),)*
                _ => None,
            }
        }
    };
    (@form scalar $function:ident $method:ident) => {};
    (@form vector $function:ident $method:ident) => {
        impl Vector1 for $function {
            #[inline(always)]
            fn vector<V: Single>(x: V) -> V {
                single::$method(x)
            }
        }
    };
    (@form angle $function:ident $method:ident) => {
        elementary!(@form vector $function $method);
    };
    (@loop scalar $function:ident) => { loop1::<f32, f32, $function> };
    (@loop vector $function:ident) => { loops::loop1::<$function> };
    (@loop angle $function:ident) => { loop_angle::<$function> };
}

// The function, its name in `math` for `f32`, the form of its `f32` loop, and its value of `f64`. Forms: `vector` has a function
// of that name in `math::single`; so has `angle`, which is exact for large angles through `f64`; `scalar` is the function in
// `math` for each element.
elementary! {
    Erfcx erfcx vector |x| math::erfcx_double(x);
    Exp exp vector |x| float_function!(x, exp, exp);
    Expm1 expm1 vector |x| float_function!(x, exp_m1, expm1);
    Ln ln vector |x| float_function!(x, ln, log);
    Log1p log1p vector |x| float_function!(x, ln_1p, log1p);
    Sin sin angle |x| float_function!(x, sin, sin);
    Cos cos angle |x| float_function!(x, cos, cos);
    Tan tan angle |x| float_function!(x, tan, tan);
    Tanh tanh vector |x| float_function!(x, tanh, tanh);
    Atan atan vector |x| float_function!(x, atan, atan);
    Erf erf vector |x| libm::erf(x);
}
