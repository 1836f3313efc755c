//! Keys with places: ordering them by key and then by place is a stable sort by key.

use alloc::vec::Vec;

/// A key and a place, in the order of keys and then of places.
pub(super) trait Entry: Copy + Ord + Default {
    fn new(key: u64, place: usize) -> Self;
    fn place(self) -> usize;
    /// The bits of the key from `shift` on, in the lowest.
    fn key_from(self, shift: u32) -> usize;
}

/// A key of at most 32 bits above a place of at most 32.
impl Entry for u64 {
    #[inline(always)]
    fn new(key: u64, place: usize) -> u64 {
        key << 32 | place as u64
    }

    #[inline(always)]
    fn place(self) -> usize {
        self as u32 as usize
    }

    #[inline(always)]
    fn key_from(self, shift: u32) -> usize {
        (self >> (32 + shift)) as usize
    }
}

/// A key and a place of any size.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    key: u64,
    place: usize,
}

impl Entry for Pair {
    #[inline(always)]
    fn new(key: u64, place: usize) -> Pair {
        Pair { key, place }
    }

    #[inline(always)]
    fn place(self) -> usize {
        self.place
    }

    #[inline(always)]
    fn key_from(self, shift: u32) -> usize {
        (self.key >> shift) as usize
    }
}

/// Bits of the key by which one pass of a radix sort tells entries apart.
const DIGIT: u32 = 11;
const BUCKETS: usize = 1 << DIGIT;

/// Entries from which counting buckets beats comparing.
const RADIX_FROM: usize = 2048;

/// Orders entries, whose keys have that many bits and whose places ascend. Leaves anything in `scratch`.
pub(super) fn order_entries<E: Entry>(entries: &mut Vec<E>, scratch: &mut Vec<E>, bits: u32) {
    if entries.len() < RADIX_FROM {
        return entries.sort_unstable();
    }
    let digit = |entry: &E, shift: u32| entry.key_from(shift) & (BUCKETS - 1);
    let mut counts = alloc::vec![0usize; bits.div_ceil(DIGIT) as usize * BUCKETS];
    for entry in entries.iter() {
        for (pass, counts) in counts.chunks_exact_mut(BUCKETS).enumerate() {
            counts[digit(entry, pass as u32 * DIGIT)] += 1;
        }
    }
    scratch.clear();
    scratch.resize(entries.len(), E::default());
    for (pass, starts) in counts.chunks_exact_mut(BUCKETS).enumerate() {
        let shift = pass as u32 * DIGIT;
        if starts[digit(&entries[0], shift)] == entries.len() {
            continue;
        }
        let mut start = 0;
        for slot in starts.iter_mut() {
            start += core::mem::replace(slot, start);
        }
        for entry in entries.iter() {
            let slot = &mut starts[digit(entry, shift)];
            scratch[*slot] = *entry;
            *slot += 1;
        }
        core::mem::swap(entries, scratch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffled(n: usize, mask: u64) -> impl Iterator<Item = (u64, usize)> {
        (0..n).map(move |i| ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) & mask, i))
    }

    #[test]
    fn radix_and_comparison_agree() {
        for (bits, mask) in [(8, 0xff), (16, 0xfff0), (32, 0xffff_ffff), (64, u64::MAX), (64, 0xff << 40)] {
            let mut pairs: Vec<Pair> = shuffled(5000, mask).map(|(key, i)| Pair::new(key, i)).collect();
            let mut expected = pairs.clone();
            expected.sort_unstable();
            order_entries(&mut pairs, &mut Vec::new(), bits);
            assert!(pairs == expected, "{bits} bits");
            if bits <= 32 {
                let mut words: Vec<u64> = shuffled(5000, mask).map(|(key, i)| u64::new(key, i)).collect();
                order_entries(&mut words, &mut Vec::new(), bits);
                assert!(words.iter().map(|word| word.place()).eq(expected.iter().map(|pair| pair.place)));
            }
        }
    }
}
