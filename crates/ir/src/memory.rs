//! Memory of engines: statistics, limits and the caching of freed blocks.

use serde::{Deserialize, Serialize};

/// The caching allocator of an engine. It reuses the blocks of freed tensors.
pub trait Memory: Send + Sync {
    /// The current statistics.
    fn usage(&self) -> MemoryUse;

    /// Resets [`peak_live_bytes`](MemoryUse::peak_live_bytes) to the current live bytes.
    fn reset_peak(&self);

    /// Returns cached blocks that are not in use to the system.
    fn trim(&self);

    /// Applies a limit and a cache strategy from now on. Cached blocks beyond them are returned to the system; live tensors
    /// stay as they are, even above the limit.
    fn configure(&self, config: MemoryConfig);
}

/// The memory strategy of a device: how much memory tensors may occupy, and which freed blocks are cached.
///
/// ```
/// use kiln_ir::{CacheStrategy, MemoryConfig};
///
/// // At most 8 GiB in all, of which 1 GiB may be cached.
/// let config = MemoryConfig::new().with_limit(8 << 30).with_cache(CacheStrategy::AtMost(1 << 30));
/// assert_eq!(config.limit, Some(8 << 30));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryConfig {
    /// The maximum number of bytes in live tensors and cached blocks together. A tensor that exceeds it is an
    /// out-of-memory error. Default: `None`, the memory of the device.
    pub limit: Option<usize>,
    /// The freed blocks that are cached. Default: [`CacheStrategy::Automatic`].
    pub cache: CacheStrategy,
}

/// The freed blocks that an engine caches for later tensors. A cached block saves a system call, and on a CPU the page
/// faults of fresh memory; other processes cannot use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheStrategy {
    /// The default of the engine. On a GPU: all freed blocks. On the CPU: live and cached bytes together stay within five
    /// quarters of the peak of live bytes, plus 32 MiB.
    #[default]
    Automatic,
    /// All freed blocks. Fastest where sizes repeat.
    Unlimited,
    /// Freed blocks of that many bytes in total.
    AtMost(usize),
    /// No block. Each tensor is a system allocation, so that the process never holds more than its tensors. The CPU
    /// keeps at most 1 MiB of blocks below 4 KiB for each thread.
    Disabled,
}

impl MemoryConfig {
    /// Returns no limit, and the cache strategy of the engine.
    pub const fn new() -> MemoryConfig {
        MemoryConfig { limit: None, cache: CacheStrategy::Automatic }
    }

    /// Sets the maximum number of bytes in live tensors and cached blocks together.
    #[must_use]
    pub const fn with_limit(mut self, bytes: usize) -> MemoryConfig {
        self.limit = Some(bytes);
        self
    }

    /// Sets the freed blocks that are cached.
    #[must_use]
    pub const fn with_cache(mut self, cache: CacheStrategy) -> MemoryConfig {
        self.cache = cache;
        self
    }
}

/// Memory statistics of an engine. Bytes are the sizes of blocks, which may be slightly larger than their tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes of live tensors. PyTorch: `memory_allocated`.
    pub live_bytes: usize,
    /// Bytes of cached blocks. PyTorch: `memory_reserved` minus `memory_allocated`.
    pub cached_bytes: usize,
    /// The maximum of `live_bytes` since the start or the last reset. PyTorch: `max_memory_allocated`.
    pub peak_live_bytes: usize,
    /// The number of allocations from the system.
    pub system_allocations: u64,
    /// The number of allocations from cached blocks.
    pub reuses: u64,
}
