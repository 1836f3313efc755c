//! Top-k selection: the first few entries of a line, without sorting the others.

use super::entries::Entry;
use super::{Sort, rank};
use crate::copy::Shared;
use crate::isa::multiversion;
use crate::order::key::Ordered;
use alloc::vec::Vec;
use core::ops::Range;

/// Entries of a line per task.
const PART: usize = 1 << 16;

/// The maximum `k` for which each part of a line is searched separately.
pub(super) const MAX_SHARE: usize = PART / 8;

/// Elements that are skipped together if none of them can be among the first.
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
    /// Finds the first `k` entries of a part of a line (all, if it has fewer), in order. Candidates are collected in a
    /// short list, which is pruned whenever it is full.
    ///
    /// # Safety
    /// `x` is the start of a line, and the positions are within it.
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
                    // SAFETY: its index is within the line.
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

    /// The first `k` entries of a line, in order; the parts are searched in parallel.
    ///
    /// # Safety
    /// `x` is the start of a line that is longer than a part.
    pub(super) unsafe fn select_shared<T: Ordered, E: Entry>(&self, x: Shared<T>) -> Vec<E> {
        let len = self.lines.len;
        let parts = len.div_ceil(PART);
        let mut found: Vec<Vec<E>> = (0..parts).map(|_| Vec::new()).collect();
        let slots = Shared::new(found.as_mut_ptr().cast::<u8>());
        self.cpu.pool.parallel_for(parts, 1, |range| {
            for part in range {
                let places = part * PART..((part + 1) * PART).min(len);
                // SAFETY: positions of the line, and a list for each part.
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
