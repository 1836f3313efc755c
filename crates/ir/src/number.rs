//! Scalar semantics of elementwise functions: floats computed in `f64`, integers in `i128`.
//!
//! The reference engine and the kernel interpreter share this definition. The caller rounds or wraps results to the
//! dtype.

use crate::{Binary, Comparison, DType, Reduction, Scalar, Unary};
use core::cmp::Ordering;

/// The arithmetic type of an element: `f64` for float dtypes, `i128` for integer dtypes and for `bool` as 0 and 1.
///
/// ```
/// use kiln_ir::number::Number;
/// use kiln_ir::{Binary, Comparison, DType, Reduction, Unary};
///
/// assert_eq!(2.25f64.unary(Unary::Sqrt, DType::F32), 1.5);
/// assert_eq!((-7i128).binary(Binary::Rem, 3, DType::I8), -1);
/// assert!(2i128.compares(Comparison::Lt, 3));
/// assert!(1.0f64.combined(Reduction::Max, f64::NAN).is_nan());
/// ```
pub trait Number: Copy + PartialOrd {
    /// Zero.
    const ZERO: Self;

    /// Converts a scalar; to an integer, a float is truncated and saturates.
    fn from_scalar(scalar: Scalar) -> Self;

    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;

    /// The product; integers wrap.
    fn times(self, other: Self) -> Self;

    /// Whether this is a NaN.
    fn is_nan(self) -> bool;

    /// Evaluates [`Op::Unary`](crate::Op::Unary) on an element of the dtype.
    ///
    /// # Panics
    /// When inference rejects the function for the dtype.
    fn unary(self, function: Unary, dtype: DType) -> Self;

    /// Evaluates [`Op::Binary`](crate::Op::Binary) on two elements of the dtype.
    ///
    /// # Panics
    /// When inference rejects the function for the dtype.
    fn binary(self, function: Binary, other: Self, dtype: DType) -> Self;

    /// The minimum; NaN if either is NaN.
    fn lesser(self, other: Self) -> Self {
        if self.is_nan() || self < other { self } else { other }
    }

    /// The maximum; NaN if either is NaN.
    fn greater(self, other: Self) -> Self {
        if self.is_nan() || self > other { self } else { other }
    }

    /// The total order of sorting: NaN is greater than every number and equal to NaN.
    fn order(self, other: Self) -> Ordering {
        self.partial_cmp(&other).unwrap_or_else(|| self.is_nan().cmp(&other.is_nan()))
    }

    /// Whether the comparison is true. With a NaN, only `Ne` is.
    fn compares(self, comparison: Comparison, other: Self) -> bool {
        let order = self.partial_cmp(&other);
        match comparison {
            Comparison::Eq => order == Some(Ordering::Equal),
            Comparison::Ne => order != Some(Ordering::Equal),
            Comparison::Lt => order == Some(Ordering::Less),
            Comparison::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        }
    }

    /// Combines two elements of a reduction.
    fn combined(self, reduction: Reduction, other: Self) -> Self {
        match reduction {
            Reduction::Sum => self.plus(other),
            Reduction::Prod => self.times(other),
            Reduction::Min => self.lesser(other),
            Reduction::Max => self.greater(other),
        }
    }
}

impl Number for f64 {
    const ZERO: f64 = 0.0;

    fn from_scalar(scalar: Scalar) -> f64 {
        scalar.to_f64()
    }

    fn plus(self, other: f64) -> f64 {
        self + other
    }

    fn times(self, other: f64) -> f64 {
        self * other
    }

    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }

    fn unary(self, function: Unary, _dtype: DType) -> f64 {
        match function {
            Unary::Neg => -self,
            Unary::Abs => self.abs(),
            Unary::Sign if self.is_nan() || self == 0.0 => self,
            Unary::Sign => self.signum(),
            Unary::Recip => 1.0 / self,
            Unary::Sqrt => libm::sqrt(self),
            Unary::Rsqrt => 1.0 / libm::sqrt(self),
            Unary::Exp => libm::exp(self),
            Unary::Expm1 => libm::expm1(self),
            Unary::Ln => libm::log(self),
            Unary::Log1p => libm::log1p(self),
            Unary::Sin => libm::sin(self),
            Unary::Cos => libm::cos(self),
            Unary::Tan => libm::tan(self),
            Unary::Tanh => libm::tanh(self),
            Unary::Atan => libm::atan(self),
            Unary::Erf => libm::erf(self),
            Unary::Erfcx => erfcx(self),
            Unary::Floor => libm::floor(self),
            Unary::Ceil => libm::ceil(self),
            Unary::Round => libm::rint(self),
            Unary::Trunc => libm::trunc(self),
            Unary::Not => unreachable!("inference refuses `not` of floats"),
        }
    }

    fn binary(self, function: Binary, other: f64, _dtype: DType) -> f64 {
        match function {
            Binary::Add => self + other,
            Binary::Sub => self - other,
            Binary::Mul => self * other,
            Binary::Div => self / other,
            Binary::Rem => libm::fmod(self, other),
            Binary::Pow => libm::pow(self, other),
            Binary::Min => self.lesser(other),
            Binary::Max => self.greater(other),
            Binary::Atan2 => libm::atan2(self, other),
            Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => {
                unreachable!("inference refuses this function of floats")
            }
        }
    }
}

/// `exp(x²) erfc(x)`. The square is split, so that the exponential is accurate to full precision. From 25 on, where the
/// factors leave the range, it uses eight terms of the [asymptotic expansion](https://dlmf.nist.gov/7.12.E1).
fn erfcx(x: f64) -> f64 {
    if x < -30.0 {
        return f64::INFINITY;
    }
    if x < 25.0 {
        let high = f64::from_bits(x.to_bits() & !0x07ff_ffff);
        let rest = (x - high) * (x + high);
        return libm::exp(high * high) * (libm::exp(rest) * libm::erfc(x));
    }
    let half_square = 0.5 / (x * x);
    let (mut term, mut sum) = (1.0, 0.0);
    for odd in [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0] {
        sum += term;
        term *= -odd * half_square;
    }
    sum * (0.5 * core::f64::consts::FRAC_2_SQRT_PI) / x
}

impl Number for i128 {
    const ZERO: i128 = 0;

    fn from_scalar(scalar: Scalar) -> i128 {
        match scalar {
            Scalar::Float(x) => x as i128,
            Scalar::Int(x) => i128::from(x),
            Scalar::UInt(x) => i128::from(x),
            Scalar::Bool(x) => i128::from(x),
        }
    }

    fn plus(self, other: i128) -> i128 {
        self.wrapping_add(other)
    }

    fn times(self, other: i128) -> i128 {
        self.wrapping_mul(other)
    }

    fn is_nan(self) -> bool {
        false
    }

    fn unary(self, function: Unary, dtype: DType) -> i128 {
        if function == Unary::Neg {
            self.wrapping_neg()
        } else if function == Unary::Abs {
            self.abs()
        } else if function == Unary::Sign {
            self.signum()
        } else if function == Unary::Not {
            if dtype.is_bool() { 1 - self } else { !self }
        } else {
            unreachable!("inference refuses `{}` of integers", function.name())
        }
    }

    fn binary(self, function: Binary, other: i128, dtype: DType) -> i128 {
        let width = dtype.size() as i128 * 8;
        match function {
            Binary::Add => self.plus(other),
            Binary::Sub => self.wrapping_sub(other),
            Binary::Mul => self.times(other),
            Binary::Div => self.checked_div(other).unwrap_or(0),
            Binary::Rem => self.checked_rem(other).unwrap_or(0),
            Binary::Pow => power(self, other),
            Binary::Min => self.lesser(other),
            Binary::Max => self.greater(other),
            Binary::And => self & other,
            Binary::Or => self | other,
            Binary::Xor => self ^ other,
            Binary::Shl if (0..width).contains(&other) => self << other,
            Binary::Shl => 0,
            Binary::Shr if (0..width).contains(&other) => self >> other,
            Binary::Shr => self.signum().min(0),
            Binary::Atan2 => unreachable!("inference refuses the angle of integers"),
        }
    }
}

/// Power modulo 2¹²⁸. A negative exponent returns the real result truncated, which is 0 except for the bases 1 and -1.
/// The base 0 also returns 0, like a division by zero.
fn power(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut power, mut square, mut rest) = (1i128, base, exponent);
    while rest > 0 {
        if rest % 2 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest /= 2;
    }
    power
}
