//! The scalar functions of elementwise ops, and a table row of facts for each.
//!
//! Their values are defined by code in [`number`](crate::number).

use super::fact::fact;
use super::{Fact, Linearity, Precision};
use crate::DType;
use crate::vjp::{Gradient, Saved, SavedOf, saved};
use serde::{Deserialize, Serialize};

/// A row of a function table.
#[derive(Clone, Copy, Debug)]
pub struct FunctionInfo {
    /// The name in messages and in the text form.
    pub name: &'static str,
    /// The accepted dtypes.
    pub domain: Domain,
    /// The kind of its gradient.
    pub gradient: Gradient,
    /// The operands and results that the gradient rule reads.
    pub saved: Fact<Saved, SavedOf>,
    /// The operands in which the result is linear.
    pub linearity: Linearity,
    /// The implementation effort.
    pub effort: Effort,
    /// The time per element on a processor, in units of one addition: for `f32`, and for `f64`.
    pub additions: [u8; 2],
    /// The precision under mixed precision. A function that grows without bounds, or is steep near 0, needs `f32`.
    pub precision: Precision,
}

/// The set of dtypes that a function accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Floats.
    Float,
    /// Floats and signed integers.
    Signed,
    /// All dtypes but `bool`.
    Number,
    /// Integers.
    Integer,
    /// `bool` and integers.
    Bits,
}

impl Domain {
    /// Returns whether the function accepts the dtype.
    #[inline]
    pub const fn contains(self, dtype: DType) -> bool {
        match self {
            Domain::Float => dtype.is_float(),
            Domain::Signed => dtype.is_float() || dtype.is_signed_int(),
            Domain::Number => !dtype.is_bool(),
            Domain::Integer => dtype.is_int(),
            Domain::Bits => !dtype.is_float(),
        }
    }

    /// Returns the name of the set, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Domain::Float => "a float dtype",
            Domain::Signed => "a float or signed integer dtype",
            Domain::Number => "a numeric dtype",
            Domain::Integer => "an integer dtype",
            Domain::Bits => "bool or an integer dtype",
        }
    }
}

/// The implementation of a function, from few instructions to many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// One or two instructions.
    Arithmetic,
    /// A division or a square root.
    Division,
    /// A polynomial after range reduction.
    Elementary,
    /// A call into the math library.
    Library,
}

const RULE: Gradient = Gradient::Rule;
const CONSTANT: Gradient = Gradient::Constant;

const NOTHING: Fact<Saved, SavedOf> = Fact::Fixed(Saved::NONE);
const A: Fact<Saved, SavedOf> = Fact::Fixed(Saved { inputs: 1, outputs: 0 });
const AB: Fact<Saved, SavedOf> = Fact::Fixed(Saved { inputs: 3, outputs: 0 });
const Y: Fact<Saved, SavedOf> = Fact::Fixed(Saved { inputs: 0, outputs: 1 });
const AY: Fact<Saved, SavedOf> = Fact::Fixed(Saved { inputs: 1, outputs: 1 });

const NO: Linearity = Linearity::Nonlinear;
const FLAT: Linearity = Linearity::Constant;
const ALL: Linearity = Linearity::Linear(u32::MAX);
const SUM: Linearity = Linearity::Sum;
const BILINEAR: Linearity = Linearity::Bilinear;

const FULL: Precision = Precision::Full;
const WIDEST: Precision = Precision::Widest;

macro_rules! functions {
    ($(#[$meta:meta])* $enum:ident { $($(#[$doc:meta])* $function:ident $name:literal $domain:ident $gradient:ident
        $saved:tt $linearity:ident $effort:ident $additions:expr, $precision:ident;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $enum { $($(#[$doc])* $function,)* }

        impl $enum {
            /// Every variant, in declaration order.
            pub const ALL: &'static [$enum] = &[$($enum::$function),*];

            /// The row of each function, at `function as usize`.
            pub const TABLE: &'static [FunctionInfo] = &[$(FunctionInfo {
                name: $name,
                domain: Domain::$domain,
                gradient: $gradient,
                saved: fact!($saved),
                linearity: $linearity,
                effort: Effort::$effort,
                additions: $additions,
                precision: $precision,
            }),*];

            /// Returns the row of this function.
            #[inline]
            pub const fn info(self) -> &'static FunctionInfo {
                &Self::TABLE[self as usize]
            }

            /// Returns the name used in messages and in the text form.
            pub const fn name(self) -> &'static str {
                self.info().name
            }

            /// Returns the variant of that [`name`](Self::name), if there is one.
            pub fn from_name(name: &str) -> Option<$enum> {
                Self::ALL.iter().copied().find(|function| function.name() == name)
            }
        }
    };
}

functions! {
    /// A function of one element; of floats, unless stated otherwise.
    Unary {
        // function, name, domain, gradient, saved, linearity, effort, additions, precision
        /// `-x`; floats and signed integers (wrapping).
        Neg   "neg"   Signed  RULE     NOTHING ALL      Arithmetic [1, 1], WIDEST;
        /// Absolute value; all numbers (wrapping).
        Abs   "abs"   Number  RULE     A       NO       Arithmetic [1, 1], WIDEST;
        /// -1, 0 or 1; all numbers. NaN stays NaN, zeros keep their sign.
        Sign  "sign"  Number  RULE     NOTHING FLAT     Arithmetic [1, 1], WIDEST;
        /// `1 / x`.
        Recip "recip" Float   RULE     Y       NO       Division   [3, 3], FULL;
        /// Square root.
        Sqrt  "sqrt"  Float   RULE     Y       NO       Division   [3, 3], WIDEST;
        /// `1 / sqrt(x)`.
        Rsqrt "rsqrt" Float   RULE     Y       NO       Division   [3, 3], FULL;
        /// `e^x`.
        Exp   "exp"   Float   RULE     Y       NO       Elementary [12, 60], FULL;
        /// `e^x - 1`, accurate near 0.
        Expm1 "expm1" Float   RULE     Y       NO       Elementary [12, 60], FULL;
        /// Natural logarithm.
        Ln    "ln"    Float   RULE     A       NO       Elementary [12, 60], FULL;
        /// `ln(1 + x)`, accurate near 0.
        Log1p "log1p" Float   RULE     A       NO       Elementary [12, 60], FULL;
        /// Sine of radians.
        Sin   "sin"   Float   RULE     A       NO       Elementary [12, 60], WIDEST;
        /// Cosine of radians.
        Cos   "cos"   Float   RULE     A       NO       Elementary [12, 60], WIDEST;
        /// Tangent of radians.
        Tan   "tan"   Float   RULE     Y       NO       Elementary [12, 60], FULL;
        /// Hyperbolic tangent.
        Tanh  "tanh"  Float   RULE     Y       NO       Elementary [12, 60], WIDEST;
        /// Arc tangent, in radians.
        Atan  "atan"  Float   RULE     A       NO       Elementary [12, 60], WIDEST;
        /// The error function, `2/√π ∫₀ˣ exp(-t²) dt`.
        Erf   "erf"   Float   RULE     A       NO       Elementary [12, 60], WIDEST;
        /// The scaled complementary error function, `exp(x²) erfc(x)`; infinite for negative arguments where `exp(x²)`
        /// overflows.
        Erfcx "erfcx" Float   RULE     AY      NO       Elementary [24, 60], FULL;
        /// Rounds down to an integer (floor).
        Floor "floor" Float   RULE     NOTHING FLAT     Arithmetic [1, 1], WIDEST;
        /// The least integer not below.
        Ceil  "ceil"  Float   RULE     NOTHING FLAT     Arithmetic [1, 1], WIDEST;
        /// The nearest integer, ties to even.
        Round "round" Float   RULE     NOTHING FLAT     Arithmetic [1, 1], WIDEST;
        /// The integer part, towards zero.
        Trunc "trunc" Float   RULE     NOTHING FLAT     Arithmetic [1, 1], WIDEST;
        /// Logical (`bool`) or bitwise (integers) complement.
        Not   "not"   Bits    CONSTANT NOTHING FLAT     Arithmetic [1, 1], WIDEST;
    }
}

functions! {
    /// A function of two elements. Integers wrap on overflow.
    Binary {
        // function, name, domain, gradient, saved, linearity, effort, additions, precision
        /// `a + b`.
        Add   "add"   Number  RULE     NOTHING            SUM      Arithmetic [1, 1], WIDEST;
        /// `a - b`.
        Sub   "sub"   Number  RULE     NOTHING            SUM      Arithmetic [1, 1], WIDEST;
        /// `a * b`.
        Mul   "mul"   Number  RULE     (saved::product)   BILINEAR Arithmetic [1, 1], WIDEST;
        /// `a / b`; integers truncate towards zero, and a zero divisor returns 0.
        Div   "div"   Number  RULE     (saved::quotient)  NO       Division   [3, 3], WIDEST;
        /// The remainder of the truncated division, with the sign of `a`; for integers, a zero divisor returns 0.
        Rem   "rem"   Number  RULE     (saved::remainder) NO       Library    [60, 60], WIDEST;
        /// `a` to the power `b`; integers wrap, and a negative exponent returns the truncated real result.
        Pow   "pow"   Number  RULE     (saved::power)     NO       Library    [60, 60], FULL;
        /// The minimum; NaN if either is NaN.
        Min   "min"   Number  RULE     (saved::extreme)   NO       Arithmetic [1, 1], WIDEST;
        /// The maximum; NaN if either is NaN.
        Max   "max"   Number  RULE     (saved::extreme)   NO       Arithmetic [1, 1], WIDEST;
        /// The angle of the point `(b, a)`, in radians; floats.
        Atan2 "atan2" Float   RULE     AB                 NO       Elementary [16, 16], WIDEST;
        /// Logical (`bool`) or bitwise (integers) and.
        And   "and"   Bits    CONSTANT NOTHING            FLAT     Arithmetic [1, 1], WIDEST;
        /// Logical or bitwise or.
        Or    "or"    Bits    CONSTANT NOTHING            FLAT     Arithmetic [1, 1], WIDEST;
        /// Logical or bitwise exclusive or.
        Xor   "xor"   Bits    CONSTANT NOTHING            FLAT     Arithmetic [1, 1], WIDEST;
        /// `a << b`; integers. Shifting by the width or more (or by a negative amount) returns 0.
        Shl   "shl"   Integer CONSTANT NOTHING            FLAT     Arithmetic [1, 1], WIDEST;
        /// `a >> b`; integers, arithmetic for signed ones. By the width or more (or by a negative amount):
        /// the sign, 0 or -1.
        Shr   "shr"   Integer CONSTANT NOTHING            FLAT     Arithmetic [1, 1], WIDEST;
    }
}
