//! The first few entries of a line, without ordering the others.

use super::entries::Entry;
use super::{Sort, rank};
use crate::copy::Shared;
use crate::isa::multiversion;
use crate::order::key::Ordered;
use alloc::vec::Vec;
use core::ops::Range;

/// Entries of a line that one thread looks through at once.
const PART: usize = 1 << 16;

/// Up to as many first entries, each part of a line is looked through for them by itself.
pub(super) const GREATEST_SHARE: usize = PART / 8;

/// Elements that are passed over together where none of them may be among the first.
const BLOCK: usize = 256;

/// Elements that are ranked side by side.
const LANES: usize = 32;

multiversion! {
    /// Whether any of the elements comes before the one with that rank.
    fn any_before[T: Ordered]<T> in { T::WIDEST } (block: &[T; BLOCK], last: T::Key, largest: bool) -> bool {
        let mut least = [last; LANES];
        for chunk in block.as_chunks::<LANES>().0 {
            for lane in 0..LANES {
                let rank = rank(chunk[lane], largest);
                least[lane] = if rank < least[lane] { rank } else { least[lane] };
            }
        }
        least.into_iter().fold(last, Ord::min) < last
    }
}

impl Sort<'_> {
    /// Finds the first `k` entries of a part of a line (all, if it has fewer), in order. Those that may still be among
    /// them gather in a short list, which is cut back whenever it is full.
    ///
    /// # Safety
    /// `x` is where a line begins, and the places lie in it.
    pub(super) unsafe fn select<T: Ordered, E: Entry>(
        &self,
        x: *const T,
        places: Range<usize>,
        entries: &mut Vec<E>,
    ) {
        let (k, full) = (self.k, (4 * self.k).max(64));
        entries.clear();
        entries.reserve(full);
        let mut last: Option<(E, T::Key)> = None;
        let mut place = places.start;
        while place < places.end {
            let end = (place + BLOCK).min(places.end);
            if let Some((_, key)) = last
                && end - place == BLOCK
                && self.lines.along[0] == 1
            {
                // SAFETY: a block of the line.
                let block = unsafe { &*x.add(place).cast::<[T; BLOCK]>() };
                if !any_before(self.cpu.level, block, key, self.largest) {
                    place = end;
                    continue;
                }
            }
            for place in place..end {
                // SAFETY: as the caller promises.
                let entry = unsafe { self.entry::<T, E>(x, place) };
                if last.is_some_and(|(last, _)| entry > last) {
                    continue;
                }
                entries.push(entry);
                if entries.len() == full {
                    let cut = *entries.select_nth_unstable(k - 1).1;
                    // SAFETY: its place is one of the line.
                    let x = unsafe { *x.offset(cut.place() as isize * self.lines.along[0]) };
                    last = Some((cut, rank(x, self.largest)));
                    entries.truncate(k);
                }
            }
            place = end;
        }
        entries.sort_unstable();
        entries.truncate(k);
    }

    /// The first `k` entries of a line, in order, of which each part is looked through by some thread.
    ///
    /// # Safety
    /// `x` is where a line begins, longer than a part.
    pub(super) unsafe fn select_shared<T: Ordered, E: Entry>(&self, x: Shared<T>) -> Vec<E> {
        let len = self.lines.len;
        let parts = len.div_ceil(PART);
        let mut found: Vec<Vec<E>> = (0..parts).map(|_| Vec::new()).collect();
        let slots = Shared::new(found.as_mut_ptr().cast::<u8>());
        self.cpu.pool.parallel_for(parts, 1, |range| {
            for part in range {
                let places = part * PART..((part + 1) * PART).min(len);
                // SAFETY: places of the line, and a list for each part.
                unsafe {
                    self.select(x.get().cast_const(), places, &mut *slots.get().cast::<Vec<E>>().add(part))
                };
            }
        });
        let mut entries = found.concat();
        entries.sort_unstable();
        entries
    }
}
