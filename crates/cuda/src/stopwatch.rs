//! Timing of work on the device.

use cudarc::driver::result::{DriverError, event};
use cudarc::driver::sys::{CUevent, CUevent_flags, CUstream};

/// A pair of events around the timed work.
struct Stopwatch {
    start: CUevent,
    end: CUevent,
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        for point in [self.start, self.end] {
            // SAFETY: it was created once and is destroyed once.
            let destroyed = unsafe { event::destroy(point) };
            // A lost device has already destroyed it.
            let _ = destroyed;
        }
    }
}

impl Stopwatch {
    fn new() -> Result<Stopwatch, DriverError> {
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

    /// Times the work that `queue` submits, in milliseconds; `None` if it or the device fails. Waits for the device.
    fn time(&self, stream: CUstream, queue: impl FnOnce() -> bool) -> Option<f32> {
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

/// The number of timings of each alternative.
const TRIALS: usize = 3;

/// Runs several alternatives for the same work and returns the index of the fastest. An alternative that fails is not
/// chosen, unless all fail. Returns the first if times are not available.
pub(crate) fn fastest(ways: usize, stream: CUstream, queue: &dyn Fn(usize) -> bool) -> usize {
    let Ok(stopwatch) = Stopwatch::new() else { return 0 };
    let time = |way: usize| {
        // The first run loads kernels.
        if !queue(way) {
            return None;
        }
        let times = (0..TRIALS).map(|_| stopwatch.time(stream, || queue(way)));
        let least = times.collect::<Option<Vec<f32>>>()?.into_iter().fold(f32::INFINITY, f32::min);
        Some((way, least))
    };
    let times = (0..ways).filter_map(time);
    times.min_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(way, _)| way)
}

/// The events after successive steps.
#[derive(Default)]
pub(crate) struct Laps {
    points: Vec<CUevent>,
    used: usize,
}

// SAFETY: CUDA's events may be used from any thread.
unsafe impl Send for Laps {}

impl Drop for Laps {
    fn drop(&mut self) {
        for &point in &self.points {
            // SAFETY: it was created once and is destroyed once.
            let destroyed = unsafe { event::destroy(point) };
            // A lost device has already destroyed it.
            let _ = destroyed;
        }
    }
}

impl Laps {
    pub(crate) fn start(&mut self, stream: CUstream) -> Result<(), DriverError> {
        self.used = 0;
        self.lap(stream)
    }

    /// Ends one lap and starts the next.
    pub(crate) fn lap(&mut self, stream: CUstream) -> Result<(), DriverError> {
        if self.used == self.points.len() {
            self.points.push(event::create(CUevent_flags::CU_EVENT_DEFAULT)?);
        }
        // SAFETY: the event is alive, and its previous time was read already.
        unsafe { event::record(self.points[self.used], stream)? };
        self.used += 1;
        Ok(())
    }

    /// Milliseconds of each lap. Waits for the device.
    pub(crate) fn times(&self) -> Result<Vec<f64>, DriverError> {
        let points = &self.points[..self.used];
        if let Some(&last) = points.last() {
            // SAFETY: the event was recorded.
            unsafe { event::synchronize(last)? };
        }
        // SAFETY: both events were recorded in one stream, and are complete.
        let time = |pair: &[CUevent]| unsafe { event::elapsed(pair[0], pair[1]) };
        points.windows(2).map(|pair| time(pair).map(f64::from)).collect()
    }
}
