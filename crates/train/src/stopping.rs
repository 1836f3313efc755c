//! Early stopping and interruption.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::history::{EpochReport, Scores};

/// A flag that stops training from another thread, a callback or a signal handler. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupter(Arc<AtomicBool>);

impl Interrupter {
    /// Returns a flag that is not set.
    pub fn new() -> Interrupter {
        Interrupter::default()
    }

    /// Wraps a flag that other code sets, such as a signal handler.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Interrupter {
        Interrupter(flag)
    }

    /// Requests that training stops after the current step.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether a stop was requested.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Clears the request, so that training can continue.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The value that early stopping and the best checkpoint monitor: of validation, or of training without validation.
/// Default: the loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Monitor {
    /// The loss; lower is better.
    #[default]
    Loss,
    /// The metric of this name.
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

/// Early stopping: stops training when the monitored value has not improved for a number of epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlyStopping {
    pub(crate) patience: u64,
    pub(crate) min_delta: f64,
}

impl EarlyStopping {
    /// Returns early stopping with a patience: the number of consecutive epochs without improvement, at least 1.
    pub fn new(patience: u64) -> EarlyStopping {
        EarlyStopping { patience, min_delta: 0.0 }
    }

    /// Sets the minimum change that counts as an improvement: finite and at least 0. Default: 0.
    #[must_use]
    pub fn min_delta(mut self, min_delta: f64) -> EarlyStopping {
        self.min_delta = min_delta;
        self
    }
}

/// The best monitored value so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Best {
    value: Option<f64>,
    pub(crate) epoch: Option<u64>,
    /// The number of consecutive epochs without improvement.
    pub(crate) waited: u64,
}

impl Best {
    /// Records the value of an epoch. Returns whether it is the best so far; NaN never is.
    pub(crate) fn update(&mut self, epoch: u64, value: f64, higher_is_better: bool, min_delta: f64) -> bool {
        let better = match self.value {
            None => !value.is_nan(),
            Some(best) if higher_is_better => value > best + min_delta,
            Some(best) => value < best - min_delta,
        };
        if better {
            // JSON has no infinity. Clamping preserves the state across a checkpoint.
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
    fn only_improvements_above_min_delta_count() {
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
