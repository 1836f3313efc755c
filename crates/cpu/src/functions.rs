//! Elementary functions and their loops; each has a table row with its implementations.

use crate::isa::Widest;
use crate::kernels::{self, Loop1, Map1, loop_angle, loop1};
use crate::lane::{Bits, FloatLane, Lane};
use crate::math::loops::{self, Vector1};
use crate::math::vector::Single;
use crate::math::{self, single};
use kiln_ir::Unary;

/// Calls the standard library's function if there is one, otherwise that of `libm`.
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

macro_rules! functions {
    (
        numbers: $($number:ident)*;
        floats: $($float:ident)*;
        bits: $($bits:ident)*;
        $($function:ident $method:ident $form:ident |$x:ident| $double:expr;)*
    ) => {
        /// The elementary functions of an element type.
        pub(crate) trait Elementary: Lane {
            $(fn $method(self) -> Self;)*
        }

        impl Elementary for f32 {$(
            #[inline(always)]
            fn $method(self) -> f32 {
                functions!(@single $form self $method |$x| $double)
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

            functions!(@form $form $function $method);
        )*

        /// The loop of a function of `f32`.
        pub(crate) fn single(function: Unary) -> Loop1 {
            match function {
                $(Unary::$number => loop1::<f32, f32, kernels::$number>,)*
                $(Unary::$float => loop1::<f32, f32, kernels::$float>,)*
                $(Unary::$function => functions!(@loop $form $function),)*
                $(Unary::$bits)|* => unreachable!("inference refuses `{}` of floats", function.name()),
            }
        }

        /// The loop of a function of `f64`.
        pub(crate) fn double(function: Unary) -> Loop1 {
            match function {
                $(Unary::$number => loop1::<f64, f64, kernels::$number>,)*
                $(Unary::$float => loop1::<f64, f64, kernels::$float>,)*
                $(Unary::$function => loop1::<f64, f64, $function>,)*
                $(Unary::$bits)|* => unreachable!("inference refuses `{}` of floats", function.name()),
            }
        }

        /// The loop of a function of integers.
        pub(crate) fn whole<T: Bits>(function: Unary) -> Loop1 {
            match function {
                $(Unary::$number => loop1::<T, T, kernels::$number>,)*
                $(Unary::$bits => loop1::<T, T, kernels::$bits>,)*
                $(Unary::$float)|* $(| Unary::$function)* => {
                    unreachable!("inference refuses `{}` of integers", function.name())
                }
            }
        }
    };
    (@single scalar $single:ident $method:ident |$x:ident| $double:expr) => {{
        let $x = f64::from($single);
        let y: f64 = $double;
        y as f32
    }};
    (@single $form:ident $single:ident $method:ident |$x:ident| $double:expr) => {
        math::$method($single)
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
        functions!(@form vector $function $method);
    };
    (@loop scalar $function:ident) => { loop1::<f32, f32, $function> };
    (@loop vector $function:ident) => { loops::loop1::<$function> };
    (@loop angle $function:ident) => { loop_angle::<$function> };
}

// First the functions of one or two instructions, by their dtypes. Then a row for each elementary function: its name, the
// form of its `f32` loop, and its `f64` implementation. Forms: `vector` has functions of that name in `math` and
// `math::single`; so has `angle`, which reduces large angles exactly in `f64`; `scalar` computes each element in `f64`.
functions! {
    numbers: Neg Abs Sign;
    floats: Recip Sqrt Rsqrt Floor Ceil Round Trunc;
    bits: Not;
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
