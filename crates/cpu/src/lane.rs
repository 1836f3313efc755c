//! The element arithmetic of each dtype, as the ops define it.

use crate::functions::{Elementary, float_function};
use crate::half_float::HalfFloat;
use crate::isa::Widest;
use crate::math;
use half::{bf16, f16};
use kiln_ir::Element;

/// Binary functions and comparisons of all element types. `u8` also represents `bool` in comparisons.
pub(crate) trait Lane: Element {
    /// The widest instruction set for loops over such elements.
    const WIDEST: Widest;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn pow(self, other: Self) -> Self;
    /// The minimum; NaN if either is NaN.
    fn min(self, other: Self) -> Self;
    /// The maximum; NaN if either is NaN.
    fn max(self, other: Self) -> Self;
    fn eq(self, other: Self) -> bool;
    fn lt(self, other: Self) -> bool;
    fn le(self, other: Self) -> bool;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn sign(self) -> Self;
    /// Whether the element is NaN (not equal to itself).
    fn is_nan(self) -> bool;
}

/// Additional functions of integers.
pub(crate) trait Bits: Lane {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn shl(self, other: Self) -> Self;
    fn shr(self, other: Self) -> Self;
    fn not(self) -> Self;
}

/// Additional functions of floats.
pub(crate) trait FloatLane: Elementary {
    fn recip(self) -> Self;
    fn sqrt(self) -> Self;
    fn rsqrt(self) -> Self;
    fn atan2(self, other: Self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn round(self) -> Self;
    fn trunc(self) -> Self;
}

macro_rules! float_lane {
    ($ty:ty, $pow:ident) => {
        impl Lane for $ty {
            const WIDEST: Widest = Widest::Avx512;
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                self / other
            }
            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                self % other
            }
            #[inline(always)]
            fn pow(self, other: Self) -> Self {
                float_function!(self, powf, $pow, other)
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                if self < other || self != self { self } else { other }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if self > other || self != self { self } else { other }
            }
            #[inline(always)]
            fn eq(self, other: Self) -> bool {
                self == other
            }
            #[inline(always)]
            fn lt(self, other: Self) -> bool {
                self < other
            }
            #[inline(always)]
            fn le(self, other: Self) -> bool {
                self <= other
            }
            #[inline(always)]
            fn neg(self) -> Self {
                -self
            }
            #[inline(always)]
            fn abs(self) -> Self {
                self.abs()
            }
            #[inline(always)]
            fn sign(self) -> Self {
                let magnitude = if self == 0.0 { 0.0 } else { 1.0 };
                if self != self { self } else { <$ty>::copysign(magnitude, self) }
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self != self
            }
        }
    };
}

float_lane!(f64, pow);
float_lane!(f32, powf);

macro_rules! rounding {
    ($ty:ty, $floor:ident, $ceil:ident, $rint:ident, $trunc:ident, $sqrt:ident) => {
        #[inline(always)]
        fn recip(self) -> Self {
            1.0 / self
        }
        #[inline(always)]
        fn sqrt(self) -> Self {
            float_function!(self, sqrt, $sqrt)
        }
        #[inline(always)]
        fn rsqrt(self) -> Self {
            1.0 / float_function!(self, sqrt, $sqrt)
        }
        #[inline(always)]
        fn floor(self) -> Self {
            float_function!(self, floor, $floor)
        }
        #[inline(always)]
        fn ceil(self) -> Self {
            float_function!(self, ceil, $ceil)
        }
        #[inline(always)]
        fn round(self) -> Self {
            float_function!(self, round_ties_even, $rint)
        }
        #[inline(always)]
        fn trunc(self) -> Self {
            float_function!(self, trunc, $trunc)
        }
    };
}

impl FloatLane for f32 {
    rounding!(f32, floorf, ceilf, rintf, truncf, sqrtf);
    #[inline(always)]
    fn atan2(self, other: Self) -> Self {
        math::atan2(self, other)
    }
}

impl FloatLane for f64 {
    rounding!(f64, floor, ceil, rint, trunc, sqrt);
    fn atan2(self, other: Self) -> Self {
        float_function!(self, atan2, atan2, other)
    }
}

macro_rules! narrow_lane {
    ($($ty:ty),*) => {$(
        impl Lane for $ty {
            const WIDEST: Widest = Widest::Avx2;
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                <$ty>::narrow(self.widen() + other.widen())
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                <$ty>::narrow(self.widen() - other.widen())
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                <$ty>::narrow(self.widen() * other.widen())
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                <$ty>::narrow(self.widen() / other.widen())
            }
            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                <$ty>::narrow(self.widen() % other.widen())
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                <$ty>::narrow(Lane::min(self.widen(), other.widen()))
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                <$ty>::narrow(Lane::max(self.widen(), other.widen()))
            }
            #[inline(always)]
            fn pow(self, other: Self) -> Self {
                <$ty>::narrow(Lane::pow(self.widen(), other.widen()))
            }
            #[inline(always)]
            fn eq(self, other: Self) -> bool {
                self.widen() == other.widen()
            }
            #[inline(always)]
            fn lt(self, other: Self) -> bool {
                self.widen() < other.widen()
            }
            #[inline(always)]
            fn le(self, other: Self) -> bool {
                self.widen() <= other.widen()
            }
            #[inline(always)]
            fn neg(self) -> Self {
                <$ty>::from_bits(self.to_bits() ^ 0x8000)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                <$ty>::from_bits(self.to_bits() & 0x7fff)
            }
            #[inline(always)]
            fn sign(self) -> Self {
                <$ty>::narrow(Lane::sign(self.widen()))
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                Lane::is_nan(self.widen())
            }
        }
    )*};
}

narrow_lane!(f16, bf16);

macro_rules! int_lane {
    ($($ty:ty, $unsigned:ty, $abs:expr, $sign:expr, $negative_power:expr;)*) => {$(
        impl Lane for $ty {
            const WIDEST: Widest = Widest::Avx2;
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_rem(other) }
            }
            fn pow(self, other: Self) -> Self {
                let negative: fn($ty, $ty) -> Option<$ty> = $negative_power;
                if let Some(power) = negative(self, other) {
                    return power;
                }
                let (mut power, mut square, mut rest): ($ty, $ty, $ty) = (1, self, other);
                while rest > 0 {
                    if rest & 1 == 1 {
                        power = power.wrapping_mul(square);
                    }
                    square = square.wrapping_mul(square);
                    rest >>= 1;
                }
                power
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            #[inline(always)]
            fn eq(self, other: Self) -> bool {
                self == other
            }
            #[inline(always)]
            fn lt(self, other: Self) -> bool {
                self < other
            }
            #[inline(always)]
            fn le(self, other: Self) -> bool {
                self <= other
            }
            #[inline(always)]
            fn neg(self) -> Self {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $abs(self)
            }
            #[inline(always)]
            fn sign(self) -> Self {
                $sign(self)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
        }

        impl Bits for $ty {
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            #[inline(always)]
            fn shl(self, other: Self) -> Self {
                // As unsigned, a negative amount is a large one.
                let amount = other as $unsigned;
                let shifted = self.wrapping_shl(amount as u32);
                if amount < <$ty>::BITS as $unsigned { shifted } else { 0 }
            }
            #[inline(always)]
            fn shr(self, other: Self) -> Self {
                let amount = other as $unsigned;
                let shifted = self.wrapping_shr(amount as u32);
                let emptied = if <$ty>::MIN == 0 { 0 } else { self.wrapping_shr(<$ty>::BITS - 1) };
                if amount < <$ty>::BITS as $unsigned { shifted } else { emptied }
            }
            #[inline(always)]
            fn not(self) -> Self {
                !self
            }
        }
    )*};
}

macro_rules! signed {
    ($($ty:ty, $unsigned:ty;)*) => {
        int_lane! {$(
            $ty, $unsigned, <$ty>::wrapping_abs, <$ty>::signum, |base, exponent| {
                if exponent >= 0 {
                    return None;
                }
                Some(match base {
                    1 => 1,
                    -1 if exponent & 1 == 0 => 1,
                    -1 => -1,
                    _ => 0,
                })
            };
        )*}
    };
}

macro_rules! unsigned {
    ($($ty:ty;)*) => {
        int_lane! {$(
            $ty, $ty, core::convert::identity, |x: $ty| (x != 0) as $ty, |_, _| None;
        )*}
    };
}

signed! { i64, u64; i32, u32; i16, u16; i8, u8; }
unsigned! { u64; u32; u16; u8; }
