//! The vector units of x86-64.

use super::{Format, Kernel, Simd, Widen};
use core::arch::x86_64::*;

/// 256-bit vectors with fused multiply-add (AVX2, FMA).
#[derive(Clone, Copy)]
pub(super) struct Avx2;

/// 512-bit vectors with masks (AVX-512).
#[derive(Clone, Copy)]
pub(super) struct Avx512;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn avx512<T, K: Kernel<T>>(kernel: K) -> K::Output
where
    Avx512: Simd<T>,
{
    // SAFETY: the caller has detected the unit, and vouches for the kernel.
    unsafe { kernel.run::<Avx512>() }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn avx2<T, K: Kernel<T>>(kernel: K) -> K::Output
where
    Avx2: Simd<T>,
{
    // SAFETY: the caller has detected the unit, and vouches for the kernel.
    unsafe { kernel.run::<Avx2>() }
}

/// The intrinsics that differ between element types only in their names.
macro_rules! unit {
    ($unit:ty, $ty:ty, $vector:ty, $lanes:literal, $registers:literal,
     $load:ident, $store:ident, $splat:ident, $mul_add:ident, $add:ident, $sub:ident) => {
        const LANES: usize = $lanes;
        const REGISTERS: usize = $registers;
        type Vector = $vector;

        #[inline(always)]
        unsafe fn load(from: *const $ty) -> $vector {
            // SAFETY: the caller vouches for the unit and the elements.
            unsafe { $load(from) }
        }

        #[inline(always)]
        unsafe fn store(to: *mut $ty, vector: $vector) {
            // SAFETY: the caller vouches for the unit and the elements.
            unsafe { $store(to, vector) }
        }

        #[inline(always)]
        unsafe fn splat(element: $ty) -> $vector {
            // SAFETY: the caller vouches for the unit.
            unsafe { $splat(element) }
        }

        #[inline(always)]
        unsafe fn mul_add(a: $vector, b: $vector, c: $vector) -> $vector {
            // SAFETY: the caller vouches for the unit.
            unsafe { $mul_add(a, b, c) }
        }

        #[inline(always)]
        unsafe fn add(a: $vector, b: $vector) -> $vector {
            // SAFETY: the caller vouches for the unit.
            unsafe { $add(a, b) }
        }

        #[inline(always)]
        unsafe fn sub(a: $vector, b: $vector) -> $vector {
            // SAFETY: the caller vouches for the unit.
            unsafe { $sub(a, b) }
        }

        #[inline(always)]
        unsafe fn prefetch(at: *const $ty) {
            // SAFETY: the instruction takes any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }
    };
}

impl Simd<f32> for Avx512 {
    #[rustfmt::skip]
    unit!(Avx512, f32, __m512, 16, 32, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps,
          _mm512_add_ps, _mm512_sub_ps);

    #[inline(always)]
    unsafe fn load_some(from: *const f32, count: usize) -> __m512 {
        // SAFETY: the caller vouches for the unit and the elements that the mask selects.
        unsafe { _mm512_maskz_loadu_ps(first(count) as u16, from) }
    }

    #[inline(always)]
    unsafe fn store_some(to: *mut f32, vector: __m512, count: usize) {
        // SAFETY: the caller vouches for the unit and the elements that the mask selects.
        unsafe { _mm512_mask_storeu_ps(to, first(count) as u16, vector) }
    }

    #[inline(always)]
    unsafe fn store_lanes(to: *mut f32, vector: __m512, lanes: u32) {
        let (all, lanes) = (first(lanes.count_ones() as usize) as u16, lanes as u16);
        // SAFETY: the caller vouches for the unit and the elements that the mask selects. (Compressing straight into
        // memory is slow on some processors.)
        unsafe { _mm512_mask_storeu_ps(to, all, _mm512_maskz_compress_ps(lanes, vector)) }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const f32, from_row: isize, to: *mut f32, to_row: isize) {
        // SAFETY: the caller vouches for the unit and the squares.
        unsafe {
            let mut rows = [_mm512_setzero_ps(); 16];
            for i in 0..16 {
                rows[i] = _mm512_loadu_ps(from.offset(i as isize * from_row));
            }
            let mut pairs = rows;
            for i in 0..8 {
                pairs[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
                pairs[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
            }
            // Lane `l` of `fours[4 i + j]` is column `4 l + j` of rows `4 i ..`.
            let mut fours = rows;
            for i in 0..4 {
                let [a, b, c, d] = [pairs[4 * i], pairs[4 * i + 1], pairs[4 * i + 2], pairs[4 * i + 3]];
                fours[4 * i] = _mm512_shuffle_ps::<0x44>(a, c);
                fours[4 * i + 1] = _mm512_shuffle_ps::<0xEE>(a, c);
                fours[4 * i + 2] = _mm512_shuffle_ps::<0x44>(b, d);
                fours[4 * i + 3] = _mm512_shuffle_ps::<0xEE>(b, d);
            }
            for j in 0..4 {
                let [a, b, c, d] = [fours[j], fours[4 + j], fours[8 + j], fours[12 + j]];
                let (even, odd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xDD>(a, b));
                let (even2, odd2) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xDD>(c, d));
                let columns = [
                    _mm512_shuffle_f32x4::<0x88>(even, even2),
                    _mm512_shuffle_f32x4::<0x88>(odd, odd2),
                    _mm512_shuffle_f32x4::<0xDD>(even, even2),
                    _mm512_shuffle_f32x4::<0xDD>(odd, odd2),
                ];
                for (l, column) in columns.into_iter().enumerate() {
                    _mm512_storeu_ps(to.offset((4 * l + j) as isize * to_row), column);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn load_narrow<N: Widen>(from: *const N) -> __m512 {
        // SAFETY: the caller vouches for the unit and the elements.
        unsafe {
            match N::FORMAT {
                Format::F32 => _mm512_loadu_ps(from.cast()),
                Format::F16 => _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())),
                Format::BF16 => {
                    let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
                }
                Format::I8 => _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))),
                Format::U8 => _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))),
            }
        }
    }
}

impl Simd<f64> for Avx512 {
    #[rustfmt::skip]
    unit!(Avx512, f64, __m512d, 8, 32, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_set1_pd, _mm512_fmadd_pd,
          _mm512_add_pd, _mm512_sub_pd);

    #[inline(always)]
    unsafe fn load_some(from: *const f64, count: usize) -> __m512d {
        // SAFETY: the caller vouches for the unit and the elements that the mask selects.
        unsafe { _mm512_maskz_loadu_pd(first(count) as u8, from) }
    }

    #[inline(always)]
    unsafe fn store_some(to: *mut f64, vector: __m512d, count: usize) {
        // SAFETY: the caller vouches for the unit and the elements that the mask selects.
        unsafe { _mm512_mask_storeu_pd(to, first(count) as u8, vector) }
    }

    #[inline(always)]
    unsafe fn store_lanes(to: *mut f64, vector: __m512d, lanes: u32) {
        let (all, lanes) = (first(lanes.count_ones() as usize) as u8, lanes as u8);
        // SAFETY: the caller vouches for the unit and the elements that the mask selects. (Compressing straight into
        // memory is slow on some processors.)
        unsafe { _mm512_mask_storeu_pd(to, all, _mm512_maskz_compress_pd(lanes, vector)) }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const f64, from_row: isize, to: *mut f64, to_row: isize) {
        // SAFETY: the caller vouches for the unit and the squares.
        unsafe {
            let mut rows = [_mm512_setzero_pd(); 8];
            for i in 0..8 {
                rows[i] = _mm512_loadu_pd(from.offset(i as isize * from_row));
            }
            // Lane `l` of `pairs[2 i + j]` is column `2 l + j` of rows `2 i ..`.
            let mut pairs = rows;
            for i in 0..4 {
                pairs[2 * i] = _mm512_unpacklo_pd(rows[2 * i], rows[2 * i + 1]);
                pairs[2 * i + 1] = _mm512_unpackhi_pd(rows[2 * i], rows[2 * i + 1]);
            }
            for j in 0..2 {
                let [a, b, c, d] = [pairs[j], pairs[2 + j], pairs[4 + j], pairs[6 + j]];
                let (even, odd) = (_mm512_shuffle_f64x2::<0x88>(a, b), _mm512_shuffle_f64x2::<0xDD>(a, b));
                let (even2, odd2) = (_mm512_shuffle_f64x2::<0x88>(c, d), _mm512_shuffle_f64x2::<0xDD>(c, d));
                let columns = [
                    _mm512_shuffle_f64x2::<0x88>(even, even2),
                    _mm512_shuffle_f64x2::<0x88>(odd, odd2),
                    _mm512_shuffle_f64x2::<0xDD>(even, even2),
                    _mm512_shuffle_f64x2::<0xDD>(odd, odd2),
                ];
                for (l, column) in columns.into_iter().enumerate() {
                    _mm512_storeu_pd(to.offset((2 * l + j) as isize * to_row), column);
                }
            }
        }
    }
}

impl Simd<f32> for Avx2 {
    #[rustfmt::skip]
    unit!(Avx2, f32, __m256, 8, 16, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps,
          _mm256_add_ps, _mm256_sub_ps);

    #[inline(always)]
    unsafe fn load_some(from: *const f32, count: usize) -> __m256 {
        // SAFETY: the caller vouches for the unit and the elements that the mask selects.
        unsafe { _mm256_maskload_ps(from, some32(count)) }
    }

    #[inline(always)]
    unsafe fn store_some(to: *mut f32, vector: __m256, count: usize) {
        // SAFETY: the caller vouches for the unit and the elements that the mask selects.
        unsafe { _mm256_maskstore_ps(to, some32(count), vector) }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const f32, from_row: isize, to: *mut f32, to_row: isize) {
        // SAFETY: the caller vouches for the unit and the squares.
        unsafe {
            let mut rows = [_mm256_setzero_ps(); 8];
            for i in 0..8 {
                rows[i] = _mm256_loadu_ps(from.offset(i as isize * from_row));
            }
            let mut pairs = rows;
            for i in 0..4 {
                pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
                pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
            }
            // Lane `l` of `fours[4 i + j]` is column `4 l + j` of rows `4 i ..`.
            let mut fours = rows;
            for i in 0..2 {
                let [a, b, c, d] = [pairs[4 * i], pairs[4 * i + 1], pairs[4 * i + 2], pairs[4 * i + 3]];
                fours[4 * i] = _mm256_shuffle_ps::<0x44>(a, c);
                fours[4 * i + 1] = _mm256_shuffle_ps::<0xEE>(a, c);
                fours[4 * i + 2] = _mm256_shuffle_ps::<0x44>(b, d);
                fours[4 * i + 3] = _mm256_shuffle_ps::<0xEE>(b, d);
            }
            for j in 0..4 {
                let low = _mm256_permute2f128_ps::<0x20>(fours[j], fours[4 + j]);
                let high = _mm256_permute2f128_ps::<0x31>(fours[j], fours[4 + j]);
                _mm256_storeu_ps(to.offset(j as isize * to_row), low);
                _mm256_storeu_ps(to.offset((4 + j) as isize * to_row), high);
            }
        }
    }

    #[inline(always)]
    unsafe fn load_narrow<N: Widen>(from: *const N) -> __m256 {
        // SAFETY: the caller vouches for the unit and the elements.
        unsafe {
            match N::FORMAT {
                Format::F32 => _mm256_loadu_ps(from.cast()),
                Format::F16 => _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
                Format::BF16 => {
                    let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
                }
                Format::I8 => _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))),
                Format::U8 => _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()))),
            }
        }
    }
}

impl Simd<f64> for Avx2 {
    #[rustfmt::skip]
    unit!(Avx2, f64, __m256d, 4, 16, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_set1_pd, _mm256_fmadd_pd,
          _mm256_add_pd, _mm256_sub_pd);

    #[inline(always)]
    unsafe fn load_some(from: *const f64, count: usize) -> __m256d {
        // SAFETY: the caller vouches for the unit and the elements that the mask selects.
        unsafe { _mm256_maskload_pd(from, some64(count)) }
    }

    #[inline(always)]
    unsafe fn store_some(to: *mut f64, vector: __m256d, count: usize) {
        // SAFETY: the caller vouches for the unit and the elements that the mask selects.
        unsafe { _mm256_maskstore_pd(to, some64(count), vector) }
    }
}

/// A mask of the first `count` lanes.
#[inline(always)]
fn first(count: usize) -> u32 {
    (1u32 << count) - 1
}

/// As [`first`], as lanes of ones.
#[inline(always)]
unsafe fn some32(count: usize) -> __m256i {
    // SAFETY: the caller vouches for the unit.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), lanes)
    }
}

/// As [`first`], as lanes of ones.
#[inline(always)]
unsafe fn some64(count: usize) -> __m256i {
    // SAFETY: the caller vouches for the unit.
    unsafe {
        let lanes = _mm256_setr_epi64x(0, 1, 2, 3);
        _mm256_cmpgt_epi64(_mm256_set1_epi64x(count as i64), lanes)
    }
}
