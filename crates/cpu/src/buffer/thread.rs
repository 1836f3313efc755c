//! Per-thread caches of small blocks: eager ops on small tensors allocate here, without a lock.

use super::block::Block;
use super::class::Class;
use super::pool;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The number of cached classes: those up to 4 KiB.
const CLASSES: usize = 32;

/// The maximum bytes of a list, which may hold [`MIN_BLOCKS`] blocks in any case.
const MAX_BYTES: usize = 32 << 10;
const MIN_BLOCKS: usize = 8;

/// The maximum unreported bytes per thread: the precision of the peak.
const UNREPORTED: usize = 64 << 10;

std::thread_local! {
    static CACHE: Cache = Cache::new();
}

/// The counters of all threads that have a cache.
static THREADS: Mutex<Vec<Arc<Counters>>> = Mutex::new(Vec::new());

/// Counts trims of the pool: a cache with an older count empties itself.
static TRIMMED: AtomicUsize = AtomicUsize::new(0);

struct Cache {
    lists: [Cell<List>; CLASSES],
    trimmed: Cell<usize>,
    counters: Arc<Counters>,
}

/// A linked list of free blocks of one class; each block contains the address of the next.
#[derive(Clone, Copy)]
struct List {
    head: Option<NonNull<u8>>,
    len: usize,
}

const EMPTY: List = List { head: None, len: 0 };

/// The counts of a thread since its last report. Only that thread writes them, so counting needs no synchronization.
#[derive(Default)]
struct Counters {
    /// Bytes allocated minus bytes freed. Negative in a thread that frees blocks of other threads.
    live: AtomicIsize,
    /// The bytes above and those in the cache. Allocating from the cache and freeing to it changes only `live`.
    held: AtomicIsize,
    system_allocations: AtomicUsize,
    reuses: AtomicUsize,
}

/// The sum of all threads' unreported counts.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) live: isize,
    pub(super) kept: usize,
    pub(super) system_allocations: u64,
    pub(super) reuses: u64,
}

/// Whether blocks of a class are cached.
#[inline]
pub(super) fn is_small(class: Class) -> bool {
    class.index() < CLASSES
}

/// Allocates a block of a small class; `None` if out of memory.
#[inline]
pub(super) fn take(class: Class) -> Option<NonNull<u8>> {
    CACHE.try_with(|cache| cache.take(class)).unwrap_or_else(|_| take_uncached(class))
}

/// Allocates without the cache, which is gone while the thread ends. The block has exactly this class, since only its
/// address is kept.
#[cold]
fn take_uncached(class: Class) -> Option<NonNull<u8>> {
    let block = Block::new(class)?;
    pool::report(class.bytes() as isize, 1, 0);
    Some(block.into_start())
}

/// Returns a block of a small class to the cache.
///
/// # Safety
/// The address must come from [`take`] for this class, and the block must be unused.
#[inline]
pub(super) unsafe fn put(start: NonNull<u8>, class: Class) {
    // SAFETY: as the caller promises.
    let cached = CACHE.try_with(|cache| unsafe { cache.put(start, class) });
    if cached.is_err() {
        // SAFETY: as the caller promises; the cache has not taken it.
        pool::put(unsafe { Block::from_start(start, class) });
    }
}

/// Adds to the live bytes that are not in a block; negative to subtract.
pub(super) fn note(live: isize) {
    if CACHE.try_with(|cache| cache.note(live)).is_err() {
        pool::report(live, 0, 0);
    }
}

/// Empties this thread's cache now, and others' at their next use.
pub(super) fn trim() {
    TRIMMED.fetch_add(1, Ordering::Relaxed);
    let _ = CACHE.try_with(Cache::catch_up);
}

pub(super) fn totals() -> Totals {
    let threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    threads.iter().fold(Totals::default(), |sum, counters| {
        let live = counters.live.load(Ordering::Relaxed);
        let kept = counters.held.load(Ordering::Relaxed) - live;
        Totals {
            live: sum.live + live,
            kept: sum.kept + kept.max(0) as usize,
            system_allocations: sum.system_allocations
                + counters.system_allocations.load(Ordering::Relaxed) as u64,
            reuses: sum.reuses + counters.reuses.load(Ordering::Relaxed) as u64,
        }
    })
}

impl Cache {
    fn new() -> Cache {
        let counters = Arc::new(Counters::default());
        THREADS.lock().unwrap_or_else(PoisonError::into_inner).push(counters.clone());
        Cache {
            lists: [const { Cell::new(EMPTY) }; CLASSES],
            trimmed: Cell::new(TRIMMED.load(Ordering::Relaxed)),
            counters,
        }
    }

    #[inline]
    fn take(&self, class: Class) -> Option<NonNull<u8>> {
        if self.trimmed.get() != TRIMMED.load(Ordering::Relaxed) {
            self.catch_up();
        }
        let start = match self.pop(class) {
            Some(start) => {
                add(&self.counters.reuses, 1);
                start
            }
            None => self.fetch(class)?.into_start(),
        };
        self.note_live(class.bytes() as isize);
        Some(start)
    }

    /// # Safety
    /// As [`put`].
    #[inline]
    unsafe fn put(&self, start: NonNull<u8>, class: Class) {
        self.note_live(-(class.bytes() as isize));
        // SAFETY: as the caller promises.
        unsafe { self.push(start, class) };
        let is_full = self.lists[class.index()].get().len > most(class);
        if is_full || self.trimmed.get() != TRIMMED.load(Ordering::Relaxed) {
            self.overflow(class);
        }
    }

    fn note(&self, live: isize) {
        shift(&self.counters.held, live);
        self.note_live(live);
    }

    #[inline]
    fn note_live(&self, bytes: isize) {
        let live = self.counters.live.load(Ordering::Relaxed) + bytes;
        self.counters.live.store(live, Ordering::Relaxed);
        if live.unsigned_abs() > UNREPORTED {
            self.report();
        }
    }

    #[inline]
    fn pop(&self, class: Class) -> Option<NonNull<u8>> {
        let list = &self.lists[class.index()];
        let List { head, len } = list.get();
        let start = head?;
        // SAFETY: blocks in a list hold the address of the next one.
        let next = unsafe { start.cast::<Option<NonNull<u8>>>().read() };
        list.set(List { head: next, len: len - 1 });
        Some(start)
    }

    fn pop_block(&self, class: Class) -> Option<Block> {
        // SAFETY: blocks in a list are of the list's class, and have no other owner.
        self.pop(class).map(|start| unsafe { Block::from_start(start, class) })
    }

    /// # Safety
    /// As [`put`].
    #[inline]
    unsafe fn push(&self, start: NonNull<u8>, class: Class) {
        let list = &self.lists[class.index()];
        let List { head, len } = list.get();
        // SAFETY: the block is unused, and has room for a header.
        unsafe { start.cast::<Option<NonNull<u8>>>().write(head) };
        list.set(List { head: Some(start), len: len + 1 });
    }

    /// Allocates from the pool and refills the cache from it; or allocates from the system.
    #[cold]
    fn fetch(&self, class: Class) -> Option<Block> {
        let mut first = None;
        let mut bytes = 0;
        pool::take_kept(class, most(class) / 2, |block| {
            bytes += class.bytes() as isize;
            if first.is_none() {
                first = Some(block);
            } else {
                // SAFETY: the block is of this class, and this thread owns it from here on.
                unsafe { self.push(block.into_start(), class) };
            }
        });
        shift(&self.counters.held, bytes);
        if let Some(block) = first {
            add(&self.counters.reuses, 1);
            return Some(block);
        }
        if !pool::admits(class.bytes()) {
            return None;
        }
        let block = Block::new(class).or_else(|| {
            pool::trim();
            Block::new(class)
        })?;
        shift(&self.counters.held, class.bytes() as isize);
        add(&self.counters.system_allocations, 1);
        Some(block)
    }

    /// Moves half of a full list to the pool, for other threads.
    #[cold]
    fn overflow(&self, class: Class) {
        let excess = self.lists[class.index()].get().len.saturating_sub(most(class) / 2);
        pool::put_kept((0..excess).map_while(|_| self.pop_block(class)));
        shift(&self.counters.held, -((excess * class.bytes()) as isize));
        self.catch_up();
    }

    /// Empties the cache if the pool was trimmed since the last use.
    fn catch_up(&self) {
        let trimmed = TRIMMED.load(Ordering::Relaxed);
        if self.trimmed.replace(trimmed) == trimmed {
            return;
        }
        for class in (0..CLASSES).map(Class::at) {
            while let Some(block) = self.pop_block(class) {
                shift(&self.counters.held, -(class.bytes() as isize));
                drop(block);
            }
        }
    }

    #[cold]
    fn report(&self) {
        let counters = &*self.counters;
        let live = counters.live.swap(0, Ordering::Relaxed);
        shift(&counters.held, -live);
        let system_allocations = counters.system_allocations.swap(0, Ordering::Relaxed);
        let reuses = counters.reuses.swap(0, Ordering::Relaxed);
        pool::report(live, system_allocations as u64, reuses as u64);
    }
}

impl Drop for Cache {
    /// A thread that ends returns its blocks to the pool.
    fn drop(&mut self) {
        for class in (0..CLASSES).map(Class::at) {
            let len = self.lists[class.index()].get().len;
            pool::put_kept(core::iter::from_fn(|| self.pop_block(class)));
            shift(&self.counters.held, -((len * class.bytes()) as isize));
        }
        self.report();
        let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|counters| !Arc::ptr_eq(counters, &self.counters));
    }
}

/// The maximum number of cached blocks of a class.
#[inline]
fn most(class: Class) -> usize {
    const MAX_BLOCKS: [u16; CLASSES] = {
        let mut most = [0; CLASSES];
        let mut index = 0;
        while index < CLASSES {
            let fit = MAX_BYTES / Class::at(index).bytes();
            most[index] = if fit < MIN_BLOCKS { MIN_BLOCKS } else { fit } as u16;
            index += 1;
        }
        most
    };
    MAX_BLOCKS[class.index()] as usize
}

/// Adds to a counter that only this thread writes, without an atomic read-modify-write.
#[inline]
fn add(counter: &AtomicUsize, n: usize) {
    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

/// As [`add`], for a counter of bytes.
#[inline]
fn shift(counter: &AtomicIsize, bytes: isize) {
    counter.store(counter.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
}
