//! The vector-unit interface of the elementary functions: arithmetic with fused multiply-add.

use crate::isa::Level;
use core::ops::{Add, Div, Mul, Sub};

/// A vector of floats in one register.
///
/// Code may only name such a type where the processor has its instructions: in loops that are compiled for them, and
/// selected by the [`Level`](crate::isa::Level).
pub(crate) trait Vector:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// `f32` or `f64`.
    type Element: Copy + Default;
    /// A mask with one boolean per lane.
    type Mask: Copy;
    /// Elements per vector.
    const LANES: usize;

    /// Broadcasts an element to all lanes.
    fn splat(element: Self::Element) -> Self;

    /// # Safety
    /// That many elements may be read.
    unsafe fn load(from: *const Self::Element) -> Self;

    /// # Safety
    /// That many elements may be written.
    unsafe fn store(self, to: *mut Self::Element);

    /// A non-temporal store.
    ///
    /// # Safety
    /// That many elements may be written; the address is aligned to the vector's size.
    unsafe fn stream(self, to: *mut Self::Element);

    /// Loads the first `count` elements, fewer than a vector; other lanes are 0.
    ///
    /// # Safety
    /// These elements may be read.
    #[inline(always)]
    unsafe fn load_some(from: *const Self::Element, count: usize) -> Self {
        let mut lanes = [Self::Element::default(); 16];
        // SAFETY: the caller guarantees these elements; no vector has more lanes than the array.
        unsafe {
            lanes.as_mut_ptr().copy_from_nonoverlapping(from, count);
            Self::load(lanes.as_ptr())
        }
    }

    /// Stores the first `count` lanes, fewer than all.
    ///
    /// # Safety
    /// These elements may be written.
    #[inline(always)]
    unsafe fn store_some(self, to: *mut Self::Element, count: usize) {
        let mut lanes = [Self::Element::default(); 16];
        // SAFETY: as in `load_some`.
        unsafe {
            self.store(lanes.as_mut_ptr());
            to.copy_from_nonoverlapping(lanes.as_ptr(), count);
        }
    }

    /// `self * b + c`, rounded once.
    fn mul_add(self, b: Self, c: Self) -> Self;

    /// `c - self * b`, rounded once.
    fn neg_mul_add(self, b: Self, c: Self) -> Self;

    /// The minimum; `other` if either is NaN.
    fn min(self, other: Self) -> Self;

    /// The maximum; `other` if either is NaN.
    fn max(self, other: Self) -> Self;

    /// The nearest integer, ties to even.
    fn round(self) -> Self;

    /// `self · 2^n`, for an integer `n` between -1,100 and 1,100 and `self` between ¼ and 4 or 0, rounded once.
    fn scale(self, n: Self) -> Self;

    /// Splits into `(m, e)` with `self = m · 2^e` and `¾ <= m < 1½`. For 0, `e` is -∞, and for ∞ it is ∞, with any
    /// finite `m`. For NaN and negative numbers at least one is NaN.
    fn split(self) -> (Self, Self);

    fn bits_and(self, other: Self) -> Self;
    fn bits_xor(self, other: Self) -> Self;
    fn bits_or(self, other: Self) -> Self;
    /// The bits of `self` that are not in `other`.
    fn bits_without(self, other: Self) -> Self;
    fn bits_left<const BY: u32>(self) -> Self;
    fn bits_right<const BY: u32>(self) -> Self;
    /// The sum of the bits as integers.
    fn bits_add(self, other: Self) -> Self;

    fn lt(self, other: Self) -> Self::Mask;
    fn eq(self, other: Self) -> Self::Mask;
    fn is_nan(self) -> Self::Mask;
    /// `a` where the mask is true, `b` elsewhere.
    fn select(mask: Self::Mask, a: Self, b: Self) -> Self;
    fn both(a: Self::Mask, b: Self::Mask) -> Self::Mask;

    #[inline(always)]
    fn sign(self) -> Self {
        self.bits_and(Self::sign_bit())
    }

    #[inline(always)]
    fn abs(self) -> Self {
        self.bits_without(Self::sign_bit())
    }

    /// The magnitude of `self` with the sign of another vector.
    #[inline(always)]
    fn with_sign_of(self, other: Self) -> Self {
        self.abs().bits_or(other.sign())
    }

    /// -0.
    fn sign_bit() -> Self;

    /// `c[0] + c[1] self + c[2] self² + ..`
    #[inline(always)]
    fn polynomial<const N: usize>(self, c: [Self::Element; N]) -> Self {
        let mut sum = Self::splat(c[N - 1]);
        let mut i = N - 1;
        while i > 0 {
            i -= 1;
            sum = sum.mul_add(self, Self::splat(c[i]));
        }
        sum
    }
}

/// Work on vectors of `f32`.
pub(crate) trait Work {
    /// Runs the work with this unit. Mark the implementation `#[inline(always)]`.
    ///
    /// # Safety
    /// The processor has the unit; and whatever the work demands of its fields.
    unsafe fn run<V: Single>(self);
}

/// Runs the work with the vector unit of a level, or returns the work if the level has none.
///
/// # Safety
/// The safety conditions of the work's fields.
pub(crate) unsafe fn run<W: Work>(level: Level, work: W) -> Result<(), W> {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn avx512<W: Work>(work: W) {
        // SAFETY: the level is chosen only where the processor has its instructions; the caller guarantees the work.
        unsafe { work.run::<super::x86::F32x16>() }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<W: Work>(work: W) {
        // SAFETY: as above.
        unsafe { work.run::<super::x86::F32x8>() }
    }

    match level {
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512(work) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2(work) },
        Level::Baseline => return Err(work),
    }
    #[cfg(target_arch = "x86_64")]
    Ok(())
}

/// A vector of `f64`.
pub(crate) trait Double: Vector<Element = f64> {
    /// The inclusive prefix sums over the lanes.
    fn running_sums(self) -> Self;

    /// Shifts the lanes up by one; the first becomes 0.
    fn moved_on(self) -> Self;

    /// Broadcasts the last lane.
    fn last(self) -> Self;
}

/// A vector of `f32`.
pub(crate) trait Single: Vector<Element = f32> {
    /// A vector of half as many `f64`.
    type Double: Double;

    /// Converts the low and the high half of the lanes to `f64`.
    fn widen(self) -> [Self::Double; 2];

    /// Rounds to `f32`.
    fn narrow(halves: [Self::Double; 2]) -> Self;

    /// Looks up each lane in a table by its lowest four bits.
    fn lookup(self, table: &[f32; 16]) -> Self;
}
