//! Vector instructions that multiply small integers and add adjacent products.

use crate::isa::Level;
#[cfg(target_arch = "x86_64")]
use crate::isa::has_vnni;

/// The number of steps of `k` in a word of four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Four bytes: unsigned for the left operand, signed for the right one.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Quads,
    /// Two 16-bit integers.
    Pairs,
}

impl Form {
    pub(super) fn steps(self) -> usize {
        match self {
            Form::Quads => 4,
            Form::Pairs => 2,
        }
    }
}

/// A vector of 32-bit sums, or of words.
pub(super) trait Unit: Copy {
    /// Sums per vector.
    const LANES: usize;
    const FORM: Form;
    type Vector: Copy;

    /// Reads words; no alignment is needed.
    ///
    /// # Safety
    /// The machine has the unit, and the words may be read.
    unsafe fn load(from: *const u8) -> Self::Vector;

    /// Writes sums; no alignment is needed.
    ///
    /// # Safety
    /// The machine has the unit, and the sums may be written.
    unsafe fn store(to: *mut i32, vector: Self::Vector);

    /// Broadcasts a word to all lanes.
    ///
    /// # Safety
    /// The machine has the unit.
    unsafe fn splat(word: i32) -> Self::Vector;

    /// Wrapping addition.
    ///
    /// # Safety
    /// The machine has the unit.
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Adds the products of the parts of each word.
    ///
    /// # Safety
    /// The machine has the unit.
    unsafe fn dot(sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;
}

/// Work that is compiled once per unit.
pub(super) trait Work {
    /// Runs the work. Mark the implementation `#[inline(always)]`.
    ///
    /// # Safety
    /// The machine has the unit; and whatever the work itself demands of its fields.
    unsafe fn run<U: Unit>(self);
}

/// The operand form of the level's unit.
pub(super) fn form(level: Level) -> Form {
    match level {
        Level::Baseline => Form::Pairs,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => Form::Pairs,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            if has_vnni() {
                Form::Quads
            } else {
                Form::Pairs
            }
        }
    }
}

/// Columns per panel for the level's unit: two vectors.
pub(super) fn width(level: Level) -> usize {
    match level {
        Level::Baseline => 8,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => 16,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => 32,
    }
}

/// Runs the work with the level's vector unit.
///
/// # Safety
/// The safety conditions of the work's fields.
pub(super) unsafe fn dispatch<W: Work>(level: Level, work: W) {
    // SAFETY: the level is chosen only where the processor has its instructions, and VNNI has been detected.
    unsafe {
        match level {
            Level::Baseline => work.run::<Portable>(),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => x86::avx2(work),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                if has_vnni() {
                    x86::vnni(work);
                } else {
                    x86::avx512(work);
                }
            }
        }
    }
}

/// Arrays that the compiler maps to the available vectors.
#[derive(Clone, Copy)]
struct Portable;

impl Unit for Portable {
    const LANES: usize = 4;
    const FORM: Form = Form::Pairs;
    type Vector = [i32; 4];

    #[inline(always)]
    unsafe fn load(from: *const u8) -> [i32; 4] {
        // SAFETY: as the caller promises; the read is unaligned.
        unsafe { from.cast::<[i32; 4]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(to: *mut i32, vector: [i32; 4]) {
        // SAFETY: as the caller promises; the write is unaligned.
        unsafe { to.cast::<[i32; 4]>().write_unaligned(vector) }
    }

    #[inline(always)]
    unsafe fn splat(word: i32) -> [i32; 4] {
        [word; 4]
    }

    #[inline(always)]
    unsafe fn add(a: [i32; 4], b: [i32; 4]) -> [i32; 4] {
        core::array::from_fn(|lane| a[lane].wrapping_add(b[lane]))
    }

    #[inline(always)]
    unsafe fn dot(sum: [i32; 4], a: [i32; 4], b: [i32; 4]) -> [i32; 4] {
        // The order of the halves of a word in memory has no effect.
        let halves = |word: i32| [i32::from(word as i16), word >> 16];
        core::array::from_fn(|lane| {
            let ([a0, a1], [b0, b1]) = (halves(a[lane]), halves(b[lane]));
            sum[lane].wrapping_add(a0 * b0 + a1 * b1)
        })
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Form, Unit, Work};
    use core::arch::x86_64::*;

    #[derive(Clone, Copy)]
    struct Avx2;

    #[derive(Clone, Copy)]
    struct Avx512;

    #[derive(Clone, Copy)]
    struct Vnni;

    macro_rules! unit {
        ($unit:ty, $lanes:literal, $form:ident, $vector:ty, $load:ident, $store:ident, $splat:ident, $add:ident,
         |$sum:ident, $a:ident, $b:ident| $dot:expr) => {
            impl Unit for $unit {
                const LANES: usize = $lanes;
                const FORM: Form = Form::$form;
                type Vector = $vector;

                #[inline(always)]
                unsafe fn load(from: *const u8) -> $vector {
                    // SAFETY: the caller vouches for the unit and the words.
                    unsafe { $load(from.cast()) }
                }

                #[inline(always)]
                unsafe fn store(to: *mut i32, vector: $vector) {
                    // SAFETY: the caller vouches for the unit and the sums.
                    unsafe { $store(to.cast(), vector) }
                }

                #[inline(always)]
                unsafe fn splat(word: i32) -> $vector {
                    // SAFETY: the caller vouches for the unit.
                    unsafe { $splat(word) }
                }

                #[inline(always)]
                unsafe fn add(a: $vector, b: $vector) -> $vector {
                    // SAFETY: the caller vouches for the unit.
                    unsafe { $add(a, b) }
                }

                #[inline(always)]
                unsafe fn dot($sum: $vector, $a: $vector, $b: $vector) -> $vector {
                    // SAFETY: the caller vouches for the unit.
                    unsafe { $dot }
                }
            }
        };
    }

    unit!(
        Avx2,
        8,
        Pairs,
        __m256i,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_set1_epi32,
        _mm256_add_epi32,
        |sum, a, b| _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
    );
    unit!(
        Avx512,
        16,
        Pairs,
        __m512i,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_set1_epi32,
        _mm512_add_epi32,
        |sum, a, b| _mm512_add_epi32(sum, _mm512_madd_epi16(a, b))
    );
    unit!(
        Vnni,
        16,
        Quads,
        __m512i,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_set1_epi32,
        _mm512_add_epi32,
        |sum, a, b| _mm512_dpbusd_epi32(sum, a, b)
    );

    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn avx2<W: Work>(work: W) {
        // SAFETY: the caller has detected the unit, and vouches for the work.
        unsafe { work.run::<Avx2>() }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
    pub(super) unsafe fn avx512<W: Work>(work: W) {
        // SAFETY: the caller has detected the unit, and vouches for the work.
        unsafe { work.run::<Avx512>() }
    }

    #[target_feature(enable = "avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2")]
    pub(super) unsafe fn vnni<W: Work>(work: W) {
        // SAFETY: the caller has detected the unit, and vouches for the work.
        unsafe { work.run::<Vnni>() }
    }
}
