//! The learner and its options.

mod checkpoint;
mod fit;
mod learning_rate;
mod outputs;
mod refusals;
mod tensors;
mod training_set;
mod usage;
mod validation;

pub(crate) use fit::{guarded, panic_message};
pub use learning_rate::{LearningRateCurve, LearningRateFinder, LearningRatePoint};

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use kiln_store::{BackgroundWriter, Checkpoint};
use kiln_tensor::Checkpointing;
use serde::{Deserialize, Serialize};

use crate::callback::{Callback, Control, EarlyStopping, KeepBest, KeepLast, OnEpoch, OnStep};
use crate::error::{Result, TrainError};
use crate::history::{EpochReport, History};
use crate::interrupter::Interrupter;
use crate::interval::Interval;
use crate::loader::LoaderIdentity;
use crate::logger::Logger;
use crate::meter::Meter;
use crate::metric::Metric;
use crate::monitor::{Best, Monitor};
use crate::record::{DEFAULT_NAME, StepRecord};
use crate::renderer::Renderer;
use crate::step::StepOptions;
use crate::task::Task;
use crate::usage::Stopwatch;

/// Trains a [`Task`]: runs steps over batches, validation, metrics, callbacks, loggers and checkpoints.
///
/// Set options first, then call [`fit`](Learner::fit). The learner owns the task, so that it survives an error or an
/// interruption; [`into_task`](Learner::into_task) returns it. See the [crate](crate) for an example.
///
/// Defaults: one epoch, validation and checkpoints after each epoch, progress is shown, and a NaN or infinite loss is an
/// error.
pub struct Learner<T> {
    task: T,
    options: Options,
    /// The metrics without batches, from which those of each pass are made.
    train_metrics: Vec<Box<dyn Metric>>,
    valid_metrics: Vec<Box<dyn Metric>>,
    callbacks: Vec<Box<dyn Callback<T>>>,
    loggers: Vec<Box<dyn Logger>>,
    renderer: Option<Box<dyn Renderer>>,
    /// Whether the learner opened the renderer itself, for this call of `fit`.
    is_automatic: bool,
    position: Position,
    meter: Meter,
    refusals: refusals::Refusals,
    control: Control,
    /// The history of this call of `fit`.
    history: History,
    /// The writer of checkpoints, while training runs.
    writer: Option<BackgroundWriter>,
    /// The earliest time of the next display of scores.
    next_scores: Instant,
    stopwatch: Stopwatch,
    /// The loader of the run that the checkpoint belongs to.
    resumed: Option<(PathBuf, LoaderIdentity)>,
    identity: LoaderIdentity,
}

#[derive(Clone, Debug)]
struct Options {
    name: String,
    epochs: Option<u64>,
    max_steps: Option<u64>,
    validate_every: Interval,
    read_delay: usize,
    stop_on_non_finite: bool,
    step: StepOptions,
    monitor: Monitor,
    folders: Vec<PathBuf>,
    interrupter: Interrupter,
    overfit_batches: Option<u64>,
    max_valid_batches: Option<u64>,
    hyper_parameters: BTreeMap<String, String>,
    silent: bool,
    seed: Option<u64>,
    drop_last: bool,
    checkpointing: Option<Checkpointing>,
}

/// The position in training. Checkpoints contain it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Position {
    /// Number of complete epochs.
    epoch: u64,
    /// Number of steps over all epochs.
    step: u64,
    /// Number of batches done in the current epoch.
    batch: u64,
    /// The best monitored value.
    best: Best,
}

impl<T: Task> Learner<T> {
    /// Returns a learner of a task.
    pub fn new(task: T) -> Learner<T> {
        Learner {
            task,
            options: Options::default(),
            train_metrics: Vec::new(),
            valid_metrics: Vec::new(),
            callbacks: Vec::new(),
            loggers: Vec::new(),
            renderer: None,
            is_automatic: false,
            position: Position::default(),
            meter: Meter::default(),
            refusals: refusals::Refusals::default(),
            control: Control::default(),
            history: History::default(),
            writer: None,
            next_scores: Instant::now(),
            stopwatch: Stopwatch::new(),
            resumed: None,
            identity: LoaderIdentity::default(),
        }
    }

    kiln_ir::setters! {
        /// Sets the name of the run, for logs. Default: `run`.
        name(name: impl Into<String>) => options.name = name.into();

        /// Sets the number of epochs in total, including those before a checkpoint: at least 1. Default: 1, which a message at the
        /// start says, or no bound if [`max_steps`](Learner::max_steps) is set.
        epochs(epochs: u64) => options.epochs = Some(epochs);

        /// Sets the number of steps in total, including those before a checkpoint: at least 1. Training ends at this step or
        /// after the last epoch, whichever is first. Default: no bound.
        max_steps(steps: u64) => options.max_steps = Some(steps);
    }

    /// Adds a metric for training and for each validation set.
    #[must_use]
    pub fn metric(mut self, metric: impl Metric + 'static) -> Self {
        self.valid_metrics.push(metric.fresh());
        self.train_metrics.push(Box::new(metric));
        self
    }

    /// Adds a metric for training alone.
    #[must_use]
    pub fn train_metric(mut self, metric: impl Metric + 'static) -> Self {
        self.train_metrics.push(Box::new(metric));
        self
    }

    /// Adds a metric for validation alone.
    #[must_use]
    pub fn valid_metric(mut self, metric: impl Metric + 'static) -> Self {
        self.valid_metrics.push(Box::new(metric));
        self
    }

    /// Adds a callback.
    #[must_use]
    pub fn callback(mut self, callback: impl Callback<T> + 'static) -> Self {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Adds a logger.
    #[must_use]
    pub fn logger(mut self, logger: impl Logger + 'static) -> Self {
        self.loggers.push(Box::new(logger));
        self
    }

    kiln_ir::setters! {
        /// Sets the renderer. Default: [`automatic`](crate::renderer::automatic).
        renderer(renderer: impl Renderer + 'static) =>
            renderer = Some(Box::new(renderer)), options.silent = false;

        /// Shows nothing.
        silent() => renderer = None, options.silent = true;

        /// Sets when the validation sets are evaluated. Default: after each epoch.
        validate_every(interval: Interval) => options.validate_every = interval;

        /// Sets the number of steps between the end of a step and reading its loss from the device. With 0 the host waits
        /// for the device after each step. Default: 1, so that the device always has the next step to work on. A NaN is
        /// detected that much later.
        read_delay(steps: usize) => options.read_delay = steps;

        /// Sets whether a NaN or infinite loss ends training with an error. Default: yes.
        stop_on_non_finite(stop: bool) => options.stop_on_non_finite = stop;

        /// Sets whether [`Step::backward`](crate::Step::backward) reads each loss before the update. A NaN or infinite loss
        /// is then an error that leaves the model in its state before the step. The host waits for the device in each step.
        /// Default: no.
        check_loss_before_update(check: bool) => options.step.checks_loss = check;
    }

    /// Sets whether to look for NaN and infinity in the loss and in each gradient, before the update. The error names the
    /// parameter, and the [op that first returned](kiln_ir::anomaly) NaN or infinity. The host reads the results of each
    /// op, so that steps are many times slower. Default: no.
    #[must_use]
    pub fn detect_anomalies(mut self, detect: bool) -> Self {
        self.options.step.detects_anomalies = detect;
        self.options.step.checks_loss |= detect;
        self
    }

    kiln_ir::setters! {
        /// Sets the monitored value: learning-rate schedules [observe](kiln_optim::LearningRate::observe) it after each
        /// evaluation, the history names its best epoch, and callbacks without a monitor of their own use it. Default: the
        /// loss.
        monitor(monitor: Monitor) => options.monitor = monitor;
    }

    /// Adds [early stopping](EarlyStopping).
    #[must_use]
    pub fn early_stopping(self, early_stopping: EarlyStopping) -> Self {
        self.callback(early_stopping)
    }

    /// Writes a checkpoint to this folder after each evaluation with the best monitored value so far. The conditions of [`keep_last`](Learner::keep_last) apply to this folder too.
    #[must_use]
    pub fn keep_best(self, folder: impl Into<PathBuf>) -> Self {
        self.keep_best_of(KeepBest::new(folder))
    }

    /// Writes checkpoints of the best state by a callback with options.
    #[must_use]
    pub fn keep_best_of(mut self, keep_best: KeepBest) -> Self {
        self.options.folders.push(keep_best.folder().to_owned());
        self.callback(keep_best)
    }

    /// Writes a checkpoint to this folder after each epoch, on interruption and at the end, for
    /// [`resume`](Learner::resume). [`KeepLast`] sets another interval.
    ///
    /// Before training starts, [`fit`](Learner::fit) creates the parent folders. It locks the folder until it returns.
    /// It fails when the folder
    ///
    /// * cannot be written,
    /// * is locked by another training,
    /// * contains anything but a checkpoint, or
    /// * is the same as another folder of checkpoints, inside it or around it.
    #[must_use]
    pub fn keep_last(self, folder: impl Into<PathBuf>) -> Self {
        self.keep_last_of(KeepLast::new(folder))
    }

    /// Writes checkpoints at an interval.
    #[must_use]
    pub fn keep_last_of(mut self, keep_last: KeepLast) -> Self {
        self.options.folders.extend(keep_last.locked_folder().map(Path::to_owned));
        self.callback(keep_last)
    }

    /// Adds a folder to which a callback [saves](Control::save) checkpoints, so that it is locked before training
    /// starts.
    #[must_use]
    pub fn checkpoint_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.options.folders.push(folder.into());
        self
    }

    kiln_ir::setters! {
        /// Sets a flag that stops training after any step. Training then ends without an error, and `fit` can continue from
        /// there.
        interrupter(interrupter: Interrupter) => options.interrupter = interrupter;
    }

    /// Adds a closure that receives the record of each step, after its values were read from the device.
    #[must_use]
    pub fn on_step(self, callback: impl FnMut(&StepRecord) + Send + 'static) -> Self {
        self.callback(OnStep(callback))
    }

    /// Adds a closure that receives the report of each epoch and the task.
    #[must_use]
    pub fn on_epoch(self, callback: impl FnMut(&EpochReport, &mut T) + Send + 'static) -> Self {
        self.callback(OnEpoch(callback))
    }

    kiln_ir::setters! {
        /// Trains on the first batches of epoch 0 alone, in each epoch, to see whether the model can learn them. Default: all
        /// batches.
        overfit_batches(batches: u64) => options.overfit_batches = Some(batches);

        /// Runs one epoch of one training batch and one batch of each validation set, to find errors early.
        dry_run() =>
            options.overfit_batches = Some(1), options.max_valid_batches = Some(1), options.epochs = Some(1);

        /// Seeds the random numbers of the models' devices before the first step (device `n` of several with `seed + n`), and the
        /// shuffling of [`fit_tensors`](Learner::fit_tensors). A resumed run continues its random streams instead. Default: the streams
        /// continue from their state.
        ///
        /// Initial weights are drawn before there is a learner: seed the device with
        /// [`Backend::seed`](kiln_tensor::Backend::seed) before the model is made. A data loader has a seed of its own.
        seed(seed: u64) => options.seed = Some(seed);

        /// Sets whether [`fit_tensors`](Learner::fit_tensors) drops an incomplete last training batch, as for batch normalisation,
        /// which cannot train on a single item. Validation uses all items. A loader has
        /// [an option of its own](crate::loader::TensorLoader::drop_last). Default: no.
        drop_last(drop_last: bool) => options.drop_last = drop_last;

        /// Sets the activation checkpointing of training steps, which replaces that of the models' devices. With
        /// [`Checkpointing::Balanced`] the tape needs less memory, and the backward pass recomputes cheap results. The values
        /// are the same, bit for bit. Default: that of the devices.
        ///
        /// [`checkpoint`](kiln_tensor::checkpoint) saves more, for a block that the model chooses.
        checkpointing(checkpointing: Checkpointing) => options.checkpointing = Some(checkpointing);
    }

    /// Adds a hyper-parameter, for logs.
    #[must_use]
    pub fn hyper_parameter(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.options.hyper_parameters.insert(name.into(), value.to_string());
        self
    }

    /// Resumes from a checkpoint that a learner wrote, after all other options are set: models, optimizers, schedules, metrics, callbacks, position and
    /// random state. The results equal those of an uninterrupted run bit for bit.
    ///
    /// # Errors
    /// When the checkpoint is damaged, belongs to another task, or was not written by a learner. The learner is lost, so
    /// that no run continues from half of a checkpoint.
    pub fn resume(mut self, checkpoint: &Checkpoint) -> Result<Self> {
        self.load(checkpoint)?;
        Ok(self)
    }

    /// Returns the task.
    pub fn task(&self) -> &T {
        &self.task
    }

    /// Returns the task, to change it between two calls of `fit`.
    pub fn task_mut(&mut self) -> &mut T {
        &mut self.task
    }

    /// Returns the task and consumes the learner.
    pub fn into_task(self) -> T {
        self.task
    }

    /// Returns the number of complete epochs.
    pub fn epoch(&self) -> u64 {
        self.position.epoch
    }

    /// Returns the number of steps over all epochs.
    pub fn step(&self) -> u64 {
        self.position.step
    }

    /// Rejects invalid options before training starts.
    fn check(&self) -> Result<()> {
        let at_least_one = |option, number: Option<u64>| match number {
            Some(0) => {
                Err(TrainError::InvalidOption { option, value: "0".to_owned(), requirement: "at least 1" })
            }
            Some(_) | None => Ok(()),
        };
        let Options { epochs, max_steps, overfit_batches, validate_every, folders, .. } = &self.options;
        at_least_one("epochs", *epochs)?;
        at_least_one("max_steps", *max_steps)?;
        at_least_one("overfit_batches", *overfit_batches)?;
        validate_every.check("validate_every")?;
        for (index, folder) in folders.iter().enumerate() {
            for other in &folders[..index] {
                crate::folders::check_apart(other, folder)?;
            }
        }
        Ok(())
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: DEFAULT_NAME.to_owned(),
            epochs: None,
            max_steps: None,
            validate_every: Interval::Epochs(1),
            read_delay: 1,
            stop_on_non_finite: true,
            step: StepOptions::default(),
            monitor: Monitor::default(),
            folders: Vec::new(),
            interrupter: Interrupter::default(),
            overfit_batches: None,
            max_valid_batches: None,
            hyper_parameters: BTreeMap::new(),
            silent: false,
            seed: None,
            drop_last: false,
            checkpointing: None,
        }
    }
}

impl Options {
    /// The number of epochs, unless steps bound training.
    fn epochs(&self) -> Option<u64> {
        self.epochs.or(if self.max_steps.is_none() { Some(1) } else { None })
    }
}

impl<T: fmt::Debug> fmt::Debug for Learner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Learner")
            .field("task", &self.task)
            .field("options", &self.options)
            .field("train_metrics", &self.train_metrics)
            .field("valid_metrics", &self.valid_metrics)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
