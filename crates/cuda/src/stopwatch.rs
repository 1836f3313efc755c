//! How long work takes on the device.

use cudarc::driver::result::{DriverError, event};
use cudarc::driver::sys::{CUevent, CUevent_flags, CUstream};

/// Two points of a queue between which time is taken.
pub(crate) struct Stopwatch {
    start: CUevent,
    end: CUevent,
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        for point in [self.start, self.end] {
            // SAFETY: it was created once and is destroyed once.
            let destroyed = unsafe { event::destroy(point) };
            // A device that was lost has destroyed it.
            let _ = destroyed;
        }
    }
}

impl Stopwatch {
    pub(crate) fn new() -> Result<Stopwatch, DriverError> {
        let start = event::create(CUevent_flags::CU_EVENT_DEFAULT)?;
        match event::create(CUevent_flags::CU_EVENT_DEFAULT) {
            Ok(end) => Ok(Stopwatch { start, end }),
            Err(error) => {
                // SAFETY: it was created above, and nothing uses it.
                let destroyed = unsafe { event::destroy(start) };
                let _ = destroyed;
                Err(error)
            }
        }
    }

    /// Milliseconds that what `queue` puts into a queue takes; `None` where it or the device fails. Waits for the device.
    pub(crate) fn time(&self, stream: CUstream, queue: impl FnOnce() -> bool) -> Option<f32> {
        // SAFETY: both events are alive, and recorded in one queue.
        unsafe {
            event::record(self.start, stream).ok()?;
            if !queue() {
                return None;
            }
            event::record(self.end, stream).ok()?;
            event::synchronize(self.end).ok()?;
            event::elapsed(self.start, self.end).ok()
        }
    }
}
