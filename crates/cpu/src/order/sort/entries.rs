//! Keys with indices: sorting by key and then by index is a stable sort by key.

/// A key and an index, ordered by key and then by index.
pub(super) trait Entry: Copy + Ord + Default + Send + Sync {
    fn new(key: u64, place: usize) -> Self;
    fn place(self) -> usize;
    fn key(self) -> u64;
}

/// A key of at most 32 bits above an index of at most 32 bits.
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
    fn key(self) -> u64 {
        self >> 32
    }
}

/// A key and an index of any size.
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
    fn key(self) -> u64 {
        self.key
    }
}
