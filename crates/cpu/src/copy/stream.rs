//! Non-temporal stores, for results too large for the caches: the old contents of the cache lines need not be read, and
//! cached data stays cached.

use crate::isa::Level;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// The result size in bytes from which it would leave the caches before the next read.
const FROM: usize = 8 << 20;

/// Whether non-temporal stores are better for a result of that many bytes.
#[inline]
pub(crate) fn pays(bytes: usize) -> bool {
    cfg!(target_arch = "x86_64") && bytes >= FROM
}

/// Copies bytes, with non-temporal stores where whole cache lines are written. [`fence`] must follow on this thread
/// before another thread reads them.
///
/// # Safety
/// Both ranges exist and do not overlap, and nothing else accesses the target.
#[inline(always)]
pub(crate) unsafe fn copy(level: Level, source: *const u8, target: *mut u8, bytes: usize) {
    let head = target.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    // SAFETY: parts of the ranges; the body of the target is aligned to a cache line. The level is chosen only where
    // the processor has its instructions.
    unsafe {
        target.copy_from_nonoverlapping(source, head);
        let (from, to) = (source.add(head), target.add(head));
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => lines_of_512_bits(from, to, lines),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => (0..lines).for_each(|i| line(from.add(i * LINE), to.add(i * LINE))),
            Level::Baseline => (0..lines).for_each(|i| line(from.add(i * LINE), to.add(i * LINE))),
        }
        let done = head + lines * LINE;
        target.add(done).copy_from_nonoverlapping(source.add(done), bytes - done);
    }
}

/// Copies cache lines with 512-bit stores.
///
/// # Safety
/// As [`copy`]; the target is aligned to a line, and the processor has AVX-512 F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn lines_of_512_bits(source: *const u8, target: *mut u8, lines: usize) {
    use core::arch::x86_64::{_mm512_loadu_si512, _mm512_stream_si512};
    // SAFETY: as the caller promises.
    unsafe {
        let mut done = 0;
        while done + 4 <= lines {
            let at = |i: usize| (done + i) * LINE;
            let parts: [_; 4] = core::array::from_fn(|i| _mm512_loadu_si512(source.add(at(i)).cast()));
            for (i, part) in parts.into_iter().enumerate() {
                _mm512_stream_si512(target.add(at(i)).cast(), part);
            }
            done += 4;
        }
        for i in done..lines {
            let part = _mm512_loadu_si512(source.add(i * LINE).cast());
            _mm512_stream_si512(target.add(i * LINE).cast(), part);
        }
    }
}

/// Copies one cache line to an aligned address.
///
/// # Safety
/// As [`copy`]; the target is aligned to a line.
#[inline(always)]
pub(crate) unsafe fn line(source: *const u8, target: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE2; loads may be unaligned, and the caller vouches for the alignment of the target.
    unsafe {
        use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let (source, target) = (source.cast::<__m128i>(), target.cast::<__m128i>());
        let parts: [__m128i; 4] = core::array::from_fn(|i| _mm_loadu_si128(source.add(i)));
        for (i, part) in parts.into_iter().enumerate() {
            _mm_stream_si128(target.add(i), part);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as the caller promises.
    unsafe {
        target.copy_from_nonoverlapping(source, LINE);
    }
}

/// A store fence: makes this thread's non-temporal stores visible to other threads, in order.
#[inline(always)]
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
}

/// Prefetches the cache line at an address, which need not exist.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE; a prefetch never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
