//! The history of a training run.

use std::time::Duration;

/// The losses and scores of a run, the same bit for bit for the same seed and number of threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The training loss of every step, in order.
    pub losses: Vec<f64>,
    /// The reports of all complete epochs, in order.
    pub epochs: Vec<EpochReport>,
    /// Why training ended.
    pub stopped: StopReason,
    /// The epoch, from 0, with the best watched number; `None` before the first is done.
    pub best_epoch: Option<u64>,
}

/// Why training ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopReason {
    /// All epochs are done.
    #[default]
    Finished,
    /// Early stopping: the watched number did not improve for the allowed number of epochs.
    EarlyStopping,
    /// An [`Interrupter`](crate::Interrupter) requested it.
    Interrupted,
}

/// The report of an epoch. Two reports are equal if their numbers are; equality ignores the time.
#[derive(Clone, Debug)]
pub struct EpochReport {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Optimizer steps done by its end, over all epochs.
    pub step: u64,
    /// On the training batches, while the model changed.
    pub train: Scores,
    /// On the validation batches, after the epoch.
    pub valid: Option<Scores>,
    /// How long training and validation took.
    pub duration: Duration,
}

impl PartialEq for EpochReport {
    fn eq(&self, other: &EpochReport) -> bool {
        (self.epoch, self.step, &self.train, &self.valid)
            == (other.epoch, other.step, &other.train, &other.valid)
    }
}

/// Means over items.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// The loss; each batch weighs as much as it has items.
    pub loss: f64,
    /// The metrics by name, in the order in which the trainer got them.
    pub metrics: Vec<(String, f64)>,
    /// The number of items.
    pub num_items: usize,
}

impl Scores {
    /// A metric by name.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

/// The report that a callback receives after each step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The optimizer step over all epochs, from 0.
    pub step: u64,
    /// The batch within the epoch, from 0.
    pub batch: usize,
    /// The number of items in the batch.
    pub num_items: usize,
    /// The learning rate.
    pub learning_rate: f64,
    /// The loss; `None` where it was not read from the device yet.
    pub loss: Option<f64>,
    /// Whether the step was skipped, since gradients of a [scaled loss](crate::Trainer::loss_scaler) were not finite.
    pub skipped: bool,
}
