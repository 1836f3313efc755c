//! The vector units of x86-64.

use super::{Tile, Unpack};
use core::arch::x86_64::*;

/// 256-bit vectors (AVX2, FMA, F16C).
#[derive(Clone, Copy)]
pub(in super::super) struct Avx2;

/// As [`Avx2`] along rows of weights and 512-bit vectors across them, with products of bytes that are added to 32-bit
/// sums (AVX-512, VNNI).
#[derive(Clone, Copy)]
pub(in super::super) struct Vnni;

/// The operations along rows: those of AVX2, except the sums of products.
macro_rules! unpack {
    ($unit:ty, |$weights:ident, $x:ident| $dot:expr) => {
        impl Unpack for $unit {
            type Bytes = __m256i;
            type Floats = __m256;

            #[inline(always)]
            unsafe fn load(from: *const u8) -> __m256i {
                // SAFETY: the caller vouches for the unit and the bytes.
                unsafe { _mm256_loadu_si256(from.cast()) }
            }

            #[inline(always)]
            unsafe fn load_twice(from: *const u8) -> __m256i {
                // SAFETY: the caller vouches for the unit and the bytes.
                unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(from.cast())) }
            }

            #[inline(always)]
            unsafe fn store(to: *mut u8, bytes: __m256i) {
                // SAFETY: the caller vouches for the unit and the bytes.
                unsafe { _mm256_storeu_si256(to.cast(), bytes) }
            }

            #[inline(always)]
            unsafe fn nibbles(bytes: __m256i) -> __m256i {
                // SAFETY: the caller vouches for the unit.
                unsafe {
                    let shifted = _mm256_srlv_epi64(bytes, _mm256_setr_epi64x(0, 0, 4, 4));
                    _mm256_and_si256(shifted, _mm256_set1_epi8(15))
                }
            }

            #[inline(always)]
            unsafe fn field(bytes: __m256i, shift: u32, mask: u8) -> __m256i {
                // SAFETY: the caller vouches for the unit. The mask removes the bits of the neighbouring byte.
                unsafe {
                    let shifted = _mm256_srl_epi16(bytes, _mm_cvtsi32_si128(shift as i32));
                    _mm256_and_si256(shifted, _mm256_set1_epi8(mask as i8))
                }
            }

            #[inline(always)]
            unsafe fn shift_left(bytes: __m256i, shift: u32) -> __m256i {
                // SAFETY: the caller vouches for the unit. No bit leaves its byte.
                unsafe { _mm256_sll_epi16(bytes, _mm_cvtsi32_si128(shift as i32)) }
            }

            #[inline(always)]
            unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
                // SAFETY: the caller vouches for the unit.
                unsafe { _mm256_or_si256(a, b) }
            }

            #[inline(always)]
            unsafe fn spread(bits: u32, value: u8) -> __m256i {
                // SAFETY: the caller vouches for the unit.
                unsafe {
                    let bytes = _mm256_shuffle_epi8(
                        _mm256_set1_epi32(bits as i32),
                        _mm256_setr_epi64x(
                            0,
                            0x0101_0101_0101_0101,
                            0x0202_0202_0202_0202,
                            0x0303_0303_0303_0303,
                        ),
                    );
                    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
                    let set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
                    _mm256_and_si256(set, _mm256_set1_epi8(value as i8))
                }
            }

            #[inline(always)]
            unsafe fn lookup(indices: __m256i, table: &[i8; 16]) -> __m256i {
                // SAFETY: the caller vouches for the unit.
                unsafe {
                    let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                    _mm256_shuffle_epi8(table, indices)
                }
            }

            #[inline(always)]
            unsafe fn dot($weights: __m256i, $x: __m256i) -> __m256 {
                // SAFETY: the caller vouches for the unit.
                unsafe { _mm256_cvtepi32_ps($dot) }
            }

            #[inline(always)]
            unsafe fn dot_signed(weights: __m256i, x: __m256i) -> __m256 {
                // SAFETY: the caller vouches for the unit.
                unsafe { Self::dot(_mm256_abs_epi8(weights), _mm256_sign_epi8(x, weights)) }
            }

            #[inline(always)]
            unsafe fn floats(from: *const f32) -> __m256 {
                // SAFETY: the caller vouches for the unit and the floats.
                unsafe { _mm256_loadu_ps(from) }
            }

            #[inline(always)]
            unsafe fn store_floats(to: *mut f32, floats: __m256) {
                // SAFETY: the caller vouches for the unit and the floats.
                unsafe { _mm256_storeu_ps(to, floats) }
            }

            #[inline(always)]
            unsafe fn splat(x: f32) -> __m256 {
                // SAFETY: the caller vouches for the unit.
                unsafe { _mm256_set1_ps(x) }
            }

            #[inline(always)]
            unsafe fn pair(from: *const f32) -> __m256 {
                // SAFETY: the caller vouches for the unit and the floats.
                unsafe {
                    let both = _mm256_castpd_ps(_mm256_set1_pd(from.cast::<f64>().read_unaligned()));
                    _mm256_permutevar_ps(both, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1))
                }
            }

            #[inline(always)]
            unsafe fn mul(a: __m256, b: __m256) -> __m256 {
                // SAFETY: the caller vouches for the unit.
                unsafe { _mm256_mul_ps(a, b) }
            }

            #[inline(always)]
            unsafe fn add(a: __m256, b: __m256) -> __m256 {
                // SAFETY: the caller vouches for the unit.
                unsafe { _mm256_add_ps(a, b) }
            }

            #[inline(always)]
            unsafe fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 {
                // SAFETY: the caller vouches for the unit.
                unsafe { _mm256_fmadd_ps(a, b, c) }
            }

            #[inline(always)]
            unsafe fn sum(floats: __m256) -> f32 {
                // SAFETY: the caller vouches for the unit.
                unsafe {
                    let halves =
                        _mm_add_ps(_mm256_castps256_ps128(floats), _mm256_extractf128_ps::<1>(floats));
                    let pairs = _mm_add_ps(halves, _mm_movehl_ps(halves, halves));
                    _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)))
                }
            }

            #[inline(always)]
            unsafe fn widen(bytes: u64, signed: bool) -> __m256 {
                // SAFETY: the caller vouches for the unit.
                unsafe {
                    let bytes = _mm_cvtsi64_si128(bytes as i64);
                    let words =
                        if signed { _mm256_cvtepi8_epi32(bytes) } else { _mm256_cvtepu8_epi32(bytes) };
                    _mm256_cvtepi32_ps(words)
                }
            }

            #[inline(always)]
            unsafe fn halves(from: *const u8, stride: usize) -> __m256 {
                // SAFETY: the caller vouches for the unit and the bytes.
                unsafe {
                    let half = |i: usize| from.add(i * stride).cast::<i16>().read_unaligned();
                    _mm256_cvtph_ps(_mm_setr_epi16(
                        half(0),
                        half(1),
                        half(2),
                        half(3),
                        half(4),
                        half(5),
                        half(6),
                        half(7),
                    ))
                }
            }

            #[inline(always)]
            unsafe fn half_pairs(from: *const u8, stride: usize) -> [__m256; 2] {
                // SAFETY: the caller vouches for the unit and the bytes.
                unsafe {
                    let pair = |i: usize| from.add(i * stride).cast::<i32>().read_unaligned();
                    let low = _mm256_cvtph_ps(_mm_setr_epi32(pair(0), pair(1), pair(2), pair(3)));
                    let high = _mm256_cvtph_ps(_mm_setr_epi32(pair(4), pair(5), pair(6), pair(7)));
                    // Lanes 0 1 4 5 2 3 6 7, as pairs 0 2 1 3.
                    let first = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(low, high));
                    let second = _mm256_castps_pd(_mm256_shuffle_ps::<0xDD>(low, high));
                    [
                        _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(first)),
                        _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(second)),
                    ]
                }
            }

            #[inline(always)]
            unsafe fn prefetch(at: *const u8) {
                // SAFETY: the instruction takes any address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
            }
        }
    };
}

unpack!(Avx2, |weights, x| _mm256_madd_epi16(_mm256_maddubs_epi16(weights, x), _mm256_set1_epi16(1)));
unpack!(Vnni, |weights, x| _mm256_dpbusd_epi32(_mm256_setzero_si256(), weights, x));

/// The operations across rows, by the names of intrinsics.
macro_rules! tile {
    ($unit:ty, $lanes:literal, $vectors:literal, $signed_pairs:literal, $words:ty, $wide:ty,
     $zero:ident, $load:ident, $splat:ident, $add:ident, $convert:ident,
     $load_wide:ident, $store_wide:ident, $splat_wide:ident, $mul:ident, $mul_add:ident,
     bytes |$sum:ident, $weights:ident, $x:ident| $dot:expr,
     finish |$total:ident| $finish:expr,
     pairs |$sum2:ident, $weights2:ident, $x2:ident| $dot2:expr $(,)?) => {
        impl Tile for $unit {
            const LANES: usize = $lanes;
            const VECTORS: usize = $vectors;
            const UNSIGNED_PAIRS: bool = false;
            const SIGNED_PAIRS: bool = $signed_pairs;
            type Words = $words;
            type Wide = $wide;

            #[inline(always)]
            unsafe fn zero() -> $words {
                // SAFETY: the caller vouches for the unit.
                unsafe { $zero() }
            }

            #[inline(always)]
            unsafe fn words(from: *const u32) -> $words {
                // SAFETY: the caller vouches for the unit and the words.
                unsafe { $load(from.cast()) }
            }

            #[inline(always)]
            unsafe fn word(from: *const u32) -> $words {
                // SAFETY: the caller vouches for the unit and the word.
                unsafe { $splat(from.cast::<i32>().read_unaligned()) }
            }

            #[inline(always)]
            unsafe fn dot_bytes($sum: $words, $weights: $words, $x: $words) -> $words {
                // SAFETY: the caller vouches for the unit.
                unsafe { $dot }
            }

            #[inline(always)]
            unsafe fn finish($total: $words) -> $words {
                // SAFETY: the caller vouches for the unit.
                #[allow(unused_unsafe, reason = "sums of 32 bits need no instruction")]
                unsafe {
                    $finish
                }
            }

            #[inline(always)]
            unsafe fn dot_pairs($sum2: $words, $weights2: $words, $x2: $words) -> $words {
                // SAFETY: the caller vouches for the unit.
                unsafe { $dot2 }
            }

            #[inline(always)]
            unsafe fn add_words(a: $words, b: $words) -> $words {
                // SAFETY: the caller vouches for the unit.
                unsafe { $add(a, b) }
            }

            #[inline(always)]
            unsafe fn to_floats(sums: $words) -> $wide {
                // SAFETY: the caller vouches for the unit.
                unsafe { $convert(sums) }
            }

            #[inline(always)]
            unsafe fn wide(from: *const f32) -> $wide {
                // SAFETY: the caller vouches for the unit and the floats.
                unsafe { $load_wide(from) }
            }

            #[inline(always)]
            unsafe fn store_wide(to: *mut f32, floats: $wide) {
                // SAFETY: the caller vouches for the unit and the floats.
                unsafe { $store_wide(to, floats) }
            }

            #[inline(always)]
            unsafe fn splat_wide(x: f32) -> $wide {
                // SAFETY: the caller vouches for the unit.
                unsafe { $splat_wide(x) }
            }

            #[inline(always)]
            unsafe fn mul_wide(a: $wide, b: $wide) -> $wide {
                // SAFETY: the caller vouches for the unit.
                unsafe { $mul(a, b) }
            }

            #[inline(always)]
            unsafe fn mul_add_wide(a: $wide, b: $wide, c: $wide) -> $wide {
                // SAFETY: the caller vouches for the unit.
                unsafe { $mul_add(a, b, c) }
            }
        }
    };
}

tile!(
    Avx2,
    8,
    3,
    true,
    __m256i,
    __m256,
    _mm256_setzero_si256,
    _mm256_loadu_si256,
    _mm256_set1_epi32,
    _mm256_add_epi32,
    _mm256_cvtepi32_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_set1_ps,
    _mm256_mul_ps,
    _mm256_fmadd_ps,
    bytes | sum,
    weights,
    x | _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights, x)),
    finish | sum | _mm256_madd_epi16(sum, _mm256_set1_epi16(1)),
    pairs | sum,
    weights,
    x | _mm256_add_epi32(sum, _mm256_madd_epi16(weights, x)),
);

tile!(
    Vnni,
    16,
    2,
    false,
    __m512i,
    __m512,
    _mm512_setzero_si512,
    _mm512_loadu_si512,
    _mm512_set1_epi32,
    _mm512_add_epi32,
    _mm512_cvtepi32_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_set1_ps,
    _mm512_mul_ps,
    _mm512_fmadd_ps,
    bytes | sum,
    weights,
    x | _mm512_dpbusd_epi32(sum, weights, x),
    finish | sum | sum,
    pairs | sum,
    weights,
    x | _mm512_dpwssd_epi32(sum, weights, x),
);
