//! Stopping before all epochs are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::history::{EpochReport, Scores};

/// Stops training from another thread, a callback or a signal handler. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupter(Arc<AtomicBool>);

impl Interrupter {
    /// A flag that is not set.
    pub fn new() -> Interrupter {
        Interrupter::default()
    }

    /// A flag that other code sets, such as a signal handler.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Interrupter {
        Interrupter(flag)
    }

    /// Requests that training stops after the current step.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop of training was requested.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Clears the request, so that training can continue.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The number that early stopping and the best checkpoint watch: of validation, or of training where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Monitor {
    /// The loss; lower is better.
    #[default]
    Loss,
    /// The metric of that name.
    Metric(String),
}

impl Monitor {
    pub(crate) fn value(&self, report: &EpochReport) -> Option<f64> {
        let scores: &Scores = report.valid.as_ref().unwrap_or(&report.train);
        match self {
            Monitor::Loss => Some(scores.loss),
            Monitor::Metric(name) => scores.metric(name),
        }
    }
}

/// Early stopping: stops when the watched number has not improved for a number of epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlyStopping {
    pub(crate) patience: u64,
    pub(crate) min_delta: f64,
}

impl EarlyStopping {
    /// Stops after this number of consecutive epochs without improvement (the patience); at least 1.
    pub fn new(patience: u64) -> EarlyStopping {
        EarlyStopping { patience, min_delta: 0.0 }
    }

    /// The least change that counts as an improvement. Default: 0.
    #[must_use]
    pub fn min_delta(mut self, min_delta: f64) -> EarlyStopping {
        self.min_delta = min_delta;
        self
    }
}

/// The best of the watched number so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Best {
    value: Option<f64>,
    pub(crate) epoch: Option<u64>,
    /// The number of consecutive epochs without improvement.
    pub(crate) waited: u64,
}

impl Best {
    /// Records the number of an epoch. Returns whether it is the best so far; NaN never is.
    pub(crate) fn update(&mut self, epoch: u64, value: f64, higher_is_better: bool, min_delta: f64) -> bool {
        let better = match self.value {
            None => !value.is_nan(),
            Some(best) if higher_is_better => value > best + min_delta,
            Some(best) => value < best - min_delta,
        };
        if better {
            // JSON has no infinity: the state must come back from a checkpoint as it was.
            *self = Best { value: Some(value.clamp(f64::MIN, f64::MAX)), epoch: Some(epoch), waited: 0 };
        } else {
            self.waited += 1;
        }
        better
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_counts_what_is_better_by_enough() {
        let mut best = Best::default();
        assert!(!best.update(0, f64::NAN, false, 0.1));
        assert!(best.update(1, 1.0, false, 0.1));
        assert!(!best.update(2, 0.95, false, 0.1));
        assert!(best.update(3, 0.8, false, 0.1));
        assert_eq!((best.epoch, best.waited), (Some(3), 0));
        let mut best = Best::default();
        assert!(best.update(0, 0.5, true, 0.0));
        assert!(!best.update(1, 0.5, true, 0.0));
        assert!(best.update(2, 0.6, true, 0.0));
    }
}
