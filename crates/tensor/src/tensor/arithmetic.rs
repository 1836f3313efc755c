//! Arithmetic of numbers: floats and integers.

use crate::{Backend, Float, Int, Number, Numeric, Tensor};
use kiln_ir::{Binary, Unary};

#[allow(
    clippy::should_implement_trait,
    reason = "the operators are implemented too; chains of methods read better"
)]
impl<B: Backend, const D: usize, K: Numeric> Tensor<B, D, K> {
    /// `self + other`; broadcasts.
    #[track_caller]
    pub fn add(self, other: Self) -> Self {
        self + other
    }

    /// `self - other`; broadcasts.
    #[track_caller]
    pub fn sub(self, other: Self) -> Self {
        self - other
    }

    /// `self * other`, element by element; broadcasts.
    #[track_caller]
    pub fn mul(self, other: Self) -> Self {
        self * other
    }

    /// `self / other`; broadcasts. Integers truncate towards zero and give 0 for a zero divisor.
    #[track_caller]
    pub fn div(self, other: Self) -> Self {
        self / other
    }

    /// `self + x`.
    #[track_caller]
    pub fn add_scalar(self, x: impl Number) -> Self {
        self + x.scalar()
    }

    /// `self - x`.
    #[track_caller]
    pub fn sub_scalar(self, x: impl Number) -> Self {
        self - x.scalar()
    }

    /// `self * x`.
    #[track_caller]
    pub fn mul_scalar(self, x: impl Number) -> Self {
        self * x.scalar()
    }

    /// `self / x`.
    #[track_caller]
    pub fn div_scalar(self, x: impl Number) -> Self {
        self / x.scalar()
    }

    /// `-self`.
    #[track_caller]
    pub fn neg(self) -> Self {
        -self
    }

    /// The absolute value.
    #[track_caller]
    pub fn abs(self) -> Self {
        self.map(|any| any.unary(Unary::Abs))
    }

    /// -1, 0 or 1.
    #[track_caller]
    pub fn sign(self) -> Self {
        self.map(|any| any.unary(Unary::Sign))
    }

    /// `self * self`.
    #[track_caller]
    pub fn square(self) -> Self {
        self.clone() * self
    }

    /// The remainder with the sign of the divisor, as Python's `%`; broadcasts. The operator `%` gives
    /// the remainder of the truncated division, with the sign of the dividend.
    #[track_caller]
    pub fn remainder(self, divisor: Self) -> Self {
        let rest = self % divisor.clone();
        let signs_differ = rest.clone().lower_elem(0).bool_xor(divisor.clone().lower_elem(0));
        let adjust = rest.clone().not_equal_elem(0).bool_and(signs_differ);
        rest.clone().mask_where(adjust, rest + divisor)
    }

    /// To the power of another tensor; broadcasts.
    #[track_caller]
    pub fn pow(self, exponent: Self) -> Self {
        self.map(|any| any.binary(Binary::Pow, exponent.into_any()))
    }

    /// To the power of an integer.
    #[track_caller]
    pub fn powi_scalar(self, exponent: i32) -> Self {
        match exponent {
            1 => self,
            2 => self.square(),
            _ => self.map(|any| any.binary_scalar(Binary::Pow, exponent)),
        }
    }

    /// The lesser of two elements; broadcasts. NaN if either is.
    #[track_caller]
    pub fn min_pair(self, other: Self) -> Self {
        self.map(|any| any.binary(Binary::Min, other.into_any()))
    }

    /// The greater of two elements; broadcasts. NaN if either is.
    #[track_caller]
    pub fn max_pair(self, other: Self) -> Self {
        self.map(|any| any.binary(Binary::Max, other.into_any()))
    }

    /// Elements cut to `[low, high]`.
    #[track_caller]
    pub fn clamp(self, low: impl Number, high: impl Number) -> Self {
        self.clamp_min(low).clamp_max(high)
    }

    /// Elements not below `low`.
    #[track_caller]
    pub fn clamp_min(self, low: impl Number) -> Self {
        self.map(|any| any.binary_scalar(Binary::Max, low))
    }

    /// Elements not above `high`.
    #[track_caller]
    pub fn clamp_max(self, high: impl Number) -> Self {
        self.map(|any| any.binary_scalar(Binary::Min, high))
    }

    /// Matrix products over the last two axes, `[.., m, k] x [.., k, n] -> [.., m, n]`; the axes before broadcast.
    ///
    /// # Panics
    /// When inner or batch sizes differ, or with fewer than two axes.
    #[track_caller]
    pub fn matmul(self, other: Self) -> Self {
        self.map(|any| any.matmul(other.into_any()))
    }
}

impl<B: Backend, K: Numeric> Tensor<B, 1, K> {
    /// The sum of the products of the elements, of shape `[1]`.
    #[track_caller]
    pub fn dot(self, other: Self) -> Self {
        (self * other).sum()
    }
}

macro_rules! float_functions {
    ($($(#[$doc:meta])* $method:ident $function:ident;)*) => {
        impl<B: Backend, const D: usize> Tensor<B, D, Float> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $method(self) -> Self {
                self.map(|any| any.unary(Unary::$function))
            }
        )*}
    };
}

float_functions! {
    /// `1 / x`.
    recip Recip;
    /// Square root.
    sqrt Sqrt;
    /// `1 / sqrt(x)`.
    rsqrt Rsqrt;
    /// `e^x`.
    exp Exp;
    /// `e^x - 1`, accurate near 0.
    expm1 Expm1;
    /// Natural logarithm.
    log Ln;
    /// `ln(1 + x)`, accurate near 0.
    log1p Log1p;
    /// Sine of radians.
    sin Sin;
    /// Cosine of radians.
    cos Cos;
    /// Tangent of radians.
    tan Tan;
    /// Hyperbolic tangent.
    tanh Tanh;
    /// Arc tangent, in radians.
    atan Atan;
    /// The error function, `2/√π ∫₀ˣ exp(-t²) dt`.
    erf Erf;
    /// The greatest whole number not above.
    floor Floor;
    /// The least whole number not below.
    ceil Ceil;
    /// The nearest whole number, ties to even.
    round Round;
    /// The whole part, towards zero.
    trunc Trunc;
}

impl<B: Backend, const D: usize> Tensor<B, D, Float> {
    /// To the power of another tensor; broadcasts.
    #[track_caller]
    pub fn powf(self, exponent: Self) -> Self {
        self.pow(exponent)
    }

    /// To the power of a number.
    #[track_caller]
    pub fn powf_scalar(self, exponent: f64) -> Self {
        if exponent == 2.0 {
            return self.square();
        }
        self.map(|any| any.binary_scalar(Binary::Pow, exponent))
    }

    /// To the power of integers; broadcasts.
    #[track_caller]
    pub fn powi(self, exponent: Tensor<B, D, Int>) -> Self {
        let dtype = self.dtype();
        self.map(|any| any.binary(Binary::Pow, exponent.into_any().cast(dtype)?))
    }

    /// The angle of the point `(other, self)`, in radians; broadcasts.
    #[track_caller]
    pub fn atan2(self, other: Self) -> Self {
        self.map(|any| any.binary(Binary::Atan2, other.into_any()))
    }
}
