//! Callbacks: code that runs at the events of training.

mod average;
mod checkpoints;
mod early_stopping;
mod functions;
mod gradient_statistics;
pub mod profiler;
mod restore_best;
mod schedule;

use std::path::{Path, PathBuf};

pub use average::WeightAverage;
pub use checkpoints::{KeepBest, KeepLast};
pub use early_stopping::EarlyStopping;
pub use functions::{OnEpoch, OnStep};
pub use gradient_statistics::GradientStatistics;
use kiln_store::CheckpointSeries;
pub use profiler::Profiler;
pub use restore_best::RestoreBest;
pub use schedule::AtEpoch;

use crate::error::{Result, TrainError, TrainPosition};
use crate::history::{EpochReport, History, StopReason};
use crate::monitor::Monitor;
use crate::record::{Level, Record, StepRecord};
use crate::step::GradientsEvent;
use crate::task::StateVisitor;

/// An event of training.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Training starts, or continues.
    Started,
    /// An epoch starts, or continues.
    EpochStarted,
    /// A step starts.
    StepStarted,
    /// A step ended: the models are updated. Its values are not read from the device yet.
    StepEnded,
    /// The values of a step were read from the device.
    StepMeasured(&'a StepRecord),
    /// Validation starts.
    ValidationStarted,
    /// Validation ended.
    ValidationEnded,
    /// The validation sets were evaluated, or an epoch without validation ended.
    Evaluated(&'a EpochReport),
    /// An epoch ended, after validation.
    EpochEnded(&'a EpochReport),
    /// A checkpoint was handed to the writer.
    CheckpointTaken(&'a Path),
    /// Training ends.
    Ended(&'a History),
    /// Training ended, and the last checkpoint was taken. The task may change now.
    Closing,
}

/// Code that runs at the events of training, with access to the task.
///
/// Callbacks run in the order in which they were added, those with a lower [`order`](Callback::order) first.
///
/// ```
/// use kiln_train::{Callback, Context, Event, Result, StateVisitor, Task};
///
/// /// Counts steps, also across a resume.
/// #[derive(Debug, Default)]
/// struct Count(u64);
///
/// impl<T: Task> Callback<T> for Count {
///     fn name(&self) -> &str {
///         "count"
///     }
///
///     fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()> {
///         if let Event::StepEnded = event {
///             self.0 += 1;
///             if self.0 == 1000 {
///                 context.control.info("a thousand steps");
///             }
///         }
///         Ok(())
///     }
///
///     fn state(&mut self, _task: &mut T, visitor: &mut dyn StateVisitor) -> Result<()> {
///         visitor.value("count", &mut self.0)
///     }
/// }
/// ```
pub trait Callback<T: ?Sized>: Send {
    /// Returns the name, for errors and checkpoints: lower-case letters, digits and `_`. It is unique among the
    /// callbacks with state.
    fn name(&self) -> &str;

    /// Runs at an event.
    ///
    /// # Errors
    /// Training ends with the error.
    fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()>;

    /// Sees the gradients of a model before each update of [`Step::backward`](crate::Step::backward) and
    /// [`Step::update`](crate::Step::update). It may change them. Accumulated passes count. Default: does nothing.
    ///
    /// # Errors
    /// The step fails with the error, and the model does not change.
    fn gradients(&mut self, event: &mut GradientsEvent<'_>) -> Result<()> {
        let _ = event;
        Ok(())
    }

    /// Returns the place among the callbacks: lower runs first. Default: 0.
    fn order(&self) -> i32 {
        0
    }

    /// Passes the state to a visitor. A checkpoint contains it. Default: no state.
    ///
    /// # Errors
    /// The error of the visitor.
    fn state(&mut self, task: &mut T, visitor: &mut dyn StateVisitor) -> Result<()> {
        let _ = (task, visitor);
        Ok(())
    }
}

/// The access of a callback to training.
#[derive(Debug)]
#[non_exhaustive]
pub struct Context<'a, T: ?Sized> {
    /// The task.
    pub task: &'a mut T,
    /// Position and requests.
    pub control: &'a mut Control,
}

/// A request for a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct SaveRequest {
    pub(crate) folder: PathBuf,
    /// The series that the folder belongs to.
    pub(crate) series: Option<CheckpointSeries>,
}

/// The position in training, and the requests of callbacks to the learner.
#[derive(Debug, Default)]
pub struct Control {
    pub(crate) place: TrainPosition,
    pub(crate) steps: u64,
    pub(crate) higher_is_better: Vec<(String, bool)>,
    /// The monitor of the learner.
    pub(crate) monitor: Monitor,
    pub(crate) stop: Option<StopReason>,
    pub(crate) checkpoints: Vec<SaveRequest>,
    pub(crate) records: Vec<Record>,
}

impl Control {
    /// Returns the position: that of the step that runs or ended.
    pub fn position(&self) -> TrainPosition {
        self.place
    }

    /// Returns the number of steps that are done, over all epochs.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Requests that training stops after the current step, with a reason.
    pub fn stop(&mut self, reason: StopReason) {
        self.stop = Some(reason);
    }

    /// Returns whether a stop was requested.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// Requests a checkpoint. It is taken after the callbacks of the event, and written in the background.
    ///
    /// A checkpoint of the same folder that still waits is not written.
    pub fn save(&mut self, folder: impl Into<PathBuf>) {
        self.checkpoints.push(SaveRequest { folder: folder.into(), series: None });
    }

    /// Requests a checkpoint in the next folder of a series. Old checkpoints of the series are removed after it is
    /// written.
    pub fn save_to_series(&mut self, series: &mut CheckpointSeries) {
        let folder = series.next_folder(self.steps);
        self.checkpoints.push(SaveRequest { folder, series: Some(series.clone()) });
    }

    /// Passes a record to loggers and renderer.
    pub fn record(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Passes a message to loggers and renderer.
    pub fn info(&mut self, text: impl Into<String>) {
        self.record(Record::Message { level: Level::Info, text: text.into() });
    }

    /// Passes a warning to loggers and renderer.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.record(Record::Message { level: Level::Warning, text: text.into() });
    }

    /// Returns whether a greater value of a metric is better. `None` for an unknown metric. The loss is `false`.
    pub fn higher_is_better(&self, metric: &str) -> Option<bool> {
        let known = self.higher_is_better.iter().find(|(name, _)| name == metric);
        known.map(|(_, is_better)| *is_better).or_else(|| (metric == crate::step::LOSS).then_some(false))
    }

    /// Returns a callback's own monitor, or that of the learner.
    pub fn monitor(&self, own: &Option<Monitor>) -> Monitor {
        own.as_ref().unwrap_or(&self.monitor).clone()
    }

    /// Returns an error of a callback at the current position.
    pub fn error(&self, callback: &str, problem: impl Into<String>) -> TrainError {
        TrainError::Callback { callback: callback.to_owned(), place: self.place, problem: problem.into() }
    }
}
