//! Allocation without a pool, for targets without a standard library: every block comes from the general allocator and
//! returns to it.

use super::block::Block;
use super::class::Class;
use core::sync::atomic::{AtomicUsize, Ordering};
use kiln_ir::{MemoryConfig, MemoryUse};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Allocates a block of a class; `None` if out of memory.
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

/// Frees a block.
pub(super) fn put(block: Block) {
    note(-(block.class().bytes() as isize));
}

/// Adds to the live bytes that are not in a block; negative to subtract.
pub(super) fn note(live: isize) {
    // Negative values wrap around.
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
