//! The trainer and its options.

use std::fmt;
use std::path::PathBuf;

use kiln_nn::Module;
use kiln_optim::lr_scheduler::ScheduleState;
use kiln_optim::{LearningRate, LossScaler, LossScalerState, Optimizer};
use kiln_store::{Checkpoint, CheckpointWriter, TrainingState};
use serde::{Deserialize, Serialize};

use crate::error::{Result, TrainError};
use crate::folders::Folders;
use crate::history::{EpochReport, StepReport};
use crate::metric::Metric;
use crate::stopping::{Best, EarlyStopping, Interrupter, Monitor};

/// Trains a model: runs steps over batches, validation, metrics, progress and checkpoints.
///
/// Set options first, then call [`fit`](Trainer::fit). The trainer owns the model, so that it survives an error or an
/// interruption; [`into_model`](Trainer::into_model) returns it. See the [crate](crate) for an example.
///
/// Defaults: one epoch, progress is shown, the loss is read at every step, and a NaN or infinite loss is an error.
pub struct Trainer<M, O> {
    pub(crate) model: M,
    pub(crate) optimizer: O,
    pub(crate) learning_rate: Box<dyn LearningRate>,
    pub(crate) options: Options,
    pub(crate) metrics: Vec<Box<dyn Metric>>,
    pub(crate) on_step: Vec<StepCallback>,
    pub(crate) on_epoch: Vec<EpochCallback<M>>,
    pub(crate) position: Position,
    /// The folders of the options, locked while training runs.
    pub(crate) folders: Folders,
}

type StepCallback = Box<dyn FnMut(&StepReport)>;
type EpochCallback<M> = Box<dyn FnMut(&EpochReport, &M)>;

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) epochs: u64,
    pub(crate) progress: bool,
    pub(crate) read_interval: usize,
    pub(crate) stop_on_non_finite: bool,
    pub(crate) scaler: Option<LossScaler>,
    pub(crate) monitor: Monitor,
    pub(crate) early_stopping: Option<EarlyStopping>,
    pub(crate) best_folder: Option<PathBuf>,
    pub(crate) last_folder: Option<PathBuf>,
    pub(crate) interrupter: Interrupter,
}

/// The position in training. Checkpoints contain it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Position {
    /// Number of complete epochs.
    pub(crate) epoch: u64,
    /// Number of optimizer steps over all epochs.
    pub(crate) step: u64,
    /// Number of batches done in the current epoch.
    pub(crate) batch: usize,
    pub(crate) best: Best,
}

/// The key of the position in a checkpoint.
const POSITION: &str = "trainer";

/// The key of the loss scaler's state in a checkpoint.
const SCALER: &str = "loss_scaler";

/// The key of the learning-rate schedule's state in a checkpoint. Absent for a schedule without state.
const LEARNING_RATE: &str = "learning_rate";

impl<M: Module, O: Optimizer> Trainer<M, O> {
    /// Returns a trainer of a model. The learning rate is a constant `f64` or a [schedule](kiln_optim::lr_scheduler)
    /// over the optimizer's steps.
    ///
    /// After each epoch the schedule [observes](LearningRate::observe) the loss: of validation, or of training without
    /// validation. Checkpoints contain the state of the schedule.
    pub fn new(model: M, optimizer: O, learning_rate: impl LearningRate + 'static) -> Trainer<M, O> {
        Trainer {
            model,
            optimizer,
            learning_rate: Box::new(learning_rate),
            options: Options::default(),
            metrics: Vec::new(),
            on_step: Vec::new(),
            on_epoch: Vec::new(),
            position: Position::default(),
            folders: Folders::default(),
        }
    }

    /// Sets the number of epochs in total, including those before a checkpoint: at least 1. Default: 1.
    #[must_use]
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.options.epochs = epochs;
        self
    }

    /// Sets whether to show progress on standard error: a bar on a terminal, occasional lines elsewhere. Default: yes.
    #[must_use]
    pub fn progress(mut self, show: bool) -> Self {
        self.options.progress = show;
        self
    }

    /// Adds a metric for training and validation.
    #[must_use]
    pub fn metric(mut self, metric: impl Metric + 'static) -> Self {
        self.metrics.push(Box::new(metric));
        self
    }

    /// Sets the interval, in steps, of reading the loss from the device: at least 1. Between reads, training does not
    /// wait for the device, and a NaN is detected later. The history still contains the loss of every step. Default: 1.
    #[must_use]
    pub fn read_interval(mut self, steps: usize) -> Self {
        self.options.read_interval = steps;
        self
    }

    /// Sets whether a NaN or infinite loss ends training with an error. With a [read interval](Trainer::read_interval)
    /// of 1 the model is then in its state before that step. Default: yes.
    #[must_use]
    pub fn stop_on_non_finite(mut self, stop: bool) -> Self {
        self.options.stop_on_non_finite = stop;
        self
    }

    /// Enables loss scaling, for training in `f16`; see [`LossScaler`]. A step with non-finite gradients does not
    /// change the model. Each step waits for the device. Checkpoints contain the scale. Default: no loss scaling.
    ///
    /// Alternatively, the optimizer can have the
    /// [loss scaler](kiln_optim::PerParameter::with_loss_scaler), not both.
    #[must_use]
    pub fn loss_scaler(mut self, scaler: LossScaler) -> Self {
        self.options.scaler = Some(scaler);
        self
    }

    /// Sets the value that early stopping and the best checkpoint monitor. Default: the loss.
    #[must_use]
    pub fn monitor(mut self, monitor: Monitor) -> Self {
        self.options.monitor = monitor;
        self
    }

    /// Enables early stopping: training stops when the monitored value does not improve. Default: no early stopping.
    #[must_use]
    pub fn early_stopping(mut self, early_stopping: EarlyStopping) -> Self {
        self.options.early_stopping = Some(early_stopping);
        self
    }

    /// Writes a checkpoint to this folder after each epoch whose monitored value is the best so far. The conditions of
    /// [`keep_last`](Trainer::keep_last) apply to this folder too.
    #[must_use]
    pub fn keep_best(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.best_folder = Some(folder.into());
        self
    }

    /// Writes a checkpoint to this folder after each epoch and on interruption, for [`resume`](Trainer::resume).
    ///
    /// Before training starts, [`fit`](Trainer::fit) creates the parent folders. It locks the folder until it returns.
    /// It fails when the folder
    ///
    /// * cannot be written,
    /// * is locked by another training,
    /// * contains anything but a checkpoint, or
    /// * is the same as the folder of [`keep_best`](Trainer::keep_best), inside it or around it.
    #[must_use]
    pub fn keep_last(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.last_folder = Some(folder.into());
        self
    }

    /// Sets a flag that stops training after any step. Training then ends without an error, and `fit` can continue from
    /// there.
    #[must_use]
    pub fn interrupter(mut self, interrupter: Interrupter) -> Self {
        self.options.interrupter = interrupter;
        self
    }

    /// Adds a callback that is called after each step.
    #[must_use]
    pub fn on_step(mut self, callback: impl FnMut(&StepReport) + 'static) -> Self {
        self.on_step.push(Box::new(callback));
        self
    }

    /// Adds a callback that is called after each epoch with the report and the model.
    #[must_use]
    pub fn on_epoch(mut self, callback: impl FnMut(&EpochReport, &M) + 'static) -> Self {
        self.on_epoch.push(Box::new(callback));
        self
    }

    /// Resumes from a checkpoint that a trainer wrote: parameters, optimizer, learning-rate schedule, position and random
    /// state. The results equal those of an uninterrupted run bit for bit.
    ///
    /// A checkpoint without the state of a schedule leaves the schedule in its initial state, at the step of the
    /// checkpoint.
    ///
    /// # Errors
    /// When the checkpoint is damaged, belongs to another model or optimizer, or was not written by a trainer. When the
    /// checkpoint contains the state of a [loss scaler](Trainer::loss_scaler) and the trainer has none, or that of
    /// another learning-rate schedule.
    pub fn resume(mut self, checkpoint: &Checkpoint) -> Result<Self> {
        let state = checkpoint.state();
        let Some(position) = state.value::<Position>(POSITION)? else {
            return Err(TrainError::InvalidOption {
                option: "the checkpoint to resume",
                value: checkpoint.folder().display().to_string(),
                requirement: "one that a trainer wrote",
            });
        };
        if let Some(scaler) = state.value::<LossScalerState>(SCALER)? {
            self.load_scaler(scaler)?;
        }
        if let Some(schedule) = state.value::<ScheduleState>(LEARNING_RATE)? {
            self.load_schedule(&schedule)?;
        }
        self.model = load(self.model, checkpoint)?;
        checkpoint.load_optimizer(&mut self.optimizer, &self.model)?;
        state.restore_random(&self.model)?;
        self.position = position;
        Ok(self)
    }

    fn load_scaler(&mut self, state: LossScalerState) -> Result<()> {
        let refuse = |value: String, requirement| {
            Err(TrainError::InvalidOption { option: "the loss scaler", value, requirement })
        };
        match &mut self.options.scaler {
            Some(scaler) => scaler
                .load_state(state)
                .or_else(|error| refuse(error.to_string(), "the state of a checkpoint that a trainer wrote")),
            None => refuse("none".to_owned(), "set before `resume`: the checkpoint was written with one"),
        }
    }

    fn load_schedule(&mut self, state: &ScheduleState) -> Result<()> {
        self.learning_rate.load_state(state).map_err(|error| TrainError::InvalidOption {
            option: "the learning-rate schedule",
            value: error.to_string(),
            requirement: "the schedule that the checkpoint was written with",
        })
    }

    /// Returns the model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// Returns the loss scaler, if any.
    pub fn scaler(&self) -> Option<&LossScaler> {
        self.options.scaler.as_ref()
    }

    /// Returns the optimizer.
    pub fn optimizer(&self) -> &O {
        &self.optimizer
    }

    /// Returns the model and consumes the trainer.
    pub fn into_model(self) -> M {
        self.model
    }

    /// Returns the model and the optimizer and consumes the trainer.
    pub fn into_parts(self) -> (M, O) {
        (self.model, self.optimizer)
    }

    /// Writes the last checkpoint if it is enabled.
    pub(crate) fn save_last(&mut self) -> Result<()> {
        let Some(mut writer) = self.folders.last.take() else { return Ok(()) };
        let saved = self.save(&mut writer);
        self.folders.last = Some(writer);
        saved
    }

    /// Writes the best checkpoint if it is enabled.
    pub(crate) fn save_best(&mut self) -> Result<()> {
        let Some(mut writer) = self.folders.best.take() else { return Ok(()) };
        let saved = self.save(&mut writer);
        self.folders.best = Some(writer);
        saved
    }

    fn save(&self, writer: &mut CheckpointWriter) -> Result<()> {
        let Position { epoch, step, .. } = self.position;
        let mut state =
            TrainingState::of(&self.model).at(epoch, step).with_value(POSITION, &self.position)?;
        if let Some(scaler) = &self.options.scaler {
            state = state.with_value(SCALER, &scaler.state())?;
        }
        let schedule = self.learning_rate.state();
        if !schedule.is_empty() {
            state = state.with_value(LEARNING_RATE, &schedule)?;
        }
        Ok(writer.save(&self.model, Some(&self.optimizer), &state)?)
    }

    /// Locks the enabled checkpoint folders.
    pub(crate) fn open_folders(&self) -> Result<Folders> {
        let Options { last_folder, best_folder, .. } = &self.options;
        Folders::open(last_folder.as_deref(), best_folder.as_deref())
    }

    /// Rejects invalid options before training starts.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |option, value: String, requirement| {
            Err(TrainError::InvalidOption { option, value, requirement })
        };
        let Options { epochs, read_interval, monitor, early_stopping, .. } = &self.options;
        if *epochs == 0 {
            return refuse("epochs", "0".to_owned(), "at least 1");
        }
        if *read_interval == 0 {
            return refuse("read_interval", "0".to_owned(), "at least 1");
        }
        if let Some(EarlyStopping { patience, min_delta }) = early_stopping {
            if *patience == 0 {
                return refuse("the patience of early stopping", "0".to_owned(), "at least 1");
            }
            if !(min_delta.is_finite() && *min_delta >= 0.0) {
                return refuse("min_delta", min_delta.to_string(), "a finite number of at least 0");
            }
        }
        match monitor {
            Monitor::Metric(name) if !self.metrics.iter().any(|metric| metric.name() == name) => {
                let known = self.metrics.iter().map(|metric| metric.name().to_owned()).collect();
                Err(TrainError::UnknownMetric { name: name.clone(), known })
            }
            Monitor::Loss | Monitor::Metric(_) => Ok(()),
        }
    }

    pub(crate) fn higher_is_better(&self) -> bool {
        match &self.options.monitor {
            Monitor::Loss => false,
            Monitor::Metric(name) => {
                self.metrics.iter().any(|metric| metric.name() == name && metric.higher_is_better())
            }
        }
    }
}

fn load<M: Module>(model: M, checkpoint: &Checkpoint) -> Result<M> {
    Ok(checkpoint.load_module(model)?)
}

impl Default for Options {
    fn default() -> Options {
        Options {
            epochs: 1,
            progress: true,
            read_interval: 1,
            stop_on_non_finite: true,
            scaler: None,
            monitor: Monitor::default(),
            early_stopping: None,
            best_folder: None,
            last_folder: None,
            interrupter: Interrupter::default(),
        }
    }
}

impl<M: fmt::Debug, O: fmt::Debug> fmt::Debug for Trainer<M, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer")
            .field("optimizer", &self.optimizer)
            .field("learning_rate", &self.learning_rate)
            .field("options", &self.options)
            .field("metrics", &self.metrics)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
