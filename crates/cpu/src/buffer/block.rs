//! Blocks of memory as the system gives them.

use super::HEADER;
use super::class::Class;
use alloc::alloc::{Layout, alloc, dealloc};
use core::ptr::NonNull;

/// Blocks of so many bytes come straight from the system, in huge pages where it has them: a page fault for 2 MiB costs a
/// fraction of the 512 that small pages take, and so does finding them in the page tables later.
#[cfg(feature = "std")]
const HUGE_FROM: usize = 2 << 20;

/// Memory with room for a header and the bytes of a class. Dropping it gives it back to the system.
pub(super) struct Block {
    start: NonNull<u8>,
    class: Class,
    /// What holds the memory where the general allocator does not.
    #[cfg(feature = "std")]
    mapping: Option<memmap2::MmapMut>,
}

// SAFETY: a block owns plain bytes, as a vector does.
unsafe impl Send for Block {}

impl Block {
    /// A block from the system, not initialised; `None` where there is not enough memory.
    pub(super) fn new(class: Class) -> Option<Block> {
        #[cfg(feature = "std")]
        if class.bytes() >= HUGE_FROM
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

    /// A block in pages of its own; `None` on systems without such, and where there is not enough memory.
    #[cfg(feature = "std")]
    fn mapped(class: Class) -> Option<Block> {
        let size = layout(class)?.size();
        let mut mapping = memmap2::MmapOptions::new().len(size).map_anon().ok()?;
        // Only advice: a system without huge pages gives small ones.
        #[cfg(target_os = "linux")]
        let _ = mapping.advise(memmap2::Advice::HugePage);
        let start = NonNull::new(mapping.as_mut_ptr())?;
        Some(Block { start, class, mapping: Some(mapping) })
    }

    /// The block that [`into_start`](Block::into_start) took apart.
    ///
    /// # Safety
    /// The address is of a block of this class from the general allocator, which nobody else owns.
    #[inline]
    pub(super) unsafe fn from_start(start: NonNull<u8>, class: Class) -> Block {
        Block {
            start,
            class,
            #[cfg(feature = "std")]
            mapping: None,
        }
    }

    /// The address alone, for blocks of less than 2 MiB, which are the general allocator's.
    #[cfg(feature = "std")]
    #[inline]
    pub(super) fn into_start(self) -> NonNull<u8> {
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
        #[cfg(feature = "std")]
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
