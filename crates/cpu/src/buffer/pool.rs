//! The process-wide pool of freed blocks, cached for later allocations.
//!
//! Small blocks go through a per-thread cache ([`thread`](super::thread)). One lock guards the pool behind it, which
//! also serves larger blocks directly. System calls are made without the lock.

use super::block::Block;
use super::class::Class;
use super::thread;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use kiln_ir::{CacheStrategy, MemoryConfig, MemoryUse, SystemMemory};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The number of classes by which a reused block may exceed the request: up to a quarter; if the pool is full, up to
/// twice the size.
const CLOSE: usize = 2;
const WIDE: usize = 8;

/// Bytes that may be cached in addition to a quarter of the peak, so that small programs keep all their blocks.
const SLACK: usize = 32 << 20;

/// The bytes of the system, beyond which no allocation is tried: a system that promises more than it has would end the
/// process later.
pub(super) static SYSTEM_MEMORY: LazyLock<usize> = LazyLock::new(|| {
    let total = SystemMemory::read().and_then(|memory| usize::try_from(memory.total).ok());
    total.unwrap_or(usize::MAX)
});

static POOL: Mutex<Pool> = Mutex::new(Pool::new());

pub(super) struct Pool {
    /// For each class, the cached blocks, the most recently freed last.
    kept: [VecDeque<Kept>; Class::COUNT],
    /// Counts frees: the timestamp for finding the least recently freed block.
    clock: u64,
    cached_bytes: usize,
    /// Without the counts that threads have not reported yet, and so possibly negative.
    live_bytes: isize,
    peak_bytes: usize,
    system_allocations: u64,
    reuses: u64,
    /// `None` until the environment is read.
    config: Option<MemoryConfig>,
}

struct Kept {
    block: Block,
    freed: u64,
}

/// The cache strategy of the environment variable `KILN_CPU_POOL_BYTES`; the default where it is not set.
///
/// # Panics
/// When the variable holds no number. [`check_settings`] finds that out before the first buffer.
fn from_environment() -> MemoryConfig {
    let parse = |text: &str| text.parse().ok();
    let bytes = kiln_ir::setting("KILN_CPU_POOL_BYTES", "a number of bytes", parse);
    MemoryConfig::new().with_cache(bytes.map_or(CacheStrategy::Automatic, CacheStrategy::AtMost))
}

/// Parses the settings of the pool once, where a panic about them does no harm.
pub(super) fn check_settings() {
    static CHECKED: std::sync::Once = std::sync::Once::new();
    if !CHECKED.is_completed() {
        let config = from_environment();
        CHECKED.call_once(|| _ = lock().config.get_or_insert(config));
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
    let is_within_limit = pool.is_within_limit(bytes);
    drop(pool);
    drop(oldest);
    if !is_within_limit {
        return None;
    }
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
        pool.cached_bytes -= class.bytes();
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

/// Whether the limit allows a small block of that many bytes from the system, once cached ones are freed for it.
pub(super) fn admits(bytes: usize) -> bool {
    let mut pool = lock();
    let oldest = pool.make_room(bytes);
    let admits = pool.is_within_limit(bytes);
    drop(pool);
    drop(oldest);
    admits
}

/// Applies a limit and a cache strategy.
pub(super) fn configure(config: MemoryConfig) {
    // Blocks in the caches of threads count against neither.
    thread::trim();
    let mut pool = lock();
    pool.config = Some(config);
    let oldest = pool.make_room(0);
    drop(pool);
    drop(oldest);
}

/// Gives everything kept back to the system; other threads' caches follow when those threads next use them.
pub(super) fn trim() {
    thread::trim();
    let mut pool = lock();
    let blocks: Vec<VecDeque<Kept>> = pool.kept.iter_mut().map(core::mem::take).collect();
    pool.cached_bytes = 0;
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
        cached_bytes: pool.cached_bytes + threads.kept,
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
            cached_bytes: 0,
            live_bytes: 0,
            peak_bytes: 0,
            system_allocations: 0,
            reuses: 0,
            config: None,
        }
    }

    /// The most recently freed block of the class, or of one of the `further` next larger classes.
    fn reuse(&mut self, class: Class, further: usize) -> Option<Block> {
        let classes = class.index()..(class.index() + further + 1).min(Class::COUNT);
        let kept = self.kept[classes].iter_mut().find_map(VecDeque::pop_back)?;
        self.cached_bytes -= kept.block.class().bytes();
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
        self.cached_bytes += block.class().bytes();
        let index = block.class().index();
        self.kept[index].push_back(Kept { block, freed: self.clock });
    }

    fn config(&mut self) -> MemoryConfig {
        *self.config.get_or_insert_with(from_environment)
    }

    /// The live bytes once `more` have become live.
    fn live_with(&self, more: usize) -> usize {
        (self.live_bytes.max(0) as usize).saturating_add(more)
    }

    fn is_within_limit(&mut self, more: usize) -> bool {
        self.live_with(more) <= self.limit()
    }

    /// The most live bytes: without a limit of the user, the memory of the system.
    fn limit(&mut self) -> usize {
        self.config().limit.unwrap_or_else(|| *SYSTEM_MEMORY)
    }

    /// The cached bytes beyond the strategy and the limit, once `more` bytes have become live.
    fn excess(&mut self, more: usize) -> usize {
        let live = self.live_with(more);
        let config = self.config();
        let by_strategy = match config.cache {
            CacheStrategy::Automatic => {
                let peak = self.peak_bytes.max(live);
                peak.saturating_add(peak / 4).saturating_add(SLACK).saturating_sub(live)
            }
            CacheStrategy::Unlimited => usize::MAX,
            CacheStrategy::AtMost(bytes) => bytes,
            CacheStrategy::Disabled => 0,
        };
        let by_limit = self.limit().saturating_sub(live);
        self.cached_bytes.saturating_sub(by_strategy.min(by_limit))
    }

    /// Removes the least recently freed blocks until the limit holds with `more` live bytes. The caller drops them
    /// outside the lock.
    fn make_room(&mut self, more: usize) -> Vec<Block> {
        let mut out = Vec::new();
        while self.excess(more) > 0 {
            let fronts = self.kept.iter_mut().filter(|list| !list.is_empty());
            let Some(list) = fronts.min_by_key(|list| list.front().map(|kept| kept.freed)) else { break };
            let Some(kept) = list.pop_front() else { break };
            self.cached_bytes -= kept.block.class().bytes();
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

    /// A separate pool, not the one of the process.
    fn pool(cache: CacheStrategy) -> Pool {
        Pool { config: Some(MemoryConfig::new().with_cache(cache)), ..Pool::new() }
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
    fn freed_blocks_are_reused_last_in_first_out() {
        let mut pool = pool(CacheStrategy::Unlimited);
        let (a, b) = (fresh(&mut pool, 10_000), fresh(&mut pool, 10_000));
        let (first, second) = (a.start(), b.start());
        assert_eq!((free(&mut pool, a), free(&mut pool, b)), (0, 0));
        assert_eq!(pool.reuse(class(10_000), CLOSE).unwrap().start(), second);
        assert_eq!(pool.reuse(class(9_900), CLOSE).unwrap().start(), first);
        assert!(pool.reuse(class(10_000), CLOSE).is_none());
        assert_eq!(pool.cached_bytes, 0);
    }

    #[test]
    fn a_block_up_to_a_quarter_larger_is_reused() {
        let mut pool = pool(CacheStrategy::Unlimited);
        let block = fresh(&mut pool, 1 << 16);
        free(&mut pool, block);
        assert!(pool.reuse(class((1 << 16) * 3 / 4), CLOSE).is_none());
        let block = pool.reuse(class((1 << 16) * 7 / 8), CLOSE).unwrap();
        assert_eq!(block.class().bytes(), 1 << 16);
    }

    #[test]
    fn the_limit_evicts_the_oldest_blocks() {
        let mut pool = pool(CacheStrategy::AtMost(3 * 8192));
        let blocks: Vec<Block> = [8192, 16384, 8192].map(|len| fresh(&mut pool, len)).into();
        let dropped: Vec<usize> = blocks.into_iter().map(|block| free(&mut pool, block)).collect();
        assert_eq!(dropped, [0, 0, 1]);
        assert_eq!(pool.cached_bytes, 3 * 8192);
        let large = fresh(&mut pool, 1 << 20);
        assert_eq!(
            free(&mut pool, large),
            3,
            "a block that exceeds the limit alone is freed with all older ones"
        );
        assert_eq!(pool.cached_bytes, 0);
    }

    #[test]
    fn by_default_the_footprint_stays_near_the_peak() {
        let mut pool = pool(CacheStrategy::Automatic);
        let peak = 256 << 20;
        pool.live_bytes = peak as isize;
        pool.note_peak();
        pool.cached_bytes = peak / 4 + SLACK;
        assert_eq!(pool.excess(0), 0);
        pool.cached_bytes += 4096;
        assert_eq!(pool.excess(0), 4096);
        // A new peak raises the limit.
        assert_eq!(pool.excess(4 * 4096), 0);
        pool.cached_bytes = 0;
    }
    #[test]
    fn a_disabled_cache_releases_every_block() {
        let mut pool = pool(CacheStrategy::Disabled);
        let block = fresh(&mut pool, 10_000);
        assert_eq!(free(&mut pool, block), 1);
        assert_eq!(pool.cached_bytes, 0);
    }

    #[test]
    fn the_limit_counts_live_and_cached_bytes() {
        let mut pool = pool(CacheStrategy::Unlimited);
        pool.config = Some(MemoryConfig::new().with_limit(4 * 8192));
        let (a, b) = (fresh(&mut pool, 8192), fresh(&mut pool, 16384));
        assert!(pool.is_within_limit(8192) && !pool.is_within_limit(8193));
        assert_eq!(free(&mut pool, b), 0);
        assert_eq!(pool.excess(8192), 0, "24 KiB are in use, and 8 more fit");
        assert_eq!(pool.make_room(16384).len(), 1, "the cached block is released for a new one");
        free(&mut pool, a);
    }
}
