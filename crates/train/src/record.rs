//! Records of a run, for loggers and renderers.

pub(crate) mod number;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::history::StopReason;
use crate::metric::MetricValue;
use crate::usage::Usage;

/// A record of a run. Loggers write records, and renderers show them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Record {
    /// Training starts, or continues from a checkpoint.
    Start(RunDescription),
    /// A training step ended, and its values were read from the device: one step later, so that the device does not wait.
    Step(StepRecord),
    /// A pass over a validation set made progress.
    Progress(PassProgress),
    /// Metrics were computed: over the training batches since the epoch began, or over a validation set.
    Values(ValuesRecord),
    /// An epoch ended.
    Epoch {
        /// The epoch, counted from 0.
        epoch: u64,
        /// Optimizer steps since training began.
        step: u64,
        /// The duration of training and validation.
        duration: Duration,
    },
    /// A checkpoint was written.
    Checkpoint {
        /// Optimizer steps since training began.
        step: u64,
        /// The folder.
        folder: String,
    },
    /// The number of batches of an epoch changed, since memory ran out and the batch size was halved.
    Batches {
        /// Optimizer steps since training began.
        step: u64,
        /// The number of batches. `None` where the loader does not know it.
        batches: Option<u64>,
    },
    /// A message for people.
    Message {
        /// The severity.
        level: Level,
        /// The text.
        text: String,
    },
    /// The time and the memory that training used, before its end.
    Usage(Usage),
    /// Training ended.
    End {
        /// The reason.
        reason: StopReason,
        /// Optimizer steps since training began.
        step: u64,
        /// The duration of this call.
        duration: Duration,
    },
}

/// The name of a run without another.
pub(crate) const DEFAULT_NAME: &str = "run";

/// The description of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunDescription {
    /// The name of the run: `run` unless [`Learner::name`](crate::Learner::name) sets another.
    pub name: String,
    /// The task, such as the model as text.
    pub task: String,
    /// The number of epochs in total. `None` where training is bounded by steps.
    pub epochs: Option<u64>,
    /// The number of steps in total. `None` where training is bounded by epochs.
    pub steps: Option<u64>,
    /// The number of batches of an epoch. `None` where the loader does not know it.
    pub batches: Option<u64>,
    /// The first epoch of this call, counted from 0.
    pub epoch: u64,
    /// The first step of this call, counted from 0.
    pub step: u64,
    /// The configuration and hyper-parameters, by name.
    pub hyper_parameters: BTreeMap<String, String>,
    /// The environment: version of the library, device, number of threads, command line.
    pub environment: BTreeMap<String, String>,
    /// The metrics, by name.
    pub metrics: Vec<MetricDescription>,
    /// Seconds since 1970-01-01 UTC at the start of this call.
    pub started: u64,
}

/// The description of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricDescription {
    /// The name.
    pub name: String,
    /// Whether a greater value is better.
    pub higher_is_better: bool,
}

/// A training step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// The step since training began, counted from 0.
    pub step: u64,
    /// The batch within the epoch, counted from 0.
    pub batch: u64,
    /// The number of items in the batch.
    pub items: usize,
    /// The learning rates, by the names of the optimizers.
    #[serde(with = "number::named")]
    pub learning_rates: Vec<(String, f64)>,
    /// Numbers by name: the loss and those that the task logged.
    #[serde(with = "number::named")]
    pub values: Vec<(String, f64)>,
    /// Whether an optimizer skipped its update, because scaled gradients were not finite.
    pub skipped: bool,
}

/// The progress of a pass over a validation set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassProgress {
    /// The name of the validation set.
    pub set: String,
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// The number of batches that are done.
    pub batch: u64,
    /// The number of batches. `None` where the loader does not know it.
    pub batches: Option<u64>,
}

/// Values of metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValuesRecord {
    /// The data that the values are of.
    pub split: Split,
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// Optimizer steps since training began.
    pub step: u64,
    /// Whether the pass is complete: all batches of the epoch, or the whole validation set. Otherwise the values are of
    /// the batches so far.
    pub complete: bool,
    /// The values by name. The loss is named `loss`.
    pub values: Vec<(String, MetricValue)>,
    /// The values of scalars as text, such as `96.12 %`, by name.
    pub text: BTreeMap<String, String>,
}

/// The data that values are of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// The training batches.
    Train,
    /// The validation set of this name. The only one is named `valid`.
    Valid(String),
}

impl Split {
    /// Returns the name: `train`, or that of the validation set.
    pub fn name(&self) -> &str {
        match self {
            Split::Train => "train",
            Split::Valid(name) => name,
        }
    }
}

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Information.
    Info,
    /// A warning.
    Warning,
    /// An error.
    Error,
}
