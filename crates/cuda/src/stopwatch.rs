//! How long work takes on the device.

use cudarc::driver::result::{DriverError, event};
use cudarc::driver::sys::{CUevent, CUevent_flags, CUstream};

/// Two points of a queue between which time is taken.
struct Stopwatch {
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

    /// Milliseconds that what `queue` puts into a queue takes; `None` where it or the device fails. Waits for the device.
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

/// How often each of several ways is timed.
const TRIALS: usize = 3;

/// How many of them are timed again, and how often: what is a few percent faster shows only side by side, since clocks and
/// temperature of the device change with time.
const FINALISTS: usize = 3;
const FINALS: usize = 5;

/// The number of the fastest of so many ways to do the same work, by doing it; of one that fails nothing is known. The first where
/// times cannot be taken.
pub(crate) fn fastest(ways: usize, stream: CUstream, queue: &dyn Fn(usize) -> bool) -> usize {
    let Ok(stopwatch) = Stopwatch::new() else { return 0 };
    let time = |way: usize| stopwatch.time(stream, || queue(way));
    // The first run loads what it needs.
    let mut able: Vec<(usize, f32)> =
        (0..ways).filter(|&way| queue(way)).map(|way| (way, f32::INFINITY)).collect();
    for _ in 0..TRIALS {
        able.retain_mut(|(way, least)| {
            let time = time(*way);
            *least = time.map_or(*least, |time| least.min(time));
            time.is_some()
        });
    }
    able.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    able.truncate(FINALISTS);
    let mut finals: Vec<(usize, Vec<f32>)> = able.iter().map(|&(way, _)| (way, Vec::new())).collect();
    for _ in 0..FINALS {
        finals.iter_mut().for_each(|(way, times)| times.extend(time(*way)));
    }
    let median = |times: &[f32]| {
        let mut sorted = times.to_vec();
        sorted.sort_by(f32::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f32::INFINITY)
    };
    let best = finals.iter().min_by(|(_, a), (_, b)| median(a).total_cmp(&median(b)));
    best.map_or(0, |&(way, _)| way)
}

/// The ends of steps that follow each other.
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
            // A device that was lost has destroyed it.
            let _ = destroyed;
        }
    }
}

impl Laps {
    pub(crate) fn start(&mut self, stream: CUstream) -> Result<(), DriverError> {
        self.used = 0;
        self.lap(stream)
    }

    /// The end of one, and the start of the next.
    pub(crate) fn lap(&mut self, stream: CUstream) -> Result<(), DriverError> {
        if self.used == self.points.len() {
            self.points.push(event::create(CUevent_flags::CU_EVENT_DEFAULT)?);
        }
        // SAFETY: the event is alive, and what it stood for was asked for already.
        unsafe { event::record(self.points[self.used], stream)? };
        self.used += 1;
        Ok(())
    }

    /// Milliseconds of each. Waits for the device.
    pub(crate) fn times(&self) -> Result<Vec<f64>, DriverError> {
        let points = &self.points[..self.used];
        if let Some(&last) = points.last() {
            // SAFETY: the event was recorded.
            unsafe { event::synchronize(last)? };
        }
        // SAFETY: both were recorded in one queue, and are over.
        let time = |pair: &[CUevent]| unsafe { event::elapsed(pair[0], pair[1]) };
        points.windows(2).map(|pair| time(pair).map(f64::from)).collect()
    }
}
