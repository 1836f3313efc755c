//! The monitored value and its best so far.

use serde::{Deserialize, Serialize};

use crate::callback::{Control, Event};
use crate::error::{Result, TrainError};
use crate::history::{EpochReport, Scores};

/// A value that callbacks monitor: of the first validation set, or of training without validation. Default: the loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Monitor {
    /// The loss; lower is better.
    #[default]
    Loss,
    /// The metric or logged number of this name.
    Metric(String),
    /// The metric or logged number `name` of the validation set `set`.
    MetricOf {
        /// The name of the validation set.
        set: String,
        /// The name of the metric.
        name: String,
    },
}

impl Monitor {
    /// Returns the value of a report.
    pub fn value(&self, report: &EpochReport) -> Option<f64> {
        let scores: &Scores = match self {
            Monitor::Loss | Monitor::Metric(_) => report.valid().unwrap_or(&report.train),
            Monitor::MetricOf { set, .. } => report.valid_set(set)?,
        };
        match self {
            Monitor::Loss => Some(scores.loss),
            Monitor::Metric(name) | Monitor::MetricOf { name, .. } => scores.metric(name),
        }
    }

    /// Returns the name of the value.
    pub fn name(&self) -> &str {
        match self {
            Monitor::Loss => crate::step::LOSS,
            Monitor::Metric(name) | Monitor::MetricOf { name, .. } => name,
        }
    }

    pub(crate) fn higher_is_better(&self, control: &Control) -> bool {
        control.higher_is_better(self.name()).unwrap_or(false)
    }

    /// Rejects the name of an unknown metric.
    pub(crate) fn check(&self, control: &Control) -> Result<()> {
        if control.higher_is_better(self.name()).is_some() {
            return Ok(());
        }
        let known = control.higher_is_better.iter().map(|(name, _)| name.clone()).collect();
        Err(TrainError::UnknownMetric { name: self.name().to_owned(), known })
    }
}

/// The best monitored value so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Best {
    /// The bits of the value: JSON keeps integers exactly, and has no infinity.
    bits: Option<u64>,
    pub(crate) epoch: Option<u64>,
    /// The number of consecutive epochs without improvement.
    pub(crate) waited: u64,
}

/// The value that a callback monitors, and its best so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Monitored {
    /// `None` for that of the learner.
    pub(crate) monitor: Option<Monitor>,
    pub(crate) best: Best,
}

impl Monitored {
    /// Checks the name at the start, and records the value of each evaluation. Returns whether it is the best so far.
    pub(crate) fn on(&mut self, event: Event<'_>, control: &Control, min_delta: f64) -> Result<bool> {
        let monitor = control.monitor(&self.monitor);
        if let Event::Started = event {
            monitor.check(control)?;
        }
        let Event::Evaluated(report) = event else { return Ok(false) };
        let value = monitor.value(report).unwrap_or(f64::NAN);
        Ok(self.best.update(report.epoch, value, monitor.higher_is_better(control), min_delta))
    }
}

impl Best {
    /// Records the value of an epoch. Returns whether it is the best so far; NaN never is.
    pub(crate) fn update(&mut self, epoch: u64, value: f64, higher_is_better: bool, min_delta: f64) -> bool {
        let better = match self.bits.map(f64::from_bits) {
            None => !value.is_nan(),
            Some(best) if higher_is_better => value > best + min_delta,
            Some(best) => value < best - min_delta,
        };
        if better {
            *self = Best { bits: Some(value.to_bits()), epoch: Some(epoch), waited: 0 };
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
