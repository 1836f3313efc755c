//! Blocks of memory from the system.

use super::HEADER;
use super::class::Class;
use alloc::alloc::{Layout, alloc, dealloc};
use core::ptr::NonNull;
#[cfg(all(feature = "std", unix))]
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a huge page. Blocks of this size are mapped from the system, in huge pages if it supports them. A page
/// fault for 2 MiB costs a fraction of the 512 faults of small pages, and TLB misses are cheaper too.
#[cfg(feature = "std")]
const HUGE: usize = 2 << 20;

/// The number of start offsets of mapped blocks in their first huge page: successive blocks start at successive small
/// pages.
#[cfg(all(feature = "std", unix))]
const SHIFTS: usize = 16;
#[cfg(all(feature = "std", unix))]
const PAGE: usize = 4 << 10;

/// Memory with room for a header and the bytes of a size class. Dropping it returns it to the system.
pub(super) struct Block {
    start: NonNull<u8>,
    class: Class,
    /// The mapping that contains the memory, unless it comes from the general allocator. Only on Unix: elsewhere
    /// mappings have no huge pages, and on Windows the type is too large for a buffer's header.
    #[cfg(all(feature = "std", unix))]
    mapping: Option<memmap2::MmapMut>,
}

// SAFETY: a block owns plain bytes, like a vector.
unsafe impl Send for Block {}

impl Block {
    /// Allocates an uninitialized block from the system; `None` if out of memory.
    pub(super) fn new(class: Class) -> Option<Block> {
        #[cfg(feature = "std")]
        if Block::is_large(class)
            && let Some(block) = Block::mapped(class)
        {
            return Some(block);
        }
        let layout = layout(class)?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        // SAFETY: allocated just now.
        Some(unsafe { Block::from_start(start, class) })
    }

    /// Whether blocks of the class are mapped.
    #[cfg(feature = "std")]
    pub(super) fn is_large(class: Class) -> bool {
        class.bytes() >= HUGE
    }

    /// Maps a zeroed block; `None` on systems without mappings, or if out of memory.
    ///
    /// The mapping starts at a huge page, since the system does not use one that a mapping covers partially. The last
    /// one, which the block does not fill, gets small pages, unless little is missing.
    #[cfg(all(feature = "std", unix))]
    pub(super) fn mapped(class: Class) -> Option<Block> {
        /// Counts blocks, to stagger their start addresses: operands with equal low address bits would conflict in
        /// cache sets and memory banks.
        static BLOCKS: AtomicUsize = AtomicUsize::new(0);
        let shift = BLOCKS.fetch_add(1, Ordering::Relaxed) % SHIFTS * PAGE;
        let size = layout(class)?.size().checked_add(shift)?;
        let huge = size.saturating_add(HUGE / 4) / HUGE * HUGE;
        let room = size.max(huge).checked_add(HUGE)?;
        let mut mapping = memmap2::MmapOptions::new().len(room).map_anon().ok()?;
        let before = mapping.as_ptr().align_offset(HUGE);
        // Only advice: a system without huge pages uses small ones.
        #[cfg(target_os = "linux")]
        let _ = mapping.advise_range(memmap2::Advice::HugePage, before, huge);
        let start = NonNull::new(mapping[before + shift..].as_mut_ptr())?;
        Some(Block { start, class, mapping: Some(mapping) })
    }

    /// On systems without mappings: `None`.
    #[cfg(all(feature = "std", not(unix)))]
    pub(super) fn mapped(_: Class) -> Option<Block> {
        None
    }

    /// Reassembles the block from [`into_start`](Block::into_start).
    ///
    /// # Safety
    /// The address is of a block of this class from the general allocator, which nothing else owns.
    #[inline]
    pub(super) unsafe fn from_start(start: NonNull<u8>, class: Class) -> Block {
        Block {
            start,
            class,
            #[cfg(all(feature = "std", unix))]
            mapping: None,
        }
    }

    /// The address alone, for blocks of less than 2 MiB, which come from the general allocator.
    #[cfg(feature = "std")]
    #[inline]
    pub(super) fn into_start(self) -> NonNull<u8> {
        #[cfg(unix)]
        debug_assert!(self.mapping.is_none(), "a mapping cannot be found again by its address");
        core::mem::ManuallyDrop::new(self).start
    }

    #[inline]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    #[inline]
    pub(super) fn class(&self) -> Class {
        self.class
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        #[cfg(all(feature = "std", unix))]
        if self.mapping.is_some() {
            return;
        }
        if let Some(layout) = layout(self.class) {
            // SAFETY: without a mapping the memory came from `alloc` with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}

/// Data starts on a cache line.
#[inline]
fn layout(class: Class) -> Option<Layout> {
    Layout::from_size_align(class.bytes().checked_add(HEADER)?, HEADER).ok()
}

#[cfg(all(test, feature = "std", unix))]
mod tests {
    use super::{Block, HUGE, PAGE, SHIFTS};
    use crate::buffer::class::Class;

    #[test]
    fn large_blocks_start_near_a_huge_page_boundary() {
        for len in [HUGE, HUGE + 1, 5 << 20, (7 << 20) + 12345, 64 << 20] {
            let block = Block::new(Class::of(len).unwrap()).unwrap();
            let start = block.start().addr().get() % HUGE;
            assert!(start < SHIFTS * PAGE && start.is_multiple_of(PAGE), "{start:#x}");
            // SAFETY: the first and the last byte of a fresh block.
            unsafe {
                block.start().write(1);
                block.start().add(len + super::HEADER - 1).write(1);
            }
        }
    }
}
