//! Memory: one allocation for a reference count and the bytes behind it.

use alloc::alloc::{Layout as Block, alloc, dealloc};
use alloc::format;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering, fence};
use kiln_ir::{DType, Element, Elements, Error, Result};

/// Bytes from which data starts on a cache line. Below, the general allocator's alignment is faster to get and
/// alignment makes no difference.
const ALIGNED_FROM: usize = 512;

/// The bytes in front of the data.
const HEADER: usize = 64;

/// Shared memory: either its own, in one allocation with the reference count, or that of a `Vec` taken over.
///
/// Clones share. Writing needs a buffer that nothing else reads: a fresh one, or one that
/// [is unique](Buffer::is_unique).
pub(crate) struct Buffer(NonNull<Header>);

struct Header {
    count: AtomicUsize,
    data: NonNull<u8>,
    len: usize,
    storage: Storage,
}

enum Storage {
    /// The data follows the header, in the same allocation.
    Inline(Block),
    /// The data is that of a vector.
    Elements(Elements),
}

const _: () = assert!(size_of::<Header>() <= HEADER);

// SAFETY: the data is plain bytes; it is written only through a unique buffer, and the count is atomic.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of that many bytes, not initialised.
    ///
    /// # Errors
    /// When there is not enough memory.
    #[inline]
    pub(crate) fn uninit(len: usize) -> Result<Buffer> {
        let align = if len < ALIGNED_FROM { 16 } else { HEADER };
        let size = len.checked_add(HEADER).ok_or_else(|| out_of_memory(len))?;
        let block = Block::from_size_align(size, align).map_err(|_| out_of_memory(len))?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc(block) }).ok_or_else(|| out_of_memory(len))?;
        let header = start.cast::<Header>();
        // SAFETY: the block is large enough for a header and `len` bytes, and aligned for the header.
        unsafe {
            let data = start.add(HEADER);
            header.write(Header { count: AtomicUsize::new(1), data, len, storage: Storage::Inline(block) });
        }
        Ok(Buffer(header))
    }

    /// Takes a vector over, without copying.
    ///
    /// # Errors
    /// When there is not enough memory for the header.
    pub(crate) fn from_elements(mut elements: Elements) -> Result<Buffer> {
        let (data, len) = raw_parts(&mut elements);
        let block = Block::new::<Header>();
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc(block) }).ok_or_else(|| out_of_memory(block.size()))?;
        let header = start.cast::<Header>();
        // SAFETY: the block is a header's.
        unsafe {
            header.write(Header {
                count: AtomicUsize::new(1),
                data,
                len,
                storage: Storage::Elements(elements),
            });
        }
        Ok(Buffer(header))
    }

    /// The first byte. Writing through it needs a buffer that nothing else reads.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.header().data.as_ptr()
    }

    /// The number of bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.header().len
    }

    /// Whether this is the only clone.
    #[inline]
    pub(crate) fn is_unique(&self) -> bool {
        self.header().count.load(Ordering::Acquire) == 1
    }

    /// The vector that was taken over, if this is the only clone and its elements are of that dtype; an empty one is
    /// left behind.
    pub(crate) fn take_elements(&mut self, dtype: DType) -> Option<Elements> {
        if !self.is_unique() {
            return None;
        }
        // SAFETY: this is the only clone.
        let header = unsafe { self.0.as_mut() };
        match &mut header.storage {
            Storage::Elements(elements) if elements.dtype() == dtype => {
                header.len = 0;
                Some(core::mem::replace(elements, Elements::U8(alloc::vec::Vec::new())))
            }
            Storage::Elements(_) | Storage::Inline(_) => None,
        }
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the header lives as long as any clone.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for Buffer {
    #[inline]
    fn clone(&self) -> Buffer {
        self.header().count.fetch_add(1, Ordering::Relaxed);
        Buffer(self.0)
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if self.header().count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: this was the last clone.
            unsafe { free(self.0) };
        }
    }
}

/// Frees a buffer's memory.
///
/// # Safety
/// No clone may be left.
#[inline]
unsafe fn free(header: NonNull<Header>) {
    // SAFETY: the header was written when the buffer was made, and nobody else sees it.
    unsafe {
        let Header { storage, .. } = header.read();
        match storage {
            Storage::Inline(block) => dealloc(header.as_ptr().cast(), block),
            Storage::Elements(elements) => {
                drop(elements);
                dealloc(header.as_ptr().cast(), Block::new::<Header>());
            }
        }
    }
}

/// The address and the number of bytes of a vector's elements.
fn raw_parts(elements: &mut Elements) -> (NonNull<u8>, usize) {
    fn parts<E: Element>(vec: &mut alloc::vec::Vec<E>) -> (NonNull<u8>, usize) {
        let len = size_of_val(vec.as_slice());
        (NonNull::new(vec.as_mut_ptr().cast()).unwrap_or(NonNull::dangling()), len)
    }
    match elements {
        Elements::F64(v) => parts(v),
        Elements::F32(v) => parts(v),
        Elements::F16(v) => parts(v),
        Elements::BF16(v) => parts(v),
        Elements::I64(v) => parts(v),
        Elements::I32(v) => parts(v),
        Elements::I16(v) => parts(v),
        Elements::I8(v) => parts(v),
        Elements::U64(v) => parts(v),
        Elements::U32(v) => parts(v),
        Elements::U16(v) => parts(v),
        Elements::U8(v) => parts(v),
        Elements::Bool(v) => parts(v),
    }
}

#[cold]
fn out_of_memory(bytes: usize) -> Error {
    Error::device("cpu", format!("out of memory: {bytes} bytes could not be allocated"))
}
