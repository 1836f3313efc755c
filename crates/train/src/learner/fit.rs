//! The training loop.

use std::any::Any;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::time::{Duration, Instant};

use kiln_ir::anomaly;
use kiln_tensor::with_checkpointing;

use super::training_set::TrainingSet;
use super::{Learner, Options, Position};
use crate::callback::{Context, Event};
use crate::error::{Result, TrainError, TrainPosition};
use crate::history::{EpochReport, History, StopReason};
use crate::loader::{Loader, LoaderIdentity};
use crate::meter::Meter;
use crate::record::{Record, Split};
use crate::step::{GradientsEvent, Outcome, Step, Watch};
use crate::task::Task;
use crate::usage::{Activity, Stopwatch};

/// The source location of a call.
pub(super) type Caller = &'static Location<'static>;

/// Named validation sets.
pub(super) type ValidationSets<'a, V> = [(&'a str, &'a dyn Loader<V>)];

/// The end of a pass over the training loader.
enum Pass {
    /// All batches of the epoch are done.
    Complete,
    /// Training stops.
    Stopped(StopReason),
}

impl<T: Task> Learner<T> {
    /// Trains until all epochs or steps are done, or until a callback, an interruption or an error stops it. The
    /// validation set is named `valid`.
    ///
    /// Epoch `n` uses epoch `n` of the loader. A shuffling loader thus has a different order in each epoch, and the
    /// same order after resuming. Validation uses epoch 0 of the other loader.
    ///
    /// A second call continues where training stopped. The history contains this call only.
    ///
    /// # Errors
    /// Unless stated otherwise, the error contains epoch, step and batch, and the learner keeps the task.
    ///
    /// * An option is invalid (without position).
    /// * A checkpoint cannot be written (without position). A folder that cannot be written is found before training
    ///   starts.
    /// * A batch cannot be loaded.
    /// * The loss is NaN or infinite.
    /// * The task, a callback or a logger fails, an optimizer refuses a step, or the device fails.
    /// * The task panics, as typed tensors do on shape mismatches.
    ///
    /// # Order of errors
    /// An error has the position of its own batch. Where a batch is in error, such as through a label out of range, its step
    /// changes neither parameters nor the optimizer's state, and the next call continues with the batch after it. An engine
    /// that computes asynchronously may find the error one or two steps later. The steps between are done and count: training
    /// ends after the step that finds the error, at the end of an epoch, before a checkpoint, or at the end, and no other
    /// batch is lost. Each error is reported once, that of a second bad batch by the next call.
    ///
    /// With [accumulated gradients](kiln_optim::PerParameter::with_accumulation), an error that the optimizer finds refuses
    /// the step with all its batches. One that the backward pass returns, on engines that compute in each call, comes before
    /// the gradients are accumulated, and leaves out its batch alone.
    ///
    /// After other errors the next call begins with the same batch.
    #[track_caller]
    pub fn fit(
        &mut self,
        train: &dyn Loader<T::Batch>,
        valid: &dyn Loader<T::ValidBatch>,
    ) -> Result<History> {
        self.run(&mut TrainingSet::Fixed(train), &[("valid", valid)], Location::caller())
    }

    /// Trains like [`fit`](Learner::fit), with several named validation sets. Monitors without the name of a set use the
    /// first.
    ///
    /// # Errors
    /// See [`fit`](Learner::fit).
    #[track_caller]
    pub fn fit_with(
        &mut self,
        train: &dyn Loader<T::Batch>,
        valid: &[(&str, &dyn Loader<T::ValidBatch>)],
    ) -> Result<History> {
        self.run(&mut TrainingSet::Fixed(train), valid, Location::caller())
    }

    /// Trains like [`fit`](Learner::fit), without validation. Monitors use the training metrics.
    ///
    /// # Errors
    /// See [`fit`](Learner::fit).
    #[track_caller]
    pub fn fit_without_validation(&mut self, train: &dyn Loader<T::Batch>) -> Result<History> {
        self.run(&mut TrainingSet::Fixed(train), &[], Location::caller())
    }

    pub(super) fn run(
        &mut self,
        train: &mut TrainingSet<'_, T::Batch>,
        valid: &ValidationSets<'_, T::ValidBatch>,
        caller: Caller,
    ) -> Result<History> {
        self.stopwatch = Stopwatch::new();
        self.check()?;
        self.check_identity(train.loader().identity())?;
        self.writer = self.open_writer()?;
        self.callbacks.sort_by_key(|callback| callback.order());
        self.prepare_metrics(valid)?;
        self.open_renderer();
        let started = Instant::now();
        let result = self.run_epochs(train, valid, caller).and_then(|()| self.finish_writing());
        self.writer = None;
        self.meter.settle();
        let reason = if result.is_ok() { self.history.stopped } else { StopReason::Failed };
        self.history.usage = self.usage();
        let closed = self.close_outputs(reason, started.elapsed(), result.as_ref().err());
        let history = std::mem::take(&mut self.history);
        result.and(closed).map(|()| history)
    }

    /// Makes the meter of training, unless training continues within an epoch, and tells callbacks the known numbers.
    ///
    /// # Errors
    /// When training continues within an epoch that it began with other metrics.
    fn prepare_metrics(&mut self, valid: &ValidationSets<'_, T::ValidBatch>) -> Result<()> {
        let names = crate::meter::names(&self.train_metrics);
        if self.position.batch == 0 {
            self.meter = Meter::new(&self.train_metrics);
        } else if names != self.meter.metric_names() {
            return Err(TrainError::InvalidOption {
                option: "the metrics of training",
                value: format!("{names:?} in the middle of an epoch"),
                requirement: "those with which the epoch began; set all options before `resume`",
            });
        }
        let monitored = if valid.is_empty() { &self.train_metrics } else { &self.valid_metrics };
        let known = monitored.iter().map(|metric| (metric.name().to_owned(), metric.higher_is_better()));
        self.control.higher_is_better = known.collect();
        self.control.monitor = self.options.monitor.clone();
        self.control.stop = None;
        self.history = History::default();
        Ok(())
    }

    fn run_epochs(
        &mut self,
        train: &mut TrainingSet<'_, T::Batch>,
        valid: &ValidationSets<'_, T::ValidBatch>,
        caller: Caller,
    ) -> Result<()> {
        self.locate();
        self.seed_devices()?;
        self.start_outputs(train.loader().num_batches())?;
        self.emit(Event::Started)?;
        loop {
            if let Some(reason) = self.end() {
                self.history.stopped = reason;
                break;
            }
            let started = Instant::now();
            self.emit(Event::EpochStarted)?;
            match self.train_epoch_within_memory(train, valid, caller)? {
                Pass::Complete => self.end_epoch(valid, started)?,
                Pass::Stopped(reason) => {
                    self.read(0)?;
                    self.history.stopped = reason;
                    break;
                }
            }
        }
        self.finish_updates()?;
        self.locate();
        let mut history = std::mem::take(&mut self.history);
        history.best_epoch = self.position.best.epoch;
        let ended = self.emit(Event::Ended(&history));
        self.history = history;
        ended?;
        self.emit(Event::Closing)
    }

    /// The reason to end before the next epoch, if any.
    fn end(&mut self) -> Option<StopReason> {
        let Options { max_steps, .. } = &self.options;
        let is_done = self.options.epochs().is_some_and(|epochs| self.position.epoch >= epochs)
            || max_steps.is_some_and(|steps| self.position.step >= steps);
        if is_done { Some(StopReason::Finished) } else { self.control.stop }
    }

    /// Trains on the remaining batches of the current epoch, in smaller batches once memory runs out.
    fn train_epoch_within_memory(
        &mut self,
        train: &mut TrainingSet<'_, T::Batch>,
        valid: &ValidationSets<'_, T::ValidBatch>,
        caller: Caller,
    ) -> Result<Pass> {
        loop {
            match self.train_epoch(train.loader(), valid, caller) {
                Err(error) if train.can_halve() && error.is_step_out_of_memory() => self.halve(train)?,
                result => return result,
            }
        }
    }

    /// Trains on the remaining batches of the current epoch.
    fn train_epoch(
        &mut self,
        loader: &dyn Loader<T::Batch>,
        valid: &ValidationSets<'_, T::ValidBatch>,
        caller: Caller,
    ) -> Result<Pass> {
        let Position { epoch, batch: skip, .. } = self.position;
        let (source, limit) = match self.options.overfit_batches {
            Some(batches) => (0, batches),
            None => (epoch, u64::MAX),
        };
        let mut batches = loader.batches(source, skip);
        while self.position.batch < limit {
            // Before the next batch is taken: the loader may take long.
            if let Some(reason) = self.stop_reason() {
                return Ok(Pass::Stopped(reason));
            }
            let before = self.stopwatch.enter(Activity::Loading);
            let batch = batches.next();
            self.stopwatch.go_on(before);
            let Some(batch) = batch else { break };
            let place = self.place();
            let batch = batch.map_err(|source| TrainError::Data { place, source })?;
            self.train_step(batch, caller)?;
            if self.options.validate_every.is_due_after_step(self.position.step) && !valid.is_empty() {
                self.evaluate_within_epoch(valid)?;
            }
        }
        if self.position.batch == 0 {
            return Err(TrainError::InvalidOption {
                option: "the training loader",
                value: format!("without batches in epoch {}", epoch + 1),
                requirement: "a loader with at least one batch",
            });
        }
        Ok(Pass::Complete)
    }

    /// The reason to stop before the next step, if any.
    fn stop_reason(&mut self) -> Option<StopReason> {
        let is_asked = self.renderer.as_mut().is_some_and(|renderer| renderer.is_stop_requested());
        if is_asked || self.options.interrupter.is_stopped() {
            return Some(StopReason::Interrupted);
        }
        if self.options.max_steps.is_some_and(|steps| self.position.step >= steps) {
            return Some(StopReason::Finished);
        }
        self.control.stop
    }

    fn train_step(&mut self, batch: T::Batch, caller: Caller) -> Result<()> {
        let place = self.locate();
        self.emit(Event::StepStarted)?;
        let before = self.stopwatch.enter(Activity::Steps);
        let Learner { task, callbacks, options, .. } = self;
        let mut watch = |event: &mut GradientsEvent<'_>| {
            callbacks.iter_mut().try_for_each(|callback| callback.gradients(event))
        };
        let mut outcome = Outcome::default();
        let result = run_step(task, options, batch, place, caller, &mut watch, &mut outcome);
        self.stopwatch.go_on(before);
        if result.as_ref().map_or_else(TrainError::is_of_batch, |()| true) {
            self.position.step += 1;
            self.position.batch += 1;
            self.control.steps = self.position.step;
        }
        self.refusals.add_steps(&outcome.reports, place);
        self.refusals.add(std::mem::take(&mut outcome.refusals), place);
        if let Err(error) = result
            && let Some(error) = self.refusals.in_order(error)
        {
            return Err(error);
        }
        for (name, report) in &outcome.reports {
            if let Some(warning) = &report.warning {
                self.control.warn(format!("{name}: {warning}"));
            }
        }
        self.meter.add(outcome, place)?;
        self.emit(Event::StepEnded)?;
        self.refusals.report()?;
        self.read(self.options.read_delay)?;
        self.show_scores()
    }

    /// Reads the values of steps from the device until at most `remaining` are pending.
    pub(super) fn read(&mut self, remaining: usize) -> Result<()> {
        let mut records = Vec::new();
        let before = self.stopwatch.enter(Activity::Reading);
        let read = self.meter.read(remaining, self.options.stop_on_non_finite, |record| records.push(record));
        self.stopwatch.go_on(before);
        for record in records {
            self.history.add(&record);
            self.emit(Event::StepMeasured(&record))?;
            self.send(&Record::Step(record))?;
        }
        // The optimizer knows more about a step in error. Of accumulated gradients it may learn later.
        if let Err(TrainError::Tensor { place, .. }) = read {
            self.finish_updates()?;
            self.refusals.note_reported(place);
        }
        read
    }

    /// Validates within an epoch.
    fn evaluate_within_epoch(&mut self, valid: &ValidationSets<'_, T::ValidBatch>) -> Result<()> {
        self.read(0)?;
        let started = Instant::now();
        let place = self.place();
        let train = self.meter.scores(place)?;
        let valid = self.validate(valid)?;
        let (epoch, step) = (self.position.epoch, self.position.step);
        let report = EpochReport { epoch, step, train, valid, duration: started.elapsed() };
        self.observe_evaluation(&report)?;
        self.emit(Event::Evaluated(&report))
    }

    /// Computes the scores of an epoch, validates, updates the schedules and calls the callbacks.
    fn end_epoch(&mut self, valid: &ValidationSets<'_, T::ValidBatch>, started: Instant) -> Result<()> {
        self.read(0)?;
        self.finish_updates()?;
        let place = self.place();
        let train = self.meter.scores(place)?;
        self.send_values(Split::Train, &train, true)?;
        self.meter.reset();
        let epoch = self.position.epoch;
        let is_validated = self.options.validate_every.is_due_after_epoch(epoch) && !valid.is_empty();
        let scores = if is_validated { self.validate(valid)? } else { Vec::new() };
        let step = self.position.step;
        let report = EpochReport { epoch, step, train, valid: scores, duration: started.elapsed() };
        self.position.epoch += 1;
        self.position.batch = 0;
        self.locate();
        if is_validated || valid.is_empty() {
            self.observe_evaluation(&report)?;
            self.emit(Event::Evaluated(&report))?;
        }
        self.send(&Record::Epoch { epoch, step, duration: report.duration })?;
        self.emit(Event::EpochEnded(&report))?;
        self.history.epochs.push(report);
        self.flush_loggers()
    }

    /// Calls the callbacks, then sends their records and takes the checkpoints that they requested.
    pub(super) fn emit(&mut self, event: Event<'_>) -> Result<()> {
        let before = self.stopwatch.enter(Activity::Callbacks);
        let Learner { task, control, callbacks, .. } = self;
        let place = control.place;
        let result = callbacks
            .iter_mut()
            .try_for_each(|callback| callback.on(event, &mut Context { task, control }))
            .map_err(|error| error.at(place));
        self.stopwatch.go_on(before);
        result?;
        self.send_records()?;
        for request in std::mem::take(&mut self.control.checkpoints) {
            let before = self.stopwatch.enter(Activity::Checkpoints);
            let saved = self.save(&request);
            self.stopwatch.go_on(before);
            saved?;
            self.emit(Event::CheckpointTaken(&request.folder))?;
        }
        Ok(())
    }

    /// Sends the records of callbacks.
    pub(super) fn send_records(&mut self) -> Result<()> {
        std::mem::take(&mut self.control.records).iter().try_for_each(|record| self.send(record))
    }

    /// Sets the position that callbacks see.
    fn locate(&mut self) -> TrainPosition {
        let place = self.place();
        self.control.place = place;
        self.control.steps = self.position.step;
        place
    }

    pub(super) fn place(&self) -> TrainPosition {
        let Position { epoch, step, batch, .. } = self.position;
        TrainPosition { epoch, step, batch: usize::try_from(batch).unwrap_or(usize::MAX), validation: false }
    }

    /// Refuses to resume with another loader than that of the checkpoint.
    fn check_identity(&mut self, identity: LoaderIdentity) -> Result<()> {
        self.identity = identity;
        let Some((folder, saved)) = self.resumed.take() else { return Ok(()) };
        let differs = |name: &str, saved: Option<u64>, present: Option<u64>| {
            let shown =
                |number: Option<u64>| number.map_or("unknown".to_owned(), |number| number.to_string());
            let problem =
                format!("its training loader has {name} {}, this one {}", shown(saved), shown(present));
            if saved == present { None } else { Some(problem) }
        };
        let problem = differs("batch size", saved.batch_size, identity.batch_size)
            .or_else(|| differs("number of items", saved.items, identity.items));
        match problem {
            None => Ok(()),
            Some(problem) => Err(TrainError::OtherRun {
                folder,
                problem,
                hint: "resume with the data set and batch size of the run, or load only the model from the checkpoint",
            }),
        }
    }
}

/// Runs a training step of a task. After an error the outcome is that of the part that was done.
pub(super) fn run_step<T: Task>(
    task: &mut T,
    options: &Options,
    batch: T::Batch,
    place: TrainPosition,
    caller: Caller,
    watch: Watch<'_>,
    outcome: &mut Outcome,
) -> Result<()> {
    let mut step = Step::new(place, options.step, caller, outcome, watch);
    let run = || guarded(place, || task.train(batch, &mut step));
    let run = || match options.checkpointing {
        Some(mode) => with_checkpointing(mode, run),
        None => run(),
    };
    let result = if options.step.detects_anomalies { anomaly::detect(run) } else { run() };
    result?.map_err(|error| error.at(place))
}

/// Runs a step of a task and turns a panic into an error with its position.
pub(crate) fn guarded<R>(place: TrainPosition, step: impl FnOnce() -> R) -> Result<R> {
    // After a panic the learner does not call the task again unless the user does.
    catch_unwind(AssertUnwindSafe(step))
        .map_err(|payload| TrainError::Panicked { place, problem: panic_message(&*payload) })
}

/// The message of a panic.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("without a message").to_owned()
}

/// Minimum time between two displays of the scores so far, since they wait for the device.
pub(super) const SCORES_INTERVAL: Duration = Duration::from_secs(1);
