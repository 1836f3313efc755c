//! The process-wide pool of freed blocks, cached for later allocations.
//!
//! Small blocks go through a per-thread cache ([`thread`](super::thread)). One lock guards the pool behind it, which
//! also serves larger blocks directly. System calls are made without the lock.

use super::block::Block;
use super::class::Class;
use super::thread;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kiln_ir::MemoryUse;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of classes by which a reused block may exceed the request: up to a quarter; if the pool is full, up to
/// twice the size.
const CLOSE: usize = 2;
const WIDE: usize = 8;

/// Bytes that may be cached in addition to a quarter of the peak, so that small programs keep all their blocks.
const SLACK: usize = 32 << 20;

static POOL: Mutex<Pool> = Mutex::new(Pool::new());

pub(super) struct Pool {
    /// For each class, the cached blocks, the most recently freed last.
    kept: [VecDeque<Kept>; Class::COUNT],
    /// Counts frees: the timestamp for finding the least recently freed block.
    clock: u64,
    kept_bytes: usize,
    /// Excludes counts that threads have not reported yet, and may therefore be negative.
    live_bytes: isize,
    peak_bytes: usize,
    system_allocations: u64,
    reuses: u64,
    limit: Option<Limit>,
}

struct Kept {
    block: Block,
    freed: u64,
}

/// The limit on cached bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Live and cached bytes together stay below the peak of live bytes, a quarter of that, and [`SLACK`].
    Peak,
    /// The limit in `KILN_CPU_POOL_BYTES`.
    Bytes(usize),
}

impl Limit {
    /// The limit from the environment variable, or the default if it is not set.
    ///
    /// # Panics
    /// When the variable is not a number. [`check_settings`] reports that before the first buffer.
    fn from_environment() -> Limit {
        let parse = |text: &str| text.parse().ok();
        kiln_ir::setting("KILN_CPU_POOL_BYTES", "a number of bytes", parse).map_or(Limit::Peak, Limit::Bytes)
    }
}

/// Parses the settings of the pool once, where a panic about them does no harm.
pub(super) fn check_settings() {
    static CHECKED: std::sync::Once = std::sync::Once::new();
    if !CHECKED.is_completed() {
        let limit = Limit::from_environment();
        CHECKED.call_once(|| lock().limit = Some(limit));
    }
}

/// Allocates a block of a class: a cached one, or a new one from the system. `None` if out of memory.
pub(super) fn take(class: Class) -> Option<Block> {
    let mut pool = lock();
    if let Some(block) = pool.reuse(class, CLOSE) {
        pool.handed_out(&block, true);
        return Some(block);
    }
    let bytes = class.bytes();
    if pool.excess(bytes) > 0
        && let Some(block) = pool.reuse(class, WIDE)
    {
        pool.handed_out(&block, true);
        return Some(block);
    }
    let oldest = pool.make_room(bytes);
    drop(pool);
    drop(oldest);
    let block = match Block::new(class) {
        Some(block) => block,
        None => {
            // Trimming may free the missing memory.
            trim();
            Block::new(class)?
        }
    };
    lock().handed_out(&block, false);
    Some(block)
}

/// Returns an allocated block to the pool.
pub(super) fn put(block: Block) {
    let mut pool = lock();
    pool.live_bytes -= block.class().bytes() as isize;
    pool.keep(block);
    let oldest = pool.make_room(0);
    drop(pool);
    drop(oldest);
}

/// Takes up to `most` cached blocks of exactly this class, for a thread's cache.
pub(super) fn take_kept(class: Class, most: usize, mut found: impl FnMut(Block)) {
    let mut pool = lock();
    for _ in 0..most {
        let Some(kept) = pool.kept[class.index()].pop_back() else { return };
        pool.kept_bytes -= class.bytes();
        found(kept.block);
    }
}

/// Returns blocks from a thread's cache.
pub(super) fn put_kept(blocks: impl Iterator<Item = Block>) {
    let mut pool = lock();
    blocks.for_each(|block| pool.keep(block));
    let oldest = pool.make_room(0);
    drop(pool);
    drop(oldest);
}

/// Reports bytes that a thread allocated; negative for freed bytes.
pub(super) fn report(live: isize, system_allocations: u64, reuses: u64) {
    let mut pool = lock();
    pool.live_bytes += live;
    pool.system_allocations += system_allocations;
    pool.reuses += reuses;
    pool.note_peak();
}

/// Frees all cached blocks. Other threads' caches follow at their next use.
pub(super) fn trim() {
    thread::trim();
    let mut pool = lock();
    let blocks: Vec<VecDeque<Kept>> = pool.kept.iter_mut().map(core::mem::take).collect();
    pool.kept_bytes = 0;
    drop(pool);
    drop(blocks);
}

pub(super) fn usage() -> MemoryUse {
    let threads = thread::totals();
    let mut pool = lock();
    let live = (pool.live_bytes + threads.live).max(0) as usize;
    pool.peak_bytes = pool.peak_bytes.max(live);
    MemoryUse {
        live_bytes: live,
        kept_bytes: pool.kept_bytes + threads.kept,
        peak_live_bytes: pool.peak_bytes,
        system_allocations: pool.system_allocations + threads.system_allocations,
        reuses: pool.reuses + threads.reuses,
    }
}

pub(super) fn reset_peak() {
    let threads = thread::totals();
    let mut pool = lock();
    pool.peak_bytes = (pool.live_bytes + threads.live).max(0) as usize;
}

fn lock() -> MutexGuard<'static, Pool> {
    // Only a failed allocation of a list's memory panics while the lock is held, and it leaves the list intact.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    pub(super) const fn new() -> Pool {
        Pool {
            kept: [const { VecDeque::new() }; Class::COUNT],
            clock: 0,
            kept_bytes: 0,
            live_bytes: 0,
            peak_bytes: 0,
            system_allocations: 0,
            reuses: 0,
            limit: None,
        }
    }

    /// The most recently freed block of the class, or of one of the `further` next larger classes.
    fn reuse(&mut self, class: Class, further: usize) -> Option<Block> {
        let classes = class.index()..(class.index() + further + 1).min(Class::COUNT);
        let kept = self.kept[classes].iter_mut().find_map(VecDeque::pop_back)?;
        self.kept_bytes -= kept.block.class().bytes();
        Some(kept.block)
    }

    fn handed_out(&mut self, block: &Block, is_reused: bool) {
        self.live_bytes += block.class().bytes() as isize;
        if is_reused {
            self.reuses += 1;
        } else {
            self.system_allocations += 1;
        }
        self.note_peak();
    }

    fn note_peak(&mut self) {
        self.peak_bytes = self.peak_bytes.max(self.live_bytes.max(0) as usize);
    }

    fn keep(&mut self, block: Block) {
        self.clock += 1;
        self.kept_bytes += block.class().bytes();
        let index = block.class().index();
        self.kept[index].push_back(Kept { block, freed: self.clock });
    }

    /// The cached bytes above the limit after `more` bytes become live.
    fn excess(&mut self, more: usize) -> usize {
        let live = (self.live_bytes.max(0) as usize).saturating_add(more);
        let allowed = match *self.limit.get_or_insert_with(Limit::from_environment) {
            Limit::Bytes(bytes) => bytes,
            Limit::Peak => {
                let peak = self.peak_bytes.max(live);
                peak.saturating_add(peak / 4).saturating_add(SLACK).saturating_sub(live)
            }
        };
        self.kept_bytes.saturating_sub(allowed)
    }

    /// Removes the least recently freed blocks until the limit holds with `more` live bytes. The caller drops them
    /// outside the lock.
    fn make_room(&mut self, more: usize) -> Vec<Block> {
        let mut out = Vec::new();
        while self.excess(more) > 0 {
            let fronts = self.kept.iter_mut().filter(|list| !list.is_empty());
            let Some(list) = fronts.min_by_key(|list| list.front().map(|kept| kept.freed)) else { break };
            let Some(kept) = list.pop_front() else { break };
            self.kept_bytes -= kept.block.class().bytes();
            out.push(kept.block);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(len: usize) -> Class {
        Class::of(len).unwrap()
    }

    /// A separate pool for tests.
    fn pool(limit: Limit) -> Pool {
        Pool { limit: Some(limit), ..Pool::new() }
    }

    fn fresh(pool: &mut Pool, len: usize) -> Block {
        let block = Block::new(class(len)).unwrap();
        pool.handed_out(&block, false);
        block
    }

    fn free(pool: &mut Pool, block: Block) -> usize {
        pool.live_bytes -= block.class().bytes() as isize;
        pool.keep(block);
        pool.make_room(0).len()
    }

    #[test]
    fn a_freed_block_is_handed_out_again_last_in_first_out() {
        let mut pool = pool(Limit::Bytes(usize::MAX));
        let (a, b) = (fresh(&mut pool, 10_000), fresh(&mut pool, 10_000));
        let (first, second) = (a.start(), b.start());
        assert_eq!((free(&mut pool, a), free(&mut pool, b)), (0, 0));
        assert_eq!(pool.reuse(class(10_000), CLOSE).unwrap().start(), second);
        assert_eq!(pool.reuse(class(9_900), CLOSE).unwrap().start(), first);
        assert!(pool.reuse(class(10_000), CLOSE).is_none());
        assert_eq!(pool.kept_bytes, 0);
    }

    #[test]
    fn a_block_up_to_a_quarter_larger_will_do() {
        let mut pool = pool(Limit::Bytes(usize::MAX));
        let block = fresh(&mut pool, 1 << 16);
        free(&mut pool, block);
        assert!(pool.reuse(class((1 << 16) * 3 / 4), CLOSE).is_none());
        let block = pool.reuse(class((1 << 16) * 7 / 8), CLOSE).unwrap();
        assert_eq!(block.class().bytes(), 1 << 16);
    }

    #[test]
    fn the_limit_drops_what_lies_longest() {
        let mut pool = pool(Limit::Bytes(3 * 8192));
        let blocks: Vec<Block> = [8192, 16384, 8192].map(|len| fresh(&mut pool, len)).into();
        let dropped: Vec<usize> = blocks.into_iter().map(|block| free(&mut pool, block)).collect();
        assert_eq!(dropped, [0, 0, 1]);
        assert_eq!(pool.kept_bytes, 3 * 8192);
        let large = fresh(&mut pool, 1 << 20);
        assert_eq!(free(&mut pool, large), 3, "a block that alone is over the limit goes with all before it");
        assert_eq!(pool.kept_bytes, 0);
    }

    #[test]
    fn by_default_the_footprint_stays_near_the_peak() {
        let mut pool = pool(Limit::Peak);
        let peak = 256 << 20;
        pool.live_bytes = peak as isize;
        pool.note_peak();
        pool.kept_bytes = peak / 4 + SLACK;
        assert_eq!(pool.excess(0), 0);
        pool.kept_bytes += 4096;
        assert_eq!(pool.excess(0), 4096);
        // A new peak raises the limit.
        assert_eq!(pool.excess(4 * 4096), 0);
        pool.kept_bytes = 0;
    }
}
