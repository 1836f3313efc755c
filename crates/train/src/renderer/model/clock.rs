//! Throughput and remaining time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time over which throughput is averaged.
const WINDOW: Duration = Duration::from_secs(10);
/// The least time between two marks.
const SPACING: Duration = Duration::from_millis(100);

/// The throughput of training steps. Pauses, such as validation, do not count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throughput {
    marks: VecDeque<Mark>,
    total: (f64, f64),
    rates: Option<(f64, f64)>,
}

/// Items and steps that were done at a moment.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    items: f64,
    steps: f64,
}

impl Throughput {
    /// Adds a step that ended `now`.
    pub(crate) fn step(&mut self, items: usize, now: Instant) {
        self.total = (self.total.0 + items as f64, self.total.1 + 1.0);
        let mark = Mark { at: now, items: self.total.0, steps: self.total.1 };
        if self.marks.back().is_none_or(|last| now.duration_since(last.at) >= SPACING) {
            self.marks.push_back(mark);
        }
        while self.marks.len() > 2 && now.duration_since(self.marks[0].at) > WINDOW {
            self.marks.pop_front();
        }
        if let Some(first) = self.marks.front() {
            let seconds = now.duration_since(first.at).as_secs_f64();
            if seconds > 0.0 {
                self.rates =
                    Some(((mark.items - first.items) / seconds, (mark.steps - first.steps) / seconds));
            }
        }
    }

    /// Begins a pause, which ends with the next step.
    pub(crate) fn pause(&mut self) {
        self.marks.clear();
    }

    /// Returns the items per second. `None` before the second step.
    pub(crate) fn items_per_second(&self) -> Option<f64> {
        self.rates.map(|rates| rates.0)
    }

    /// Returns the steps per second. `None` before the second step.
    pub(crate) fn steps_per_second(&self) -> Option<f64> {
        self.rates.map(|rates| rates.1)
    }
}

/// Returns the remaining time of work that went from the fraction `from` to `done` in `elapsed`.
pub(crate) fn time_left(from: f64, done: f64, elapsed: Duration) -> Option<Duration> {
    let seconds = elapsed.as_secs_f64() * (1.0 - done).max(0.0) / (done - from);
    (done > from).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_of_the_last_seconds_without_pauses() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut throughput = Throughput::default();
        assert_eq!(throughput.items_per_second(), None);
        for step in 0..=20 {
            throughput.step(32, at(step * 50));
        }
        assert_eq!(throughput.items_per_second(), Some(640.0));
        assert_eq!(throughput.steps_per_second(), Some(20.0));
        throughput.pause();
        throughput.step(32, at(60_000));
        assert_eq!(throughput.items_per_second(), Some(640.0));
        throughput.step(32, at(60_100));
        assert_eq!(throughput.items_per_second(), Some(320.0));
    }

    #[test]
    fn marks_are_bounded() {
        let start = Instant::now();
        let mut throughput = Throughput::default();
        for step in 0..100_000 {
            throughput.step(1, start + Duration::from_millis(step));
        }
        assert!(throughput.marks.len() <= 102, "{}", throughput.marks.len());
        assert!((throughput.items_per_second().unwrap() - 1000.0).abs() < 1.0);
    }

    #[test]
    fn time_left_counts_from_the_first_step_of_this_call() {
        let minute = Duration::from_secs(60);
        assert_eq!(time_left(0.0, 0.25, minute), Some(3 * minute));
        assert_eq!(time_left(0.5, 0.75, minute), Some(minute));
        assert_eq!(time_left(0.5, 0.5, minute), None);
        assert_eq!(time_left(0.0, 1.0, minute), Some(Duration::ZERO));
    }
}
