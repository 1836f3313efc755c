//! Copies between the host and the device by way of pinned memory, which the device reads and writes by itself.

use cudarc::driver::result::{self, DriverError, event};
use cudarc::driver::sys::{CUdeviceptr, CUevent, CUevent_flags, CUstream};
use std::ffi::c_void;

/// Bytes of a slot.
const SLOT: usize = 4 << 20;

/// Slots: while the device copies some, the host fills or empties others.
const SLOTS: usize = 4;

/// Writes of so few bytes are kept by the driver itself until the device has copied them.
const SMALL: usize = 64 << 10;

/// Pinned memory of one queue.
#[derive(Default)]
pub(crate) struct Staging {
    slots: Vec<Slot>,
    next: usize,
    /// Whether the system has no more pinned memory; copies then take the driver's own way.
    is_short: bool,
}

struct Slot {
    memory: *mut c_void,
    /// When the device has copied it.
    copied: CUevent,
}

// SAFETY: the memory is the slot's alone, and CUDA's events may be used from any thread.
unsafe impl Send for Slot {}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: the copies of the slot are waited for before it is freed, once; so is its event. A device that was lost copies
        // nothing any more, and has freed both.
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

    /// Its first bytes, once the device has copied them.
    fn bytes(&mut self, len: usize) -> Result<&mut [u8], DriverError> {
        assert!(len <= SLOT, "a slot holds {SLOT} bytes, not {len}");
        // SAFETY: the event is alive.
        unsafe { event::synchronize(self.copied)? };
        // SAFETY: there are so many bytes, which nothing else uses: the device is done with them.
        Ok(unsafe { core::slice::from_raw_parts_mut(self.memory.cast::<u8>(), len) })
    }
}

impl Staging {
    /// Queues a copy to the device. The bytes may be dropped at once.
    ///
    /// # Safety
    /// There must be so many bytes at the address, and the context must be the thread's own.
    pub(crate) unsafe fn write(
        &mut self,
        to: CUdeviceptr,
        bytes: &[u8],
        stream: CUstream,
    ) -> Result<(), DriverError> {
        if bytes.len() <= SMALL || !self.is_ready() {
            // SAFETY: as the caller says. Memory that is not pinned is read before the call returns.
            return unsafe { result::memcpy_htod_async(to, bytes, stream) };
        }
        for (number, part) in bytes.chunks(SLOT).enumerate() {
            let slot = self.next();
            let staged = slot.bytes(part.len())?;
            staged.copy_from_slice(part);
            // SAFETY: the part lies within the caller's range, and the slot is left alone until the event.
            unsafe {
                result::memcpy_htod_async(to + (number * SLOT) as u64, staged, stream)?;
                event::record(slot.copied, stream)?;
            }
        }
        Ok(())
    }

    /// Copies from the device, once everything before in the queue is done.
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
            // SAFETY: as the caller says, and the bytes are waited for while they are borrowed.
            return unsafe {
                result::memcpy_dtoh_async(bytes, from, stream)
                    .and_then(|()| result::stream::synchronize(stream))
            };
        }
        let mut parts = bytes.chunks_mut(SLOT).enumerate();
        let mut ahead = Vec::with_capacity(SLOTS);
        loop {
            // As many parts are on their way as there are slots.
            while ahead.len() < SLOTS
                && let Some((number, part)) = parts.next()
            {
                let place = self.next;
                let slot = self.next();
                let staged = slot.bytes(part.len())?;
                // SAFETY: the part lies within the caller's range, and the slot is left alone until the event.
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

    /// Whether there are slots, which the first copy makes.
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
