//! The error type of the crate.

use std::fmt;

use kiln_data::DataError;
use kiln_optim::OptimError;
use kiln_store::StoreError;

/// A result whose error is [`TrainError`].
pub type Result<T, E = TrainError> = std::result::Result<T, E>;

/// A position in training. `Display` prints `epoch 2, step 3120, batch 7`, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainPosition {
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// The optimizer step over all epochs, counted from 0. In validation the batch.
    pub step: u64,
    /// The batch within the epoch, counted from 0.
    pub batch: usize,
    /// Whether the position is in validation.
    pub validation: bool,
}

impl fmt::Display for TrainPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrainPosition { epoch, step, batch, validation } = self;
        if *validation {
            return write!(f, "epoch {}, validation batch {}", epoch + 1, batch + 1);
        }
        write!(f, "epoch {}, step {}, batch {}", epoch + 1, step + 1, batch + 1)
    }
}

/// An error of training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// An option is invalid.
    #[error("[trainer] {option} is {value}\n  hint: it must be {requirement}")]
    InvalidOption {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// The valid range.
        requirement: &'static str,
    },

    /// The loss is NaN or infinite.
    #[error(
        "[trainer] {place}: the loss is {loss}\n  \
         hint: lower the learning rate, clip gradients, or look for NaN in the data; \
         `stop_on_non_finite(false)` continues regardless"
    )]
    NonFiniteLoss {
        /// The position in training.
        place: TrainPosition,
        /// The loss.
        loss: f64,
    },

    /// The loss of a step has more than one element.
    #[error(
        "[trainer] {place}: the loss has {elements} elements, expected one\n  \
         hint: use the mean or the sum"
    )]
    LossShape {
        /// The position in training.
        place: TrainPosition,
        /// The number of elements in the loss.
        elements: usize,
    },

    /// The model's step panicked, as typed tensors do on shape mismatches.
    #[error("[trainer] {place}: the model's step panicked: {problem}")]
    Panicked {
        /// The position in training.
        place: TrainPosition,
        /// The message of the panic.
        problem: String,
    },

    /// A batch could not be loaded.
    #[error("[trainer] {place}: {source}")]
    Data {
        /// The position in training.
        place: TrainPosition,
        /// The error of the data loader.
        source: DataError,
    },

    /// An op or the device failed.
    #[error("[trainer] {place}: {source}")]
    Tensor {
        /// The position in training.
        place: TrainPosition,
        /// The error of the engine.
        source: kiln_tensor::Error,
    },

    /// The optimizer refused a step.
    #[error("[trainer] {place}: {source}")]
    Optimizer {
        /// The position in training.
        place: TrainPosition,
        /// The error of the optimizer.
        source: OptimError,
    },

    /// A metric could not be computed.
    #[error("[{metric}] {place}: {source}")]
    Metric {
        /// The metric.
        metric: String,
        /// The position in training.
        place: TrainPosition,
        /// The error of the metric.
        source: MetricError,
    },

    /// No metric has the monitored name.
    #[error("[trainer] no metric `{name}` to monitor; available: {}", known.join(", "))]
    UnknownMetric {
        /// The name.
        name: String,
        /// The names of the metrics.
        known: Vec<String>,
    },

    /// A checkpoint could not be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An error of computing a metric.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricError {
    /// The step's output does not contain a tensor that the metric needs.
    #[error("the output of the step has no `{name}`\n  hint: add it with `StepOutput::with`")]
    Missing {
        /// The name of the tensor.
        name: &'static str,
    },

    /// An op or the device failed.
    #[error(transparent)]
    Tensor(#[from] kiln_tensor::Error),
}
