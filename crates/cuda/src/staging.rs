//! Copies between host and device through pinned memory, which the device accesses by DMA.

use cudarc::driver::result::{self, DriverError, event};
use cudarc::driver::sys::{CUdeviceptr, CUevent, CUevent_flags, CUstream};
use std::ffi::c_void;

/// Bytes per slot.
const SLOT: usize = 4 << 20;

/// The number of slots: while the device copies some, the host fills or empties others.
const SLOTS: usize = 4;

/// The driver itself buffers writes of up to this many bytes until the device has copied them.
const SMALL: usize = 64 << 10;

/// The pinned memory of one queue.
#[derive(Default)]
pub(crate) struct Staging {
    slots: Vec<Slot>,
    next: usize,
    /// Whether the system has no more pinned memory; copies then use pageable memory.
    is_short: bool,
}

struct Slot {
    memory: *mut c_void,
    /// Recorded after the device's copy.
    copied: CUevent,
}

// SAFETY: the slot owns the memory, and CUDA's events may be used from any thread.
unsafe impl Send for Slot {}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: the slot waits for its copies before it frees memory and event, once each. A lost device copies
        // nothing any more, and has already freed both.
        unsafe {
            let _ = event::synchronize(self.copied);
            let _ = event::destroy(self.copied);
            let _ = result::free_host(self.memory);
        }
    }
}

impl Slot {
    fn new() -> Result<Slot, DriverError> {
        let copied = event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        // SAFETY: the memory is freed with the slot.
        match unsafe { result::malloc_host(SLOT, 0) } {
            Ok(memory) => Ok(Slot { memory, copied }),
            Err(error) => {
                // SAFETY: it was created above, and nothing uses it.
                let _ = unsafe { event::destroy(copied) };
                Err(error)
            }
        }
    }

    /// Its first bytes, after the device has copied them.
    fn bytes(&mut self, len: usize) -> Result<&mut [u8], DriverError> {
        assert!(len <= SLOT, "a slot holds {SLOT} bytes, not {len}");
        // SAFETY: the event is alive.
        unsafe { event::synchronize(self.copied)? };
        // SAFETY: there are that many bytes, which nothing else uses: the device has finished with them.
        Ok(unsafe { core::slice::from_raw_parts_mut(self.memory.cast::<u8>(), len) })
    }
}

impl Staging {
    /// Queues a copy to the device. The bytes may be dropped at once.
    ///
    /// # Safety
    /// There must be that many bytes at the address, and the context must be current.
    pub(crate) unsafe fn write(
        &mut self,
        to: CUdeviceptr,
        bytes: &[u8],
        stream: CUstream,
    ) -> Result<(), DriverError> {
        if bytes.len() <= SMALL || !self.is_ready() {
            // SAFETY: as the caller says. Pageable memory is read before the call returns.
            return unsafe { result::memcpy_htod_async(to, bytes, stream) };
        }
        for (number, part) in bytes.chunks(SLOT).enumerate() {
            let slot = self.next();
            let staged = slot.bytes(part.len())?;
            staged.copy_from_slice(part);
            // SAFETY: the part is within the caller's range, and the slot is unused until the event.
            unsafe {
                result::memcpy_htod_async(to + (number * SLOT) as u64, staged, stream)?;
                event::record(slot.copied, stream)?;
            }
        }
        Ok(())
    }

    /// Copies from the device, after all earlier work of the queue.
    ///
    /// # Safety
    /// As for [`write`](Staging::write).
    pub(crate) unsafe fn read(
        &mut self,
        from: CUdeviceptr,
        bytes: &mut [u8],
        stream: CUstream,
    ) -> Result<(), DriverError> {
        if bytes.len() <= SMALL || !self.is_ready() {
            // SAFETY: as the caller says, and the bytes stay borrowed until the copy is complete.
            return unsafe {
                result::memcpy_dtoh_async(bytes, from, stream)
                    .and_then(|()| result::stream::synchronize(stream))
            };
        }
        let mut parts = bytes.chunks_mut(SLOT).enumerate();
        let mut ahead = Vec::with_capacity(SLOTS);
        loop {
            // As many parts are in flight as there are slots.
            while ahead.len() < SLOTS
                && let Some((number, part)) = parts.next()
            {
                let place = self.next;
                let slot = self.next();
                let staged = slot.bytes(part.len())?;
                // SAFETY: the part is within the caller's range, and the slot is unused until the event.
                unsafe {
                    result::memcpy_dtoh_async(staged, from + (number * SLOT) as u64, stream)?;
                    event::record(slot.copied, stream)?;
                }
                ahead.push((place, part));
            }
            if ahead.is_empty() {
                return Ok(());
            }
            let (place, part) = ahead.remove(0);
            part.copy_from_slice(self.slots[place].bytes(part.len())?);
        }
    }

    fn next(&mut self) -> &mut Slot {
        let place = self.next;
        self.next = (place + 1) % SLOTS;
        &mut self.slots[place]
    }

    /// Whether there are slots, which the first copy allocates.
    fn is_ready(&mut self) -> bool {
        while !self.is_short && self.slots.len() < SLOTS {
            match Slot::new() {
                Ok(slot) => self.slots.push(slot),
                Err(_) => {
                    self.is_short = true;
                    self.slots.clear();
                }
            }
        }
        !self.is_short
    }
}
