//! Memory buffers: reference count and data in one block.
//!
//! A caching allocator: blocks come from a process-wide pool ([`pool`]), since buffers outlive the engine and the
//! thread that created them. Freed blocks are cached for later buffers of similar size. Fresh memory costs a page fault
//! for every 4 KiB, which takes as long as a kernel takes to write them.

mod block;
mod class;
#[cfg(not(feature = "std"))]
#[path = "buffer/direct.rs"]
mod pool;
#[cfg(feature = "std")]
mod pool;
#[cfg(feature = "std")]
mod thread;

use alloc::alloc::{Layout, alloc, dealloc};
use alloc::format;
use alloc::vec::Vec;
use block::Block;
use class::Class;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering, fence};
use kiln_ir::{DType, Element, Elements, Error, MemoryConfig, MemoryUse, Result, SharedBytes};

/// Header bytes before the data, which starts on a cache line.
const HEADER: usize = 64;

/// A shared buffer. The data is stored in one block with the reference count, or belongs to a `Vec`, or to other
/// owners.
///
/// Clones share the data. Writing needs a buffer without other readers: a fresh one, or one that [is
/// unique](Buffer::is_unique).
pub(crate) struct Buffer(NonNull<Header>);

struct Header {
    count: AtomicUsize,
    data: NonNull<u8>,
    len: usize,
    storage: Storage,
}

enum Storage {
    /// The data follows the header, in a small block of this size class; the block is identified by its address.
    #[cfg(feature = "std")]
    Small(Class),
    /// The data follows the header in the same block.
    Inline(Block),
    /// The data belongs to a vector.
    Elements(Elements),
    /// The data belongs to other owners, who may read it too.
    Shared(SharedBytes),
}

const _: () = assert!(size_of::<Header>() <= HEADER);

// SAFETY: the data is plain bytes; it is written only through a unique buffer, and the count is atomic.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// Parses the settings of the memory pool.
///
/// # Panics
/// When a setting is invalid.
pub(crate) fn check_settings() {
    #[cfg(feature = "std")]
    pool::check_settings();
}

impl Buffer {
    /// Allocates an uninitialized buffer of that many bytes.
    ///
    /// # Errors
    /// When there is not enough memory.
    #[inline]
    pub(crate) fn uninit(len: usize) -> Result<Buffer> {
        let class = Class::of(len).ok_or_else(|| out_of_memory(len))?;
        #[cfg(feature = "std")]
        if thread::is_small(class) {
            let start = thread::take(class).ok_or_else(|| out_of_memory(len))?;
            // SAFETY: the block has room for a header and the bytes of its class.
            return Ok(unsafe { Buffer::headed(start, len, Storage::Small(class)) });
        }
        let block = pool::take(class).ok_or_else(|| out_of_memory(len))?;
        // SAFETY: as above.
        Ok(unsafe { Buffer::headed(block.start(), len, Storage::Inline(block)) })
    }

    /// Writes a header before that many bytes of the same block.
    ///
    /// # Safety
    /// The block has room for both, is aligned for the header, and nothing uses it.
    #[inline]
    unsafe fn headed(start: NonNull<u8>, len: usize, storage: Storage) -> Buffer {
        let header = start.cast::<Header>();
        // SAFETY: as the caller promises.
        unsafe {
            let data = start.add(HEADER);
            header.write(Header { count: AtomicUsize::new(1), data, len, storage });
        }
        Buffer(header)
    }

    /// Takes over a vector without copying.
    ///
    /// # Errors
    /// When there is not enough memory for the header.
    pub(crate) fn from_elements(mut elements: Elements) -> Result<Buffer> {
        let (data, len) = raw_parts(&mut elements);
        let buffer = Buffer::over(data, len, Storage::Elements(elements))?;
        note(len as isize);
        Ok(buffer)
    }

    /// Wraps memory with other owners, without copying; `None` if `suits` rejects it. Such a buffer is never
    /// [unique](Buffer::is_unique).
    ///
    /// # Errors
    /// When there is not enough memory for the header.
    pub(crate) fn from_shared(
        bytes: &SharedBytes,
        suits: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Option<Buffer>> {
        let bytes = bytes.clone();
        // Called once: the slice is borrowed from the owner, which the storage keeps alive.
        let slice = bytes.as_slice();
        if !suits(slice) {
            return Ok(None);
        }
        let (data, len) = (NonNull::from(slice).cast::<u8>(), slice.len());
        Buffer::over(data, len, Storage::Shared(bytes)).map(Some)
    }

    /// Allocates a header for data elsewhere.
    fn over(data: NonNull<u8>, len: usize, storage: Storage) -> Result<Buffer> {
        let layout = Layout::new::<Header>();
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc(layout) }).ok_or_else(|| out_of_memory(layout.size()))?;
        let header = start.cast::<Header>();
        // SAFETY: the allocation is a header's.
        unsafe { header.write(Header { count: AtomicUsize::new(1), data, len, storage }) };
        Ok(Buffer(header))
    }

    /// The pointer to the first byte. Writing through it needs a buffer without other readers.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.header().data.as_ptr()
    }

    /// The number of bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.header().len
    }

    /// Whether the data has no other reader: this is the only clone, and the buffer owns its data.
    #[inline]
    pub(crate) fn is_unique(&self) -> bool {
        let header = self.header();
        !matches!(header.storage, Storage::Shared(_)) && header.count.load(Ordering::Acquire) == 1
    }

    /// Takes the vector out, if this is the only clone and its elements have that dtype; leaves an empty one.
    pub(crate) fn take_elements(&mut self, dtype: DType) -> Option<Elements> {
        if !self.is_unique() {
            return None;
        }
        // SAFETY: this is the only clone.
        let header = unsafe { self.0.as_mut() };
        match &mut header.storage {
            Storage::Elements(elements) if elements.dtype() == dtype => {
                note(-(header.len as isize));
                header.len = 0;
                Some(core::mem::replace(elements, Elements::U8(alloc::vec::Vec::new())))
            }
            #[cfg(feature = "std")]
            Storage::Small(_) => None,
            Storage::Elements(_) | Storage::Inline(_) | Storage::Shared(_) => None,
        }
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the header lives as long as any clone.
        unsafe { self.0.as_ref() }
    }
}

/// Large zeroed memory without a reference count, in huge pages if the system supports them. It bypasses the pool.
#[cfg(feature = "std")]
pub(crate) struct Pages(Block);

#[cfg(feature = "std")]
// SAFETY: a shared reference only reads the size.
unsafe impl Sync for Pages {}

#[cfg(feature = "std")]
impl Pages {
    /// Allocates at least that many bytes; `None` for less than a huge page, or if out of memory.
    pub(crate) fn new(bytes: usize) -> Option<Pages> {
        let class = Class::of(bytes).filter(|class| class.bytes() <= *pool::SYSTEM_MEMORY)?;
        Block::is_large(class).then(|| Block::mapped(class)).flatten().map(Pages)
    }

    pub(crate) fn start(&mut self) -> NonNull<u8> {
        self.0.start()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.class().bytes()
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
    #[cfg(feature = "std")]
    // SAFETY: the header was written when the buffer was made.
    if let Storage::Small(class) = unsafe { &header.as_ref().storage } {
        // SAFETY: the block is of that class, and nothing else accesses it.
        return unsafe { thread::put(header.cast(), *class) };
    }
    // SAFETY: as above.
    unsafe { free_large(header) }
}

/// As [`free`], for all buffers except those in small blocks.
///
/// # Safety
/// As [`free`].
#[inline(never)]
unsafe fn free_large(header: NonNull<Header>) {
    // SAFETY: the header was written when the buffer was made, and nothing else accesses it.
    unsafe {
        let Header { storage, len, .. } = header.read();
        match storage {
            #[cfg(feature = "std")]
            Storage::Small(class) => thread::put(header.cast(), class),
            Storage::Inline(block) => pool::put(block),
            Storage::Elements(elements) => {
                note(-(len as isize));
                drop(elements);
                dealloc(header.as_ptr().cast(), Layout::new::<Header>());
            }
            Storage::Shared(bytes) => {
                drop(bytes);
                dealloc(header.as_ptr().cast(), Layout::new::<Header>());
            }
        }
    }
}

/// The pointer and the number of bytes of a vector's elements.
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

/// An empty vector with room for that many elements. Kernels allocate lists that grow with a tensor by it: a failed
/// allocation of `Vec` itself ends the process.
///
/// # Errors
/// When there is not enough memory.
pub(crate) fn vector<T>(capacity: usize) -> Result<Vec<T>> {
    let bytes = capacity.saturating_mul(size_of::<T>());
    #[cfg(feature = "std")]
    if bytes > *pool::SYSTEM_MEMORY {
        return Err(out_of_memory(bytes));
    }
    let mut vector = Vec::new();
    vector.try_reserve_exact(capacity).map_err(|_| out_of_memory(bytes))?;
    Ok(vector)
}

#[cold]
fn out_of_memory(bytes: usize) -> Error {
    let problem = format!("out of memory: {bytes} bytes could not be allocated");
    Error::device("cpu", problem)
        .hint("free tensors, reduce the batch size, or raise the limit of `MemoryConfig`")
}

/// Adds to the live bytes that are not in a block; negative to subtract.
fn note(live: isize) {
    #[cfg(feature = "std")]
    thread::note(live);
    #[cfg(not(feature = "std"))]
    pool::note(live);
}

/// Memory statistics of the process's buffers; see [`MemoryUse`].
pub(crate) fn usage() -> MemoryUse {
    pool::usage()
}

/// Resets the peak to the bytes that are live now.
pub(crate) fn reset_peak() {
    pool::reset_peak();
}

/// Applies a limit and a cache strategy to the process's buffers.
pub(crate) fn configure(config: MemoryConfig) {
    pool::configure(config);
}

/// Returns cached blocks to the system.
pub(crate) fn trim() {
    pool::trim();
}
