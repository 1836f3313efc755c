//! Copies to the host that are only queued: the device fills pinned memory, and an event tells when it is done.

use crate::driver::Context;
use cudarc::driver::result::{self, DriverError, event};
use cudarc::driver::sys::{CUdeviceptr, CUevent, CUevent_flags, CUstream};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maximum number of bytes of the copies that are queued together. Longer ones pass through the slots of
/// [`Staging`](crate::staging::Staging).
pub(crate) const MOST: usize = 4 << 20;

/// The minimum number of bytes of a block of pinned memory.
const LEAST: usize = 64 << 10;

/// The maximum number of unused blocks that are kept.
const KEPT: usize = 8;

/// The pinned memory of one queue, for copies to the host.
#[derive(Clone, Default)]
pub(crate) struct Readbacks(Arc<Mutex<Vec<Pinned>>>);

/// Queued copies of several ranges. Dropping it releases the memory; the copies still run.
pub(crate) struct Readback {
    /// `None` only during the drop.
    block: Option<Pinned>,
    /// The number of bytes of each range. Their sum is at most the length of the block.
    lengths: Vec<usize>,
    unused: Readbacks,
}

/// A block of pinned memory.
struct Pinned {
    memory: *mut c_void,
    len: usize,
    /// Recorded after the device's copies to it.
    copied: CUevent,
    context: Arc<Context>,
}

// SAFETY: the block owns the memory, and CUDA's events may be used from any thread.
unsafe impl Send for Pinned {}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the block waits for its copies before it frees memory and event, once each. A lost device copies
        // nothing any more, and has already freed both.
        unsafe {
            let _ = self.context.enter();
            let _ = event::synchronize(self.copied);
            let _ = event::destroy(self.copied);
            let _ = result::free_host(self.memory);
        }
    }
}

impl Pinned {
    fn new(len: usize, context: &Arc<Context>) -> Result<Pinned, DriverError> {
        let copied = event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        // SAFETY: the memory is freed with the block.
        match unsafe { result::malloc_host(len, 0) } {
            Ok(memory) => Ok(Pinned { memory, len, copied, context: context.clone() }),
            Err(error) => {
                // SAFETY: it was created above, and nothing uses it.
                let _ = unsafe { event::destroy(copied) };
                Err(error)
            }
        }
    }
}

impl Readbacks {
    /// Queues copies of ranges, each an address and a number of bytes: at most [`MOST`] bytes in all.
    ///
    /// # Safety
    /// There must be that many bytes at each address, and the context must be current.
    pub(crate) unsafe fn start(
        &self,
        ranges: &[(CUdeviceptr, usize)],
        context: &Arc<Context>,
        stream: CUstream,
    ) -> Result<Readback, DriverError> {
        let lengths: Vec<usize> = ranges.iter().map(|&(_, bytes)| bytes).collect();
        let block = self.take(lengths.iter().sum(), context)?;
        let (memory, copied) = (block.memory.cast::<u8>(), block.copied);
        let started = Readback { block: Some(block), lengths, unused: self.clone() };
        let mut end = 0;
        for &(from, bytes) in ranges.iter().filter(|(_, bytes)| *bytes > 0) {
            // SAFETY: the block has so many bytes, the range is the caller's, and earlier copies to the block precede
            // these in the stream.
            unsafe {
                let staged = core::slice::from_raw_parts_mut(memory.add(end), bytes);
                result::memcpy_dtoh_async(staged, from, stream)?;
            }
            end += bytes;
        }
        // SAFETY: event and stream are alive.
        unsafe { event::record(copied, stream)? };
        Ok(started)
    }

    /// Takes the smallest unused block of at least that many bytes, or allocates one.
    fn take(&self, bytes: usize, context: &Arc<Context>) -> Result<Pinned, DriverError> {
        {
            let mut unused = self.lock();
            let fitting = unused.iter().enumerate().filter(|(_, block)| block.len >= bytes);
            if let Some((place, _)) = fitting.min_by_key(|(_, block)| block.len) {
                return Ok(unused.swap_remove(place));
            }
        }
        Pinned::new(bytes.max(LEAST).next_power_of_two(), context)
    }

    /// Frees the unused blocks.
    pub(crate) fn clear(&self) {
        let blocks = core::mem::take(&mut *self.lock());
        drop(blocks);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Pinned>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Readback {
    /// Waits for the copies, and returns the bytes of each range.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) fn end(self) -> Result<Vec<Vec<u8>>, DriverError> {
        let Some(block) = &self.block else { return Ok(Vec::new()) };
        block.context.enter()?;
        // SAFETY: the event is alive.
        unsafe { event::synchronize(block.copied)? };
        let all: usize = self.lengths.iter().sum();
        // SAFETY: the device has written so many bytes of the block, and nothing else uses them.
        let mut rest = unsafe { core::slice::from_raw_parts(block.memory.cast::<u8>().cast_const(), all) };
        let next = |&bytes: &usize| {
            let (first, others) = rest.split_at(bytes);
            rest = others;
            first.to_vec()
        };
        Ok(self.lengths.iter().map(next).collect())
    }
}

impl Drop for Readback {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        let mut unused = self.unused.lock();
        if unused.len() < KEPT {
            unused.push(block);
        }
    }
}
