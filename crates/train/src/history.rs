//! The history of a training run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::metric::MetricValues;
use crate::record::StepRecord;
use crate::step::LOSS;
use crate::usage::Usage;

/// The losses and scores of a training run. They are bit-identical for the same seed and number of threads.
///
/// Equality ignores the time and the memory.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The training loss of each step, in order.
    pub losses: Vec<f64>,
    /// The numbers that the task logged, of each step, by name.
    pub values: BTreeMap<String, Vec<f64>>,
    /// The reports of all complete epochs, in order.
    pub epochs: Vec<EpochReport>,
    /// The reason why training ended.
    pub stopped: StopReason,
    /// The epoch with the best monitored value, counted from 0. `None` before the first epoch ends.
    pub best_epoch: Option<u64>,
    /// The time and the memory of this call.
    pub usage: Usage,
}

impl PartialEq for History {
    fn eq(&self, other: &History) -> bool {
        let History { losses, values, epochs, stopped, best_epoch, usage: _ } = self;
        (losses, values, epochs, stopped, best_epoch)
            == (&other.losses, &other.values, &other.epochs, &other.stopped, &other.best_epoch)
    }
}

impl History {
    /// Adds the values of a step.
    pub(crate) fn add(&mut self, record: &StepRecord) {
        for (name, value) in &record.values {
            if name == LOSS {
                self.losses.push(*value);
            } else {
                self.values.entry(name.clone()).or_default().push(*value);
            }
        }
    }
}

/// The reason why training ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// All epochs or steps are done.
    #[default]
    Finished,
    /// Early stopping: the monitored value did not improve for the allowed number of evaluations.
    EarlyStopping,
    /// An [`Interrupter`](crate::Interrupter), a signal or the user stopped training.
    Interrupted,
    /// A callback stopped training.
    Callback,
    /// Training ended with an error.
    Failed,
}

/// The report of an epoch. Equality ignores the duration.
#[derive(Clone, Debug)]
pub struct EpochReport {
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// Optimizer steps at the end of the epoch, over all epochs.
    pub step: u64,
    /// Scores on the training batches, computed while the model changes.
    pub train: Scores,
    /// Scores on the validation sets after the epoch, by name. Empty without validation.
    pub valid: Vec<(String, Scores)>,
    /// Duration of training and validation.
    pub duration: Duration,
}

impl EpochReport {
    /// Returns the scores on the first validation set, if any.
    pub fn valid(&self) -> Option<&Scores> {
        self.valid.first().map(|(_, scores)| scores)
    }

    /// Returns the scores on a validation set by name.
    pub fn valid_set(&self, name: &str) -> Option<&Scores> {
        self.valid.iter().find(|(known, _)| known == name).map(|(_, scores)| scores)
    }
}

impl PartialEq for EpochReport {
    fn eq(&self, other: &EpochReport) -> bool {
        (self.epoch, self.step, &self.train, &self.valid)
            == (other.epoch, other.step, &other.train, &other.valid)
    }
}

/// Mean loss and metrics over items. Equality compares the bits of numbers, so that NaN equals itself.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    /// The mean loss. Batches are weighted by their number of items. NaN for a task without a single loss.
    pub loss: f64,
    /// The numbers by name: the main values of the metrics, in the order in which they were added, then the means of
    /// the numbers that the task logged.
    pub metrics: Vec<(String, f64)>,
    /// All values of the metrics.
    pub values: MetricValues,
    /// The number of items.
    pub num_items: usize,
}

impl PartialEq for Scores {
    fn eq(&self, other: &Scores) -> bool {
        let numbers = |scores: &Scores| -> Vec<(String, u64)> {
            scores.metrics.iter().map(|(name, number)| (name.clone(), number.to_bits())).collect()
        };
        self.loss.to_bits() == other.loss.to_bits()
            && numbers(self) == numbers(other)
            && self.num_items == other.num_items
            && format!("{:?}", self.values) == format!("{:?}", other.values)
    }
}

impl Scores {
    /// Returns a metric by name.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}
