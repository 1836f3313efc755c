//! The history of a training run.

use std::time::Duration;

/// The losses and scores of a training run. They are bit-identical for the same seed and number of threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The training loss of each step, in order.
    pub losses: Vec<f64>,
    /// The reports of all complete epochs, in order.
    pub epochs: Vec<EpochReport>,
    /// The reason why training ended.
    pub stopped: StopReason,
    /// The epoch with the best monitored value, counted from 0. `None` before the first epoch ends.
    pub best_epoch: Option<u64>,
}

/// The reason why training ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopReason {
    /// All epochs are done.
    #[default]
    Finished,
    /// Early stopping: the monitored value did not improve for the allowed number of epochs.
    EarlyStopping,
    /// An [`Interrupter`](crate::Interrupter) stopped training.
    Interrupted,
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
    /// Scores on the validation batches after the epoch. `None` without validation.
    pub valid: Option<Scores>,
    /// Duration of training and validation.
    pub duration: Duration,
}

impl PartialEq for EpochReport {
    fn eq(&self, other: &EpochReport) -> bool {
        (self.epoch, self.step, &self.train, &self.valid)
            == (other.epoch, other.step, &other.train, &other.valid)
    }
}

/// Mean loss and metrics over items.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// The mean loss. Batches are weighted by their number of items.
    pub loss: f64,
    /// The metrics by name, in the order in which they were added to the trainer.
    pub metrics: Vec<(String, f64)>,
    /// The number of items.
    pub num_items: usize,
}

impl Scores {
    /// Returns a metric by name.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

/// The report of a step, for callbacks.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// The optimizer step over all epochs, counted from 0.
    pub step: u64,
    /// The batch within the epoch, counted from 0.
    pub batch: usize,
    /// The number of items in the batch.
    pub num_items: usize,
    /// The learning rate.
    pub learning_rate: f64,
    /// The loss. `None` if it was not yet read from the device.
    pub loss: Option<f64>,
    /// Whether the step was skipped because gradients of a [scaled loss](crate::Trainer::loss_scaler) were not finite.
    pub skipped: bool,
}
