//! Elementwise functions.

use crate::tensor::forward::forward;
use crate::{Backend, Float, Numeric, Tensor};

/// The rest of a doc comment: a link to the definition and an example.
macro_rules! about {
    ($link:literal, $call:expr, $x:literal, $y:literal) => {
        concat!(
            "Defined as ",
            $link,
            ".\n\n```\n# use kiln_backends::Flex;\n# use kiln_tensor::Tensor;\n# let device = Default::default();\n",
            "let x = Tensor::<Flex, 1>::from_floats(",
            $x,
            ", &device);\nlet y = Tensor::from_floats(",
            $y,
            ", &device);\nassert!(x.",
            $call,
            ".all_close(y, None, Some(1e-6)));\n```"
        )
    };
}
pub(super) use about;

forward! {
    #[allow(
        clippy::should_implement_trait,
        reason = "the operator is implemented too; chains of methods read better"
    )]
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// Computes `-x`. The most negative integer is its own negative. Unsigned integers are an error, where PyTorch's
    /// `u8` wraps: cast them first.
    ///
    #[doc = about!("[`torch.neg`](https://docs.pytorch.org/docs/stable/generated/torch.neg.html)", "neg()", "[1.5, -2.0]", "[-1.5, 2.0]")]
    pub fn neg(self) -> Self;

    /// Computes the absolute value. For the most negative integer it wraps to itself.
    ///
    #[doc = about!("[`torch.abs`](https://docs.pytorch.org/docs/stable/generated/torch.abs.html)", "abs()", "[1.5, -2.0]", "[1.5, 2.0]")]
    pub fn abs(self) -> Self;

    /// Computes the sign: -1, 0 or 1. NaN stays NaN, and a zero keeps its sign.
    ///
    #[doc = about!("[`torch.sign`](https://docs.pytorch.org/docs/stable/generated/torch.sign.html)", "sign()", "[1.5, -2.0, 0.0]", "[1.0, -1.0, 0.0]")]
    pub fn sign(self) -> Self;

    /// Computes the square, `x * x`.
    ///
    #[doc = about!("[`torch.square`](https://docs.pytorch.org/docs/stable/generated/torch.square.html)", "square()", "[1.5, -2.0]", "[2.25, 4.0]")]
    pub fn square(self) -> Self;
}

/// Methods of float tensors. One that is a function of [`Unary`](kiln_ir::Unary) names it: its row defines the method of
/// [`AnyTensor`](crate::AnyTensor) too.
macro_rules! float_functions {
    ($($(#[$doc:meta])* $method:ident $($function:ident)? $link:literal $x:literal $y:literal;)*) => {
        impl<B: Backend, const D: usize> Tensor<B, D, Float> {$(
            $(#[$doc])*
            ///
            #[doc = $crate::tensor::elementwise::about!($link, concat!(stringify!($method), "()"), $x, $y)]
            #[track_caller]
            pub fn $method(self) -> Self {
                self.map(|any| any.$method())
            }
        )*}

        $(float_functions!(@any [$(#[$doc])*] $method $($function)?);)*
    };
    (@any [$(#[$doc:meta])*] $method:ident) => {};
    (@any [$(#[$doc:meta])*] $method:ident $function:ident) => {
        impl $crate::AnyTensor {
            $(#[$doc])*
            #[doc = concat!("See [`Tensor::", stringify!($method), "`](crate::Tensor::", stringify!($method), ").")]
            ///
            /// # Errors
            /// When the dtype is not a float.
            #[inline]
            pub fn $method(self) -> $crate::Result<$crate::AnyTensor> {
                self.unary(kiln_ir::Unary::$function)
            }
        }
    };
}
pub(super) use float_functions;

float_functions! {
    /// Computes the reciprocal, `1 / x`.
    #[doc(alias = "reciprocal")]
    recip Recip "[`torch.reciprocal`](https://docs.pytorch.org/docs/stable/generated/torch.reciprocal.html)"
        "[2.0, -4.0]" "[0.5, -0.25]";
    /// Computes the square root; NaN below 0.
    sqrt Sqrt "[`torch.sqrt`](https://docs.pytorch.org/docs/stable/generated/torch.sqrt.html)"
        "[4.0, 2.25]" "[2.0, 1.5]";
    /// Computes the reciprocal square root, `1 / sqrt(x)`.
    rsqrt Rsqrt "[`torch.rsqrt`](https://docs.pytorch.org/docs/stable/generated/torch.rsqrt.html)"
        "[4.0, 0.25]" "[0.5, 2.0]";
    /// Computes the exponential, `e^x`.
    exp Exp "[`torch.exp`](https://docs.pytorch.org/docs/stable/generated/torch.exp.html)"
        "[0.0, 1.0]" "[1.0, 2.718282]";
    /// Computes `e^x - 1`, accurate near 0.
    expm1 Expm1 "[`torch.expm1`](https://docs.pytorch.org/docs/stable/generated/torch.expm1.html)"
        "[0.001, 1.0]" "[0.0010005, 1.718282]";
    /// Computes the natural logarithm: -∞ at 0, NaN below.
    log Ln "[`torch.log`](https://docs.pytorch.org/docs/stable/generated/torch.log.html)"
        "[1.0, 10.0]" "[0.0, 2.302585]";
    /// Computes `ln(1 + x)`, accurate near 0.
    log1p Log1p "[`torch.log1p`](https://docs.pytorch.org/docs/stable/generated/torch.log1p.html)"
        "[0.001, 1.0]" "[0.0009995003, 0.6931472]";
    /// Computes the sine of angles in radians.
    sin Sin "[`torch.sin`](https://docs.pytorch.org/docs/stable/generated/torch.sin.html)"
        "[0.0, 1.0]" "[0.0, 0.841471]";
    /// Computes the cosine of angles in radians.
    cos Cos "[`torch.cos`](https://docs.pytorch.org/docs/stable/generated/torch.cos.html)"
        "[0.0, 1.0]" "[1.0, 0.5403023]";
    /// Computes the tangent of angles in radians.
    tan Tan "[`torch.tan`](https://docs.pytorch.org/docs/stable/generated/torch.tan.html)"
        "[0.0, 1.0]" "[0.0, 1.557408]";
    /// Computes the hyperbolic tangent.
    tanh Tanh "[`torch.tanh`](https://docs.pytorch.org/docs/stable/generated/torch.tanh.html)"
        "[0.0, 1.0]" "[0.0, 0.7615942]";
    /// Computes the arc tangent, in radians.
    #[doc(alias = "arctan")]
    atan Atan "[`torch.atan`](https://docs.pytorch.org/docs/stable/generated/torch.atan.html)"
        "[0.0, 1.0]" "[0.0, 0.7853982]";
    /// Computes the error function, `2/√π ∫₀ˣ exp(-t²) dt`.
    erf Erf "[`torch.erf`](https://docs.pytorch.org/docs/stable/generated/torch.erf.html)"
        "[0.0, 1.0]" "[0.0, 0.8427008]";
    /// Computes the scaled complementary error function, `exp(x²) erfc(x)`, also where `exp(x²)` overflows.
    erfcx Erfcx "[`torch.special.erfcx`](https://docs.pytorch.org/docs/stable/special.html#torch.special.erfcx)"
        "[0.0, 1.0]" "[1.0, 0.4275836]";
    /// Rounds down to an integer (floor).
    floor Floor "[`torch.floor`](https://docs.pytorch.org/docs/stable/generated/torch.floor.html)"
        "[1.5, -1.5]" "[1.0, -2.0]";
    /// Rounds up to an integer (ceiling).
    ceil Ceil "[`torch.ceil`](https://docs.pytorch.org/docs/stable/generated/torch.ceil.html)"
        "[1.5, -1.5]" "[2.0, -1.0]";
    /// Rounds to the nearest integer, ties to even.
    round Round "[`torch.round`](https://docs.pytorch.org/docs/stable/generated/torch.round.html)"
        "[1.4, 2.5, -0.5]" "[1.0, 2.0, 0.0]";
    /// Rounds towards zero to an integer (truncation).
    trunc Trunc "[`torch.trunc`](https://docs.pytorch.org/docs/stable/generated/torch.trunc.html)"
        "[1.5, -1.5]" "[1.0, -1.0]";
    /// Computes the fractional part, with the sign of the element: `x - trunc(x)`.
    frac "[`torch.frac`](https://docs.pytorch.org/docs/stable/generated/torch.frac.html)"
        "[1.5, -1.25]" "[0.5, -0.25]";
    /// Converts degrees to radians.
    deg2rad "[`torch.deg2rad`](https://docs.pytorch.org/docs/stable/generated/torch.deg2rad.html)"
        "[180.0, -90.0]" "[3.141593, -1.570796]";
    /// Converts radians to degrees.
    rad2deg "[`torch.rad2deg`](https://docs.pytorch.org/docs/stable/generated/torch.rad2deg.html)"
        "[1.0, -0.5]" "[57.29578, -28.64789]";
}

forward! {
    impl[B: Backend, const D: usize] Tensor<B, D, Float>;

    /// Rounds to `decimals` decimal places, ties to even. A negative count rounds to a multiple of a power of ten.
    ///
    #[doc(alias = "round")]
    #[doc = about!("[`torch.round`](https://docs.pytorch.org/docs/stable/generated/torch.round.html)", "round_decimals(1)", "[1.26, -0.54]", "[1.3, -0.5]")]
    pub fn round_decimals(self, decimals: i32) -> Self;

    /// Replaces NaN and the infinities. The defaults of `positive` and `negative` are the greatest and least finite
    /// numbers of the dtype. Defined as
    /// [`torch.nan_to_num`](https://docs.pytorch.org/docs/stable/generated/torch.nan_to_num.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([f32::NAN, f32::INFINITY, 1.0], &device);
    /// let y = x.nan_to_num(0.0, Some(9.0), None);
    /// assert_eq!(y.into_data().to_vec::<f32>(), [0.0, 9.0, 1.0]);
    /// ```
    pub fn nan_to_num(self, nan: f64, positive: Option<f64>, negative: Option<f64>) -> Self;
}
