//! The error type of the crate.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use kiln_data::DataError;
use kiln_ir::anomaly::Anomaly;
use kiln_optim::OptimError;
use kiln_store::StoreError;

/// A result whose error is [`TrainError`].
pub type Result<T, E = TrainError> = std::result::Result<T, E>;

/// A position in training. `Display` prints `epoch 2, step 3120, batch 7`, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    #[error("[learner] {option} is {value}\n  hint: it must be {requirement}")]
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
        "[learner] {place}: the loss is {loss}{}\n  \
         hint: lower the learning rate, clip gradients, or look for NaN in the data; \
         `stop_on_non_finite(false)` continues regardless",
        Origin(.origin)
    )]
    NonFiniteLoss {
        /// The position in training.
        place: TrainPosition,
        /// The loss.
        loss: f64,
        /// The op that first returned NaN or infinity, if [anomalies are detected](crate::Learner::detect_anomalies).
        origin: Option<Anomaly>,
    },

    /// A gradient is NaN or infinite, and anomalies are detected.
    #[error(
        "[learner] {place}: the gradient of `{parameter}` is not finite{}\n  \
         hint: lower the learning rate, clip gradients, or look for divisions by zero",
        Origin(.origin)
    )]
    NonFiniteGradient {
        /// The position in training.
        place: TrainPosition,
        /// The dotted name of the parameter.
        parameter: String,
        /// The op that first returned NaN or infinity, of the forward or the backward pass.
        origin: Option<Anomaly>,
    },

    /// A checkpoint belongs to another run.
    #[error("[learner] the checkpoint {} does not match: {problem}\n  hint: {hint}", folder.display())]
    OtherRun {
        /// The folder of the checkpoint.
        folder: PathBuf,
        /// The difference.
        problem: String,
        /// The remedy.
        hint: &'static str,
    },

    /// A callback failed.
    #[error("[{callback}] {place}: {problem}")]
    Callback {
        /// The callback.
        callback: String,
        /// The position in training.
        place: TrainPosition,
        /// The problem.
        problem: String,
    },

    /// An error of the task itself.
    #[error("[learner] {place}: {source}")]
    Task {
        /// The position in training.
        place: TrainPosition,
        /// The error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The loss of a step has more than one element.
    #[error(
        "[learner] {place}: the loss has {elements} elements, expected one\n  \
         hint: use the mean or the sum"
    )]
    LossShape {
        /// The position in training.
        place: TrainPosition,
        /// The number of elements in the loss.
        elements: usize,
    },

    /// The model's step panicked, as typed tensors do on shape mismatches.
    #[error("[learner] {place}: the model's step panicked: {problem}")]
    Panicked {
        /// The position in training.
        place: TrainPosition,
        /// The message of the panic.
        problem: String,
    },

    /// A batch could not be loaded.
    #[error("[learner] {place}: {source}")]
    Data {
        /// The position in training.
        place: TrainPosition,
        /// The error of the data loader.
        source: DataError,
    },

    /// An op or the device failed.
    #[error("[learner] {place}: {source}")]
    Tensor {
        /// The position in training.
        place: TrainPosition,
        /// The error of the engine.
        source: kiln_tensor::Error,
    },

    /// The optimizer refused a step.
    #[error("[learner] {place}: {source}")]
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

    /// A logger failed.
    #[error("[{logger}] {source}")]
    Logger {
        /// The logger.
        logger: String,
        /// The error of the logger.
        source: LoggerError,
    },

    /// No metric has the monitored name.
    #[error("[learner] no metric `{name}` to monitor; available: {}", known.join(", "))]
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

impl TrainError {
    /// Returns the error of a task. The learner adds the position.
    pub fn task(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TrainError {
        TrainError::Task { place: TrainPosition::default(), source: source.into() }
    }

    /// Whether a training step failed because the device had no memory for a tensor.
    pub(crate) fn is_step_out_of_memory(&self) -> bool {
        if let TrainError::Tensor { place, source } = self {
            !place.validation && source.is_out_of_memory()
        } else if let TrainError::Optimizer { place, source } = self {
            !place.validation && is_out_of_memory(source)
        } else if let TrainError::Task { place, source } = self {
            !place.validation && is_out_of_memory(&**source)
        } else if let TrainError::Panicked { place, problem } = self {
            !place.validation && problem.contains("out of memory")
        } else {
            false
        }
    }

    /// Whether a batch of training is in error, so that to repeat it would not help.
    pub(crate) fn is_of_batch(&self) -> bool {
        let is_refused = if let TrainError::Optimizer { source, .. } = self {
            source.refused_step().is_some()
        } else {
            matches!(self, TrainError::Tensor { .. })
        };
        is_refused && !self.is_step_out_of_memory()
    }

    /// Sets the position of an error that has none yet.
    pub(crate) fn at(mut self, position: TrainPosition) -> TrainError {
        if let TrainError::Task { place, .. }
        | TrainError::Optimizer { place, .. }
        | TrainError::Tensor { place, .. }
        | TrainError::Data { place, .. }
        | TrainError::Metric { place, .. }
        | TrainError::Callback { place, .. } = &mut self
            && *place == TrainPosition::default()
        {
            *place = position;
        }
        self
    }
}

/// Shows an anomaly after a problem.
struct Origin<'a>(&'a Option<Anomaly>);

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(anomaly) => write!(f, ": {anomaly}"),
            None => Ok(()),
        }
    }
}

/// Whether an error or one of its sources reports that the device has no memory.
fn is_out_of_memory(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_it = |error: &(dyn std::error::Error + 'static)| match error.downcast_ref::<OptimError>() {
        // A transparent error is not its own source.
        Some(OptimError::Tensor(error)) => error.is_out_of_memory(),
        Some(_) | None => error.downcast_ref().is_some_and(kiln_tensor::Error::is_out_of_memory),
    };
    std::iter::successors(Some(error), |error| error.source()).any(is_it)
}

impl From<OptimError> for TrainError {
    /// Returns the error of a task. The learner adds the position.
    fn from(source: OptimError) -> TrainError {
        TrainError::Optimizer { place: TrainPosition::default(), source }
    }
}

impl From<kiln_tensor::Error> for TrainError {
    /// Returns the error of a task. The learner adds the position.
    fn from(source: kiln_tensor::Error) -> TrainError {
        TrainError::Tensor { place: TrainPosition::default(), source }
    }
}

impl From<DataError> for TrainError {
    /// Returns the error of a task or a loader. The learner adds the position.
    fn from(source: DataError) -> TrainError {
        TrainError::Data { place: TrainPosition::default(), source }
    }
}

/// An error of writing a record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoggerError {
    /// A file cannot be read or written.
    #[error("{}: {}", path.display(), kiln_tensor::read_error(path, source, "a log of a training run"))]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },

    /// A line of a log is invalid.
    #[error("{}: line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The problem.
        problem: String,
    },

    /// Another error of a logger.
    #[error("{0}")]
    Other(String),
}

impl LoggerError {
    /// Returns the function from an error of the operating system to that of a file.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> LoggerError + Copy {
        move |source| LoggerError::Io { path: path.to_owned(), source }
    }
}

/// An error of computing a metric.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricError {
    /// The step's output does not contain a tensor that the metric needs.
    #[error(
        "the output of the step has no `{name}`\n  hint: add it with `StepOutput::with` or `Observation::with`"
    )]
    Missing {
        /// The name of the tensor.
        name: &'static str,
    },

    /// An input of the metric has an unexpected shape or value.
    #[error("`{name}` {problem}")]
    Input {
        /// The name of the input.
        name: &'static str,
        /// The problem, such as `has shape [8], expected [8, classes]`.
        problem: String,
    },

    /// A state belongs to another metric.
    #[error("the state of a metric does not match: {problem}")]
    State {
        /// The problem.
        problem: String,
    },

    /// An op or the device failed.
    #[error(transparent)]
    Tensor(#[from] kiln_tensor::Error),
}
