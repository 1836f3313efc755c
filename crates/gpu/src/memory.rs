//! The caching allocator of device memory.
//!
//! All work of a device is in order, so a block may be reused as soon as no tensor holds it: its readers were queued
//! before. The free block that was created first is reused first. Repeated steps therefore reuse the same blocks in any
//! order of frees, and their graphs need no new addresses.

use crate::driver::{DevicePtr, Driver};
use kiln_ir::{CacheStrategy, Error, FxBuildHasher, MemoryConfig, MemoryUse, Result};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Blocks are multiples of this.
const UNIT: usize = 512;

/// The caching allocator of one device.
pub(crate) struct Pool<D: Driver> {
    driver: Arc<D>,
    state: Mutex<State<D::Memory>>,
}

struct State<M> {
    /// Free blocks by length and creation number.
    free: BTreeMap<(usize, u64), Arc<M>>,
    /// The addresses of the handles in `free`, in builds with debug assertions.
    free_handles: HashSet<usize, FxBuildHasher>,
    usage: MemoryUse,
    config: MemoryConfig,
}

/// Memory of a live block; dropping it returns it to the pool.
pub(crate) struct Block<D: Driver> {
    /// `None` only during the drop.
    memory: Option<Arc<D::Memory>>,
    len: usize,
    /// The number of blocks created before.
    number: u64,
    pool: Arc<Pool<D>>,
}

impl<D: Driver> Pool<D> {
    pub(crate) fn new(driver: Arc<D>, config: MemoryConfig) -> Arc<Pool<D>> {
        let state = State {
            free: BTreeMap::new(),
            free_handles: HashSet::default(),
            usage: MemoryUse::default(),
            config,
        };
        Arc::new(Pool { driver, state: Mutex::new(state) })
    }

    /// Allocates a block of at least that many bytes.
    ///
    /// # Errors
    /// When the device is out of memory, or the configured limit is reached.
    pub(crate) fn block(self: &Arc<Self>, bytes: usize) -> Result<Block<D>> {
        let len = class(bytes).ok_or_else(|| self.too_large(bytes))?;
        let (number, memory) = match self.with(|state| state.take(len)) {
            Some(found) => found,
            None => self.fresh(len)?,
        };
        Ok(Block { memory: Some(memory), len, number, pool: self.clone() })
    }

    fn fresh(&self, len: usize) -> Result<(u64, Arc<D::Memory>)> {
        let within = |state: &State<D::Memory>| {
            let taken = state.usage.live_bytes + state.usage.cached_bytes;
            state.config.limit.is_none_or(|limit| taken + len <= limit)
        };
        if !self.with(|state| within(state)) {
            self.trim();
        }
        if !self.with(|state| within(state)) {
            return Err(self.too_large(len));
        }
        let memory = self.driver.allocate(len).or_else(|_| {
            self.trim();
            self.driver.allocate(len)
        })?;
        let number = self.with(|state| {
            state.usage.hold(len);
            state.usage.system_allocations += 1;
            state.usage.system_allocations
        });
        Ok((number, Arc::new(memory)))
    }

    fn too_large(&self, bytes: usize) -> Error {
        let usage = self.usage();
        let problem =
            format!("out of memory: {bytes} bytes requested, while tensors use {} bytes", usage.live_bytes);
        let hint = "free tensors, reduce the batch size, or raise the limit of `MemoryConfig`";
        Error::device(&self.driver.info().name, problem).hint(hint)
    }

    pub(crate) fn usage(&self) -> MemoryUse {
        self.with(|state| state.usage)
    }

    pub(crate) fn reset_peak(&self) {
        self.with(|state| state.usage.peak_live_bytes = state.usage.live_bytes);
    }

    /// Returns all cached blocks to the system, after a synchronization.
    pub(crate) fn trim(&self) {
        let kept = self.with(|state| {
            state.usage.cached_bytes = 0;
            state.free_handles.clear();
            core::mem::take(&mut state.free)
        });
        // Dropped outside of the lock, since the driver waits.
        drop(kept);
    }

    /// Whether no tensor holds the block of this memory, so that it may be reused. Always `false` without debug assertions.
    pub(crate) fn is_free(&self, memory: &Arc<D::Memory>) -> bool {
        self.with(|state| state.free_handles.contains(&address(memory)))
    }

    /// Applies a limit and a cache strategy.
    pub(crate) fn configure(&self, config: MemoryConfig) {
        let exceeds = self.with(|state| {
            state.config = config;
            let held = state.usage.live_bytes + state.usage.cached_bytes;
            state.usage.cached_bytes > state.most_cached() || config.limit.is_some_and(|limit| held > limit)
        });
        if exceeds {
            self.trim();
        }
    }

    fn give_back(&self, memory: Arc<D::Memory>, len: usize, number: u64) {
        let surplus = self.with(|state| {
            state.usage.live_bytes -= len;
            if state.usage.cached_bytes + len > state.most_cached() {
                return Some(memory);
            }
            state.usage.cached_bytes += len;
            if cfg!(debug_assertions) {
                state.free_handles.insert(address(&memory));
            }
            state.free.insert((len, number), memory);
            None
        });
        drop(surplus);
    }

    fn with<R>(&self, body: impl FnOnce(&mut State<D::Memory>) -> R) -> R {
        body(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<M> State<M> {
    /// The maximum of cached bytes.
    fn most_cached(&self) -> usize {
        match self.config.cache {
            CacheStrategy::Automatic | CacheStrategy::Unlimited => usize::MAX,
            CacheStrategy::AtMost(bytes) => bytes,
            CacheStrategy::Disabled => 0,
        }
    }

    /// A block that was freed: the first that was made.
    fn take(&mut self, len: usize) -> Option<(u64, Arc<M>)> {
        let key = *self.free.range((len, 0)..=(len, u64::MAX)).next()?.0;
        let memory = self.free.remove(&key)?;
        if cfg!(debug_assertions) {
            self.free_handles.remove(&address(&memory));
        }
        self.usage.cached_bytes -= len;
        self.usage.reuses += 1;
        self.usage.hold(len);
        Some((key.1, memory))
    }
}

fn address<M>(memory: &Arc<M>) -> usize {
    Arc::as_ptr(memory).addr()
}

/// Updates the statistics when tensors hold more bytes.
trait Hold {
    fn hold(&mut self, bytes: usize);
}

impl Hold for MemoryUse {
    fn hold(&mut self, bytes: usize) {
        self.live_bytes += bytes;
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
    }
}

impl<D: Driver> Block<D> {
    /// The device pointer at a byte offset.
    pub(crate) fn at(&self, offset: usize) -> DevicePtr<D::Memory> {
        debug_assert!(offset <= self.len, "[gpu] a place outside of its block");
        let memory = self.memory.as_ref().expect("a block has its memory until it is dropped");
        DevicePtr::new(memory.clone(), offset)
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The device's limit on a binding, if the block exceeds it.
    pub(crate) fn exceeded_limit(&self) -> Option<usize> {
        self.pool.driver.info().binding_bytes.filter(|limit| self.len > *limit)
    }

    /// The number of blocks created before it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl<D: Driver> Drop for Block<D> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.give_back(memory, self.len, self.number);
        }
    }
}

/// The size class for that many bytes: one of eight sizes between powers of two. Less than an eighth is wasted, and
/// allocations of similar size share blocks.
fn class(bytes: usize) -> Option<usize> {
    let bytes = bytes.max(1).checked_next_multiple_of(UNIT)?;
    let step = (bytes.checked_next_power_of_two()? / 16).max(UNIT);
    bytes.checked_next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(config: MemoryConfig) -> Arc<Pool<crate::DryDriver>> {
        let driver = crate::DryDriver::new(crate::DeviceInfo::absent("dry"), |_| Ok(Vec::new()));
        Pool::new(Arc::new(driver), config)
    }

    #[test]
    fn the_strategy_bounds_cached_bytes() {
        let cached_after = |cache| {
            let pool = pool(MemoryConfig::new().with_cache(cache));
            drop([4096, 8192, 4096].map(|bytes| pool.block(bytes).unwrap()));
            pool.usage().cached_bytes
        };
        assert_eq!(cached_after(CacheStrategy::Automatic), 16384);
        assert_eq!(cached_after(CacheStrategy::Unlimited), 16384);
        assert_eq!(cached_after(CacheStrategy::AtMost(12288)), 12288);
        assert_eq!(cached_after(CacheStrategy::Disabled), 0);
    }

    #[test]
    fn the_limit_counts_live_and_cached_bytes() {
        let pool = pool(MemoryConfig::new().with_limit(12288));
        let live = pool.block(4096).unwrap();
        drop(pool.block(4096).unwrap());
        let large = pool.block(8192).expect("the cached block is freed for it");
        let error = pool.block(512).err().unwrap().to_string();
        assert!(error.contains("out of memory") && error.contains("MemoryConfig"), "{error}");
        pool.configure(MemoryConfig::new());
        drop((live, large, pool.block(1 << 20).unwrap()));
        pool.configure(MemoryConfig::new().with_cache(CacheStrategy::AtMost(4096)));
        assert_eq!(pool.usage().cached_bytes, 0, "a new strategy applies at once");
    }

    #[test]
    fn size_classes_waste_less_than_an_eighth() {
        for bytes in (1..100_000).chain([1 << 30, (1 << 30) + 1, usize::MAX / 4]) {
            let len = class(bytes).unwrap();
            assert!(len >= bytes && len.is_multiple_of(UNIT));
            assert!(len - bytes < UNIT.max(bytes / 8 + 1), "{bytes} {len}");
            assert_eq!(class(len), Some(len));
        }
        assert_eq!(class(usize::MAX), None);
    }

    #[test]
    fn a_dropped_block_is_free() {
        let pool = pool(MemoryConfig::new());
        let block = pool.block(100).unwrap();
        let place = block.at(0);
        assert!(!pool.is_free(&place.memory));
        drop(block);
        assert!(pool.is_free(&place.memory), "a place alone does not hold a block");
    }

    #[test]
    fn repeated_work_gets_the_same_blocks_in_any_order_of_frees() {
        let pool = pool(MemoryConfig::new());
        let all = || [100, 100, 5000, 100].map(|bytes| pool.block(bytes).unwrap());
        let numbers = |blocks: &[Block<crate::DryDriver>]| blocks.iter().map(|block| block.number).collect();
        let first: Vec<u64> = numbers(&all());
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            let blocks = all();
            assert_eq!(numbers(&blocks) as Vec<u64>, first);
            let mut blocks = blocks.map(Some);
            order.into_iter().for_each(|place| drop(blocks[place].take()));
        }
    }
}
