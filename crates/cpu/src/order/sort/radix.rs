//! LSD radix sort, over the bits in which keys differ.
//!
//! Each pass counts how often each digit occurs and then moves every entry to the next position of its digit. With
//! several threads, each counts and moves a part of the entries. Entries with the same digit are placed part by part,
//! so the order is the same for any number of parts.

use super::entries::Entry;
use crate::copy::Shared;
use crate::threads::Pool;
use alloc::vec::Vec;

/// The number of entries from which radix sort is faster than comparison sort.
const FROM: usize = 2048;

/// Bits per digit: few enough that a cache line of each bucket stays in the L1 cache. Four passes over 32 bits take
/// less time than three with digits of 11 bits.
const DIGIT: u32 = 9;

/// The minimum entries per part.
const PART: usize = 1 << 15;

/// Sorts entries whose indices ascend, on this thread. Leaves arbitrary contents in `scratch`.
pub(super) fn order<E: Entry>(entries: &mut Vec<E>, scratch: &mut Vec<E>) {
    let len = entries.len();
    if len < FROM {
        return entries.sort_unstable();
    }
    scratch.clear();
    scratch.reserve(len);
    let (from, to) = (Shared::new(entries.as_mut_ptr()), Shared::new(scratch.as_mut_ptr()));
    // SAFETY: the entries are initialized, and the other list has room for as many.
    let ordered = unsafe { Radix { pool: None, len, parts: 1 }.order(from, to) };
    if ordered != from.get() {
        // SAFETY: as many as there were have been written.
        unsafe { scratch.set_len(len) };
        core::mem::swap(entries, scratch);
    }
}

/// Sorts `len` entries whose indices ascend, with all threads. Returns the list that contains the result.
///
/// # Safety
/// Both lists have room for `len` entries, those of the first are initialized, and nothing else accesses them.
pub(super) unsafe fn order_shared<E: Entry>(
    pool: &Pool,
    entries: Shared<E>,
    spare: Shared<E>,
    len: usize,
) -> *mut E {
    let parts = (len / PART).clamp(1, pool.threads());
    // SAFETY: as the caller promises.
    unsafe { Radix { pool: Some(pool), len, parts }.order(entries, spare) }
}

/// The number of entries, and the number of parts.
struct Radix<'a> {
    pool: Option<&'a Pool>,
    len: usize,
    parts: usize,
}

/// A range of bits of the keys.
#[derive(Clone, Copy)]
struct Digit {
    shift: u32,
    buckets: usize,
}

impl Digit {
    #[inline(always)]
    fn of<E: Entry>(self, entry: E) -> usize {
        (entry.key() >> self.shift) as usize & (self.buckets - 1)
    }
}

impl Radix<'_> {
    /// # Safety
    /// As [`order_shared`].
    unsafe fn order<E: Entry>(&self, mut from: Shared<E>, mut to: Shared<E>) -> *mut E {
        // SAFETY: as the caller promises.
        let varying = unsafe { self.varying(from) };
        if varying == 0 {
            return from.get();
        }
        let lowest = varying.trailing_zeros();
        let width = u64::BITS - varying.leading_zeros() - lowest;
        let bits = width.min(DIGIT);
        let mut counts = alloc::vec![0u32; self.parts << bits];
        let mut wide = alloc::vec![0usize; if u32::try_from(self.len).is_ok() { 0 } else { counts.len() }];
        for shift in (lowest..lowest + width).step_by(DIGIT as usize) {
            let digit = Digit { shift, buckets: 1 << bits.min(lowest + width - shift) };
            // SAFETY: as the caller promises; each pass initializes the other list.
            unsafe {
                if wide.is_empty() {
                    self.pass(digit, &mut counts, from, to);
                } else {
                    self.pass(digit, &mut wide, from, to);
                }
            }
            (from, to) = (to, from);
        }
        from.get()
    }

    /// Calls `body` with each part and its range of entries.
    fn each_part(&self, body: impl Fn(usize, core::ops::Range<usize>) + Sync) {
        let size = self.len.div_ceil(self.parts);
        let part = |part: usize| body(part, (part * size).min(self.len)..((part + 1) * size).min(self.len));
        match self.pool {
            Some(pool) => pool.parallel_for(self.parts, 1, |range| range.for_each(&part)),
            None => (0..self.parts).for_each(part),
        }
    }

    /// The bits in which any two keys differ.
    ///
    /// # Safety
    /// The entries are initialized.
    unsafe fn varying<E: Entry>(&self, entries: Shared<E>) -> u64 {
        let mut varying = alloc::vec![0u64; self.parts];
        let slots = Shared::new(varying.as_mut_ptr());
        self.each_part(|part, range| {
            // SAFETY: initialized entries, and a slot for each part.
            unsafe {
                let first = (*entries.get()).key();
                let part_of = core::slice::from_raw_parts(entries.get().add(range.start), range.len());
                *slots.get().add(part) = part_of.iter().fold(0, |bits, entry| bits | (entry.key() ^ first));
            }
        });
        varying.into_iter().fold(0, |all, bits| all | bits)
    }

    /// Moves the entries to the other list, sorted by the digit. `counts` has a slot for each bucket of each part.
    ///
    /// # Safety
    /// As [`order`](Self::order).
    unsafe fn pass<E: Entry, C: Count>(
        &self,
        digit: Digit,
        counts: &mut [C],
        from: Shared<E>,
        to: Shared<E>,
    ) {
        let slots = Shared::new(counts.as_mut_ptr());
        // SAFETY: initialized entries, and slots for each part.
        let part_of = |part: usize, range: core::ops::Range<usize>| unsafe {
            (
                core::slice::from_raw_parts(from.get().add(range.start), range.len()),
                core::slice::from_raw_parts_mut(slots.get().add(part * digit.buckets), digit.buckets),
            )
        };
        self.each_part(|part, range| {
            let (entries, counts) = part_of(part, range);
            counts.fill(C::default());
            for &entry in entries {
                counts[digit.of(entry)].advance();
            }
        });
        let mut start = 0;
        for bucket in 0..digit.buckets {
            for part in 0..self.parts {
                start = counts[part * digit.buckets + bucket].start_at(start);
            }
        }
        self.each_part(|part, range| {
            let (entries, starts) = part_of(part, range);
            for &entry in entries {
                let place = starts[digit.of(entry)].advance();
                // SAFETY: every entry has its own position in the other list.
                unsafe { to.get().add(place).write(entry) };
            }
        });
    }
}

/// The count of a digit, and then the position of its next entry.
trait Count: Copy + Default + Send + Sync {
    /// Increments; returns the previous value.
    fn advance(&mut self) -> usize;
    /// Replaces the count by the start of its entries; returns the start of the next digit's entries.
    fn start_at(&mut self, start: usize) -> usize;
}

macro_rules! counts {
    ($($ty:ty),*) => {$(
        impl Count for $ty {
            #[inline(always)]
            fn advance(&mut self) -> usize {
                let before = *self;
                *self += 1;
                before as usize
            }

            #[inline(always)]
            fn start_at(&mut self, start: usize) -> usize {
                start + core::mem::replace(self, start as $ty) as usize
            }
        }
    )*};
}

counts!(u32, usize);

#[cfg(test)]
mod tests {
    use super::super::entries::Pair;
    use super::*;

    fn shuffled(n: usize, mask: u64) -> impl Iterator<Item = (u64, usize)> {
        (0..n).map(move |i| ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) & mask, i))
    }

    fn agree<E: Entry>(bits: u32, n: usize, mask: u64) {
        let mut entries: Vec<E> = shuffled(n, mask).map(|(key, i)| E::new(key, i)).collect();
        let mut expected = entries.clone();
        expected.sort_unstable();
        order(&mut entries, &mut Vec::new());
        assert!(entries == expected, "{bits} bits");
        for parts in [1, 2, 5] {
            let pool = Pool::new(parts);
            let mut from = shuffled(n, mask).map(|(key, i)| E::new(key, i)).collect::<Vec<E>>();
            let mut to = from.clone();
            let [a, b] = [&mut from, &mut to].map(|list| Shared::new(list.as_mut_ptr()));
            // SAFETY: both lists have that many entries, all of which are written.
            let ordered = unsafe {
                let ordered = Radix { pool: Some(&pool), len: n, parts }.order(a, b);
                core::slice::from_raw_parts(ordered, n)
            };
            assert!(ordered == expected, "{bits} bits, {parts} parts");
        }
    }

    #[test]
    fn radix_and_comparison_agree() {
        for n in [1, 600, 5000, 100_000] {
            for (bits, mask) in [(0, 0), (8, 0xff), (16, 0xfff0), (32, 0xffff_ffff)] {
                agree::<u64>(bits, n, mask);
            }
            for (bits, mask) in [(32, 0xffff_ffff), (64, u64::MAX), (64, 0xff << 40), (2, 1 | 1 << 63)] {
                agree::<Pair>(bits, n, mask);
            }
        }
    }
}
