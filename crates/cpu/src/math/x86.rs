//! Vectors of x86-64: AVX2 with FMA, and AVX-512.

use super::vector::{Double, Single, Vector};
use core::arch::x86_64::*;
use core::ops::{Add, Div, Mul, Sub};

/// Sixteen `f32`, with AVX-512 F and DQ.
#[derive(Clone, Copy)]
pub(crate) struct F32x16(__m512);

/// Eight `f64`, with AVX-512 F and DQ.
#[derive(Clone, Copy)]
pub(crate) struct F64x8(__m512d);

/// Eight `f32`, with AVX2 and FMA.
#[derive(Clone, Copy)]
pub(crate) struct F32x8(__m256);

/// Four `f64`, with AVX2 and FMA.
#[derive(Clone, Copy)]
pub(crate) struct F64x4(__m256d);

/// Implements the functions that are one instruction on every unit.
macro_rules! arithmetic {
    ($name:ident: $add:ident $sub:ident $mul:ident $div:ident) => {
        arithmetic!(@ $name Add add $add);
        arithmetic!(@ $name Sub sub $sub);
        arithmetic!(@ $name Mul mul $mul);
        arithmetic!(@ $name Div div $div);
    };
    (@ $name:ident $trait:ident $method:ident $intrinsic:ident) => {
        impl $trait for $name {
            type Output = $name;
            #[inline(always)]
            fn $method(self, other: $name) -> $name {
                // SAFETY: the type is named only where the processor has the unit.
                $name(unsafe { $intrinsic(self.0, other.0) })
            }
        }
    };
}

arithmetic!(F32x16: _mm512_add_ps _mm512_sub_ps _mm512_mul_ps _mm512_div_ps);
arithmetic!(F64x8: _mm512_add_pd _mm512_sub_pd _mm512_mul_pd _mm512_div_pd);
arithmetic!(F32x8: _mm256_add_ps _mm256_sub_ps _mm256_mul_ps _mm256_div_ps);
arithmetic!(F64x4: _mm256_add_pd _mm256_sub_pd _mm256_mul_pd _mm256_div_pd);

/// Methods that are one expression of intrinsics.
macro_rules! methods {
    ($(fn $name:ident $(<const $by:ident: u32>)? ($($arg:ident: $ty:ty),*) $(-> $result:ty)? = $value:expr;)*) => {$(
        #[inline(always)]
        fn $name $(<const $by: u32>)? ($($arg: $ty),*) $(-> $result)? {
            // SAFETY: the type is named only where the processor has the unit.
            unsafe { $value }
        }
    )*};
}

macro_rules! memory {
    ($element:ty, $load:ident, $store:ident, $stream:ident) => {
        #[inline(always)]
        unsafe fn load(from: *const $element) -> Self {
            // SAFETY: as the caller promises.
            Self(unsafe { $load(from) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut $element) {
            // SAFETY: as the caller promises.
            unsafe { $store(to, self.0) }
        }

        #[inline(always)]
        unsafe fn stream(self, to: *mut $element) {
            // SAFETY: as the caller promises.
            unsafe { $stream(to, self.0) }
        }
    };
}

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

macro_rules! avx512 {
    ($name:ident, $element:ty, $mask:ty, $lanes:literal, [$load:ident $store:ident $stream:ident],
     [$maskz_load:ident $mask_store:ident], [$splat:ident $fmadd:ident $fnmadd:ident $min:ident $max:ident
     $round:ident $scalef:ident], [$getmant:ident $getexp:ident $mask_add:ident], [$and:ident $xor:ident $or:ident
     $andnot:ident], [$to:ident $from:ident $slli:ident $srli:ident $addi:ident], [$cmp:ident $blend:ident]) => {
        impl Vector for $name {
            type Element = $element;
            type Mask = $mask;
            const LANES: usize = $lanes;

            memory!($element, $load, $store, $stream);

            #[inline(always)]
            unsafe fn load_some(from: *const $element, count: usize) -> Self {
                // SAFETY: lanes outside of the mask are not accessed.
                Self(unsafe { $maskz_load(!(<$mask>::MAX << count), from) })
            }

            #[inline(always)]
            unsafe fn store_some(self, to: *mut $element, count: usize) {
                // SAFETY: as above.
                unsafe { $mask_store(to, !(<$mask>::MAX << count), self.0) }
            }

            methods! {
                fn splat(element: $element) -> Self = Self($splat(element));
                fn mul_add(self: Self, b: Self, c: Self) -> Self = Self($fmadd(self.0, b.0, c.0));
                fn neg_mul_add(self: Self, b: Self, c: Self) -> Self = Self($fnmadd(self.0, b.0, c.0));
                fn min(self: Self, other: Self) -> Self = Self($min(self.0, other.0));
                fn max(self: Self, other: Self) -> Self = Self($max(self.0, other.0));
                fn round(self: Self) -> Self = Self($round::<NEAREST>(self.0));
                fn scale(self: Self, n: Self) -> Self = Self($scalef(self.0, n.0));
                fn bits_and(self: Self, other: Self) -> Self = Self($and(self.0, other.0));
                fn bits_xor(self: Self, other: Self) -> Self = Self($xor(self.0, other.0));
                fn bits_or(self: Self, other: Self) -> Self = Self($or(self.0, other.0));
                fn bits_without(self: Self, other: Self) -> Self = Self($andnot(other.0, self.0));
                fn bits_left<const BY: u32>(self: Self) -> Self = Self($from($slli::<BY>($to(self.0))));
                fn bits_right<const BY: u32>(self: Self) -> Self = Self($from($srli::<BY>($to(self.0))));
                fn bits_add(self: Self, other: Self) -> Self = Self($from($addi($to(self.0), $to(other.0))));
                fn lt(self: Self, other: Self) -> $mask = $cmp::<_CMP_LT_OQ>(self.0, other.0);
                fn eq(self: Self, other: Self) -> $mask = $cmp::<_CMP_EQ_OQ>(self.0, other.0);
                fn is_nan(self: Self) -> $mask = $cmp::<_CMP_UNORD_Q>(self.0, self.0);
                fn select(mask: $mask, a: Self, b: Self) -> Self = Self($blend(mask, b.0, a.0));
                fn sign_bit() -> Self = Self($splat(-0.0));
            }

            #[inline(always)]
            fn both(a: $mask, b: $mask) -> $mask {
                a & b
            }

            #[inline(always)]
            fn split(self) -> (Self, Self) {
                // SAFETY: the type is named only where the processor has the unit.
                unsafe {
                    let m = $getmant::<_MM_MANT_NORM_P75_1P5, _MM_MANT_SIGN_NAN>(self.0);
                    let e = $getexp(self.0);
                    // For mantissas that were halved.
                    let halved = $cmp::<_CMP_LT_OQ>(m, $splat(1.0));
                    (Self(m), Self($mask_add(e, halved, e, $splat(1.0))))
                }
            }
        }
    };
}

avx512!(
    F32x16, f32, __mmask16, 16,
    [_mm512_loadu_ps _mm512_storeu_ps _mm512_stream_ps],
    [_mm512_maskz_loadu_ps _mm512_mask_storeu_ps],
    [_mm512_set1_ps _mm512_fmadd_ps _mm512_fnmadd_ps _mm512_min_ps _mm512_max_ps _mm512_roundscale_ps
     _mm512_scalef_ps],
    [_mm512_getmant_ps _mm512_getexp_ps _mm512_mask_add_ps],
    [_mm512_and_ps _mm512_xor_ps _mm512_or_ps _mm512_andnot_ps],
    [_mm512_castps_si512 _mm512_castsi512_ps _mm512_slli_epi32 _mm512_srli_epi32 _mm512_add_epi32],
    [_mm512_cmp_ps_mask _mm512_mask_blend_ps]
);

avx512!(
    F64x8, f64, __mmask8, 8,
    [_mm512_loadu_pd _mm512_storeu_pd _mm512_stream_pd],
    [_mm512_maskz_loadu_pd _mm512_mask_storeu_pd],
    [_mm512_set1_pd _mm512_fmadd_pd _mm512_fnmadd_pd _mm512_min_pd _mm512_max_pd _mm512_roundscale_pd
     _mm512_scalef_pd],
    [_mm512_getmant_pd _mm512_getexp_pd _mm512_mask_add_pd],
    [_mm512_and_pd _mm512_xor_pd _mm512_or_pd _mm512_andnot_pd],
    [_mm512_castpd_si512 _mm512_castsi512_pd _mm512_slli_epi64 _mm512_srli_epi64 _mm512_add_epi64],
    [_mm512_cmp_pd_mask _mm512_mask_blend_pd]
);

macro_rules! avx2 {
    ($name:ident, $element:ident, $mask:ty, $lanes:literal, [$load:ident $store:ident $stream:ident],
     [$splat:ident $fmadd:ident $fnmadd:ident $min:ident $max:ident $round:ident], [$and:ident $xor:ident
     $or:ident $andnot:ident], [$to:ident $from:ident $slli:ident $srli:ident $addi:ident $subi:ident],
     [$cmp:ident $blend:ident]) => {
        impl Vector for $name {
            type Element = $element;
            type Mask = $mask;
            const LANES: usize = $lanes;

            memory!($element, $load, $store, $stream);

            methods! {
                fn splat(element: $element) -> Self = Self($splat(element));
                fn mul_add(self: Self, b: Self, c: Self) -> Self = Self($fmadd(self.0, b.0, c.0));
                fn neg_mul_add(self: Self, b: Self, c: Self) -> Self = Self($fnmadd(self.0, b.0, c.0));
                fn min(self: Self, other: Self) -> Self = Self($min(self.0, other.0));
                fn max(self: Self, other: Self) -> Self = Self($max(self.0, other.0));
                fn round(self: Self) -> Self = Self($round::<NEAREST>(self.0));
                fn bits_and(self: Self, other: Self) -> Self = Self($and(self.0, other.0));
                fn bits_xor(self: Self, other: Self) -> Self = Self($xor(self.0, other.0));
                fn bits_or(self: Self, other: Self) -> Self = Self($or(self.0, other.0));
                fn bits_without(self: Self, other: Self) -> Self = Self($andnot(other.0, self.0));
                fn lt(self: Self, other: Self) -> $mask = $cmp::<_CMP_LT_OQ>(self.0, other.0);
                fn eq(self: Self, other: Self) -> $mask = $cmp::<_CMP_EQ_OQ>(self.0, other.0);
                fn is_nan(self: Self) -> $mask = $cmp::<_CMP_UNORD_Q>(self.0, self.0);
                fn select(mask: $mask, a: Self, b: Self) -> Self = Self($blend(b.0, a.0, mask));
                fn both(a: $mask, b: $mask) -> $mask = $and(a, b);
                fn sign_bit() -> Self = Self($splat(-0.0));
                fn bits_add(self: Self, other: Self) -> Self = Self($from($addi($to(self.0), $to(other.0))));
            }

            #[inline(always)]
            fn bits_left<const BY: u32>(self) -> Self {
                // SAFETY: the type is named only where the processor has the unit.
                Self(unsafe { $from($slli($to(self.0), _mm_cvtsi32_si128(BY as i32))) })
            }

            #[inline(always)]
            fn bits_right<const BY: u32>(self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $from($srli($to(self.0), _mm_cvtsi32_si128(BY as i32))) })
            }

            #[inline(always)]
            fn scale(self, n: Self) -> Self {
                const FRACTION: u32 = <$element>::MANTISSA_DIGITS - 1;
                /// Adding this moves integers into the lowest bits.
                const SHIFT: $element = 1.5 * (1u64 << FRACTION) as $element;
                // In two steps: 2^n may exceed the normal numbers while the result does not.
                let half = (n * Self::splat(0.5)).round();
                let power = |n: Self| {
                    let biased = n + Self::splat(SHIFT + (<$element>::MAX_EXP - 1) as $element);
                    biased.bits_left::<FRACTION>()
                };
                self * power(half) * power(n - half)
            }

            #[inline(always)]
            fn split(self) -> (Self, Self) {
                const FRACTION: u32 = <$element>::MANTISSA_DIGITS - 1;
                /// Its low bits are 0, so that small integers added to it appear in the low bits.
                const SHIFT: $element = (1u64 << FRACTION) as $element;
                const TINY: $element = (1u64 << FRACTION) as $element;
                const BIAS: $element = (<$element>::MAX_EXP - 1) as $element;
                let tiny = self.lt(Self::splat(<$element>::MIN_POSITIVE));
                let x = Self::select(tiny, self * Self::splat(TINY), self);
                let lowered = Self::select(tiny, Self::splat(FRACTION as $element + BIAS), Self::splat(BIAS));
                // SAFETY: the type is named only where the processor has the unit.
                let (m, e) = unsafe {
                    let low = $to($splat(0.75));
                    let one = $to($splat(1.0));
                    let above = $addi($subi($to(x.0), low), one);
                    let e = Self($from(above)).bits_right::<FRACTION>();
                    let whole = e.bits_left::<FRACTION>();
                    let m = $addi($subi($to(x.0), $to(whole.0)), one);
                    // As a float: integers are the low bits of a number from which this one is subtracted.
                    let e = Self($or(e.0, $splat(SHIFT))) - Self::splat(SHIFT);
                    (Self($from(m)), e - lowered)
                };
                let zero = Self::splat(0.0);
                let infinity = Self::splat(<$element>::INFINITY);
                let e = Self::select(self.eq(zero), zero - infinity, e);
                let special = Self::select(self.lt(zero), Self::splat(<$element>::NAN), self);
                // Negative numbers, infinity and NaN return a special value as the exponent.
                let strange = Self::select(special.lt(infinity), zero, special);
                (Self::select(self.lt(infinity), m, Self::splat(1.0)), e + strange)
            }
        }
    };
}

avx2!(
    F32x8, f32, __m256, 8,
    [_mm256_loadu_ps _mm256_storeu_ps _mm256_stream_ps],
    [_mm256_set1_ps _mm256_fmadd_ps _mm256_fnmadd_ps _mm256_min_ps _mm256_max_ps _mm256_round_ps],
    [_mm256_and_ps _mm256_xor_ps _mm256_or_ps _mm256_andnot_ps],
    [_mm256_castps_si256 _mm256_castsi256_ps _mm256_sll_epi32 _mm256_srl_epi32 _mm256_add_epi32 _mm256_sub_epi32],
    [_mm256_cmp_ps _mm256_blendv_ps]
);

avx2!(
    F64x4, f64, __m256d, 4,
    [_mm256_loadu_pd _mm256_storeu_pd _mm256_stream_pd],
    [_mm256_set1_pd _mm256_fmadd_pd _mm256_fnmadd_pd _mm256_min_pd _mm256_max_pd _mm256_round_pd],
    [_mm256_and_pd _mm256_xor_pd _mm256_or_pd _mm256_andnot_pd],
    [_mm256_castpd_si256 _mm256_castsi256_pd _mm256_sll_epi64 _mm256_srl_epi64 _mm256_add_epi64 _mm256_sub_epi64],
    [_mm256_cmp_pd _mm256_blendv_pd]
);

impl Single for F32x16 {
    type Double = F64x8;

    methods! {
        fn widen(self: Self) -> [F64x8; 2] = [
            F64x8(_mm512_cvtps_pd(_mm512_castps512_ps256(self.0))),
            F64x8(_mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(self.0))),
        ];
        fn narrow(halves: [F64x8; 2]) -> Self = {
            let low = _mm512_castps256_ps512(_mm512_cvtpd_ps(halves[0].0));
            Self(_mm512_insertf32x8::<1>(low, _mm512_cvtpd_ps(halves[1].0)))
        };
        fn lookup(self: Self, table: &[f32; 16]) -> Self = {
            Self(_mm512_permutexvar_ps(_mm512_castps_si512(self.0), _mm512_loadu_ps(table.as_ptr())))
        };
    }
}

impl Double for F64x8 {
    #[inline(always)]
    fn running_sums(self) -> Self {
        let sums = self + self.moved_on();
        let sums = sums + sums.moved_by::<6>();
        sums + sums.moved_by::<4>()
    }

    #[inline(always)]
    fn moved_on(self) -> Self {
        self.moved_by::<7>()
    }

    methods! {
        fn last(self: Self) -> Self = Self(_mm512_permutexvar_pd(_mm512_set1_epi64(7), self.0));
    }
}

impl F64x8 {
    /// Shifts the lanes up by eight minus `FROM`, filling with zeros.
    #[inline(always)]
    fn moved_by<const FROM: i32>(self) -> Self {
        // SAFETY: the type is named only where the processor has the unit.
        unsafe {
            let lanes = _mm512_castpd_si512(self.0);
            Self(_mm512_castsi512_pd(_mm512_alignr_epi64::<FROM>(lanes, _mm512_setzero_si512())))
        }
    }
}

impl Double for F64x4 {
    #[inline(always)]
    fn running_sums(self) -> Self {
        let sums = self + self.moved_on();
        // SAFETY: the type is named only where the processor has the unit.
        sums + Self(unsafe { _mm256_permute2f128_pd::<0x08>(sums.0, sums.0) })
    }

    methods! {
        fn moved_on(self: Self) -> Self = {
            Self(_mm256_blend_pd::<1>(_mm256_permute4x64_pd::<0b10_01_00_00>(self.0), _mm256_setzero_pd()))
        };
        fn last(self: Self) -> Self = Self(_mm256_permute4x64_pd::<0xff>(self.0));
    }
}

impl Single for F32x8 {
    type Double = F64x4;

    methods! {
        fn widen(self: Self) -> [F64x4; 2] = [
            F64x4(_mm256_cvtps_pd(_mm256_castps256_ps128(self.0))),
            F64x4(_mm256_cvtps_pd(_mm256_extractf128_ps::<1>(self.0))),
        ];
        fn narrow(halves: [F64x4; 2]) -> Self = {
            Self(_mm256_set_m128(_mm256_cvtpd_ps(halves[1].0), _mm256_cvtpd_ps(halves[0].0)))
        };
        fn lookup(self: Self, table: &[f32; 16]) -> Self = {
            let index = _mm256_castps_si256(self.0);
            let low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table.as_ptr()), index);
            let high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table.as_ptr().add(8)), index);
            // The fourth bit, as the sign bit.
            Self(_mm256_blendv_ps(low, high, self.bits_left::<28>().0))
        };
    }
}
