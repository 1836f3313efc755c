//! The error type of the crate.

use std::fmt;

use kiln_data::DataError;
use kiln_optim::OptimError;
use kiln_store::StoreError;

/// A result whose error is [`TrainError`].
pub type Result<T, E = TrainError> = std::result::Result<T, E>;

/// A place in training. Displays as `epoch 2, step 3120, batch 7`; all count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainPosition {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The optimizer step over all epochs, from 0; in validation the batch.
    pub step: u64,
    /// The batch of the epoch, from 0.
    pub batch: usize,
    /// Whether this is in validation.
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
    /// An option makes no sense.
    #[error("[trainer] {option} is {value}\n  hint: it must be {requirement}")]
    InvalidOption {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// Which values it may have.
        requirement: &'static str,
    },

    /// The loss is NaN or infinite.
    #[error(
        "[trainer] {place}: the loss is {loss}\n  \
         hint: lower the learning rate, clip gradients, or look for NaN in the data; \
         `stop_on_non_finite(false)` goes on regardless"
    )]
    NonFiniteLoss {
        /// Where.
        place: TrainPosition,
        /// The loss.
        loss: f64,
    },

    /// A step gave a loss that is not a single number.
    #[error(
        "[trainer] {place}: the loss has {elements} elements, where one should be\n  \
         hint: take the mean or the sum"
    )]
    LossShape {
        /// Where.
        place: TrainPosition,
        /// The number of elements of the loss.
        elements: usize,
    },

    /// The model's step panicked, as typed tensors do on wrong shapes.
    #[error("[trainer] {place}: the model's step panicked: {problem}")]
    Panicked {
        /// Where.
        place: TrainPosition,
        /// The message of the panic.
        problem: String,
    },

    /// A batch could not be made.
    #[error("[trainer] {place}: {source}")]
    Data {
        /// Where.
        place: TrainPosition,
        /// The error of the loader.
        source: DataError,
    },

    /// An op, or the device, failed.
    #[error("[trainer] {place}: {source}")]
    Tensor {
        /// Where.
        place: TrainPosition,
        /// The error of the engine.
        source: kiln_tensor::Error,
    },

    /// The optimizer refused a step.
    #[error("[trainer] {place}: {source}")]
    Optimizer {
        /// Where.
        place: TrainPosition,
        /// The error of the optimizer.
        source: OptimError,
    },

    /// A metric could not be computed.
    #[error("[{metric}] {place}: {source}")]
    Metric {
        /// The metric.
        metric: String,
        /// Where.
        place: TrainPosition,
        /// The error of the metric.
        source: MetricError,
    },

    /// There is no metric of the name that is to be watched.
    #[error("[trainer] there is no metric `{name}` to watch; there are: {}", known.join(", "))]
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

/// Why a metric could not be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricError {
    /// The step's output lacks a tensor that the metric needs.
    #[error("the output of the step has no `{name}`\n  hint: add it with `StepOutput::with`")]
    Missing {
        /// The name of the tensor.
        name: &'static str,
    },

    /// An op, or the device, failed.
    #[error(transparent)]
    Tensor(#[from] kiln_tensor::Error),
}
