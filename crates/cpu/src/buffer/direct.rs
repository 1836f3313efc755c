//! Memory without a pool, where there is no standard library: every block comes from the general allocator and goes
//! back there.

use super::block::Block;
use super::class::Class;
use core::sync::atomic::{AtomicUsize, Ordering};
use kiln_ir::{MemoryConfig, MemoryUse};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// A block with room for a class; `None` where there is not enough memory.
pub(super) fn take(class: Class) -> Option<Block> {
    let live = LIVE.load(Ordering::Relaxed).saturating_add(class.bytes());
    if live > LIMIT.load(Ordering::Relaxed) {
        return None;
    }
    let block = Block::new(class)?;
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    note(class.bytes() as isize);
    Some(block)
}

/// Gives a block back.
pub(super) fn put(block: Block) {
    note(-(block.class().bytes() as isize));
}

/// Counts bytes that became live without a block (or no longer are, where negative).
pub(super) fn note(live: isize) {
    // Negative numbers wrap around to the difference.
    let now = LIVE.fetch_add(live as usize, Ordering::Relaxed).wrapping_add(live as usize);
    PEAK.fetch_max(now, Ordering::Relaxed);
}

pub(super) fn usage() -> MemoryUse {
    MemoryUse {
        live_bytes: LIVE.load(Ordering::Relaxed),
        cached_bytes: 0,
        peak_live_bytes: PEAK.load(Ordering::Relaxed),
        system_allocations: ALLOCATIONS.load(Ordering::Relaxed) as u64,
        reuses: 0,
    }
}

pub(super) fn reset_peak() {
    PEAK.store(LIVE.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Applies a limit. No strategy caches anything here.
pub(super) fn configure(config: MemoryConfig) {
    LIMIT.store(config.limit.unwrap_or(usize::MAX), Ordering::Relaxed);
}

/// Nothing is cached.
pub(super) fn trim() {}
