//! The training loop.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::time::Instant;

use kiln_data::DataLoader;
use kiln_nn::{AutodiffModule, GradientsParams, Module};
use kiln_optim::{Optimizer, StepOutcome};
use kiln_tensor::{Backend, Tensor};

use crate::error::{Result, TrainError, TrainPosition};
use crate::folders::Folders;
use crate::history::{EpochReport, History, Scores, StepReport, StopReason};
use crate::meter::Meter;
use crate::metric::Metric;
use crate::output::{TrainStep, ValidStep};
use crate::progress::Progress;
use crate::trainer::{Options, Position, Trainer};

impl<M: Module, O: Optimizer> Trainer<M, O> {
    /// Trains until all epochs are done, or until early stopping, an interruption or an error.
    ///
    /// Epoch `n` uses epoch `n` of the loader. A shuffling loader thus has a different order in each epoch, and the
    /// same order after resuming. After each epoch the [inference copy](AutodiffModule::valid) of the model is
    /// validated on epoch 0 of the other loader, with the optimizer's
    /// [parameters for evaluation](Optimizer::enter_eval).
    ///
    /// A second call continues where training stopped. The history contains this call only.
    ///
    /// # Errors
    /// Unless stated otherwise, the error contains epoch, step and batch, and the trainer keeps the model.
    ///
    /// * An option is invalid (without position).
    /// * A checkpoint cannot be written (without position). A folder that cannot be written is found before training
    ///   starts.
    /// * A batch cannot be loaded.
    /// * The loss is NaN or infinite.
    /// * The optimizer refuses a step, or the device fails.
    /// * The model panics, as typed tensors do on shape mismatches.
    ///
    /// A model without [`ValidStep`] trains with [`fit_without_validation`](Trainer::fit_without_validation):
    ///
    /// ```compile_fail,E0277
    /// # use kiln_backends::Flex;
    /// # use kiln_data::DataLoader;
    /// # use kiln_nn::{Linear, Module};
    /// # use kiln_optim::Adam;
    /// # use kiln_tensor::{Autodiff, Tensor};
    /// # use kiln_train::{StepOutput, TrainStep, Trainer};
    /// #[derive(Debug, Module)]
    /// struct Net<B: kiln_tensor::Backend>(Linear<B>);
    ///
    /// impl TrainStep<Tensor<Autodiff<Flex>, 2>> for Net<Autodiff<Flex>> {
    ///     type Backend = Autodiff<Flex>;
    ///     fn step(&self, batch: Tensor<Autodiff<Flex>, 2>) -> StepOutput<Autodiff<Flex>> {
    ///         StepOutput::new(self.0.forward(batch).mean(), 1)
    ///     }
    /// }
    ///
    /// fn train(
    ///     trainer: &mut Trainer<Net<Autodiff<Flex>>, Adam>,
    ///     train: &DataLoader<Tensor<Autodiff<Flex>, 2>>,
    ///     valid: &DataLoader<Tensor<Flex, 2>>,
    /// ) {
    ///     trainer.fit(train, valid).unwrap();
    /// }
    /// ```
    #[track_caller]
    pub fn fit<T, V>(&mut self, train: &DataLoader<T>, valid: &DataLoader<V>) -> Result<History>
    where
        T: Send + 'static,
        V: Send + 'static,
        M: TrainStep<T> + AutodiffModule<<M as TrainStep<T>>::Backend>,
        <M as AutodiffModule<<M as TrainStep<T>>::Backend>>::InnerModule: ValidStep<V>,
    {
        self.run(train, Location::caller(), |trainer, epoch| trainer.validate(valid, epoch).map(Some))
    }

    /// Trains like [`fit`](Trainer::fit), without validation. Early stopping and the best epoch use the training
    /// metrics.
    ///
    /// # Errors
    /// See [`fit`](Trainer::fit).
    #[track_caller]
    pub fn fit_without_validation<T>(&mut self, train: &DataLoader<T>) -> Result<History>
    where
        T: Send + 'static,
        M: TrainStep<T>,
    {
        self.run(train, Location::caller(), |_, _| Ok(None))
    }

    fn run<T>(
        &mut self,
        train: &DataLoader<T>,
        caller: Caller,
        mut validate: impl FnMut(&mut Self, u64) -> Result<Option<Scores>>,
    ) -> Result<History>
    where
        T: Send + 'static,
        M: TrainStep<T>,
    {
        self.check()?;
        self.folders = self.open_folders()?;
        let history = self.run_epochs(train, caller, &mut validate);
        self.folders = Folders::default();
        history
    }

    fn run_epochs<T>(
        &mut self,
        train: &DataLoader<T>,
        caller: Caller,
        validate: &mut impl FnMut(&mut Self, u64) -> Result<Option<Scores>>,
    ) -> Result<History>
    where
        T: Send + 'static,
        M: TrainStep<T>,
    {
        let mut history = History::default();
        while self.position.epoch < self.options.epochs {
            if self.has_waited_enough() {
                history.stopped = StopReason::EarlyStopping;
                break;
            }
            let started = Instant::now();
            let Some(scores) = self.train_epoch(train, caller, &mut history.losses)? else {
                history.stopped = StopReason::Interrupted;
                self.save_last()?;
                break;
            };
            let epoch = self.position.epoch;
            let valid = validate(self, epoch)?;
            let step = self.position.step;
            let report = EpochReport { epoch, step, train: scores, valid, duration: started.elapsed() };
            self.end_epoch(&report)?;
            history.epochs.push(report);
        }
        history.best_epoch = self.position.best.epoch;
        Ok(history)
    }

    fn has_waited_enough(&self) -> bool {
        let patience = self.options.early_stopping.map(|stopping| stopping.patience);
        patience.is_some_and(|patience| self.position.best.waited >= patience)
    }

    /// Trains on the remaining batches of the current epoch. Returns `None` if it was interrupted.
    fn train_epoch<T>(
        &mut self,
        loader: &DataLoader<T>,
        caller: Caller,
        losses: &mut Vec<f64>,
    ) -> Result<Option<Scores>>
    where
        T: Send + 'static,
        M: TrainStep<T>,
    {
        let mut metrics = std::mem::take(&mut self.metrics);
        let result = self.train_batches(loader, caller, &mut metrics, losses);
        self.metrics = metrics;
        result
    }

    fn train_batches<T>(
        &mut self,
        loader: &DataLoader<T>,
        caller: Caller,
        metrics: &mut [Box<dyn Metric>],
        losses: &mut Vec<f64>,
    ) -> Result<Option<Scores>>
    where
        T: Send + 'static,
        M: TrainStep<T>,
    {
        let epoch = self.position.epoch;
        let batches = loader.iter_epoch(epoch).skip_batches(self.position.batch);
        let done = batches.progress();
        let mut meter = Meter::new(metrics, self.options.stop_on_non_finite);
        let title = format!("epoch {}/{}", epoch + 1, self.options.epochs);
        let mut progress =
            Progress::start(self.options.progress, title, done.items_processed, done.items_total);
        for batch in batches {
            if self.options.interrupter.is_stopped() {
                meter.read(|loss| losses.push(loss))?;
                self.finish_steps()?;
                return Ok(None);
            }
            let place = self.place();
            let batch = batch.map_err(|source| TrainError::Data { place, source })?;
            let num_items = self.train_step(batch, caller, &mut meter, losses)?;
            progress.add(num_items);
            if meter.num_pending() == 0 && progress.is_due() {
                let scores = meter.scores(place)?;
                progress.show(&meter.describe(&scores));
            }
        }
        meter.read(|loss| losses.push(loss))?;
        self.finish_steps()?;
        let scores = meter.scores(self.place())?;
        progress.finish(&meter.describe(&scores));
        Ok(Some(scores))
    }

    /// One step: forward, backward, update. Returns the number of items.
    fn train_step<T>(
        &mut self,
        batch: T,
        caller: Caller,
        meter: &mut Meter<'_>,
        losses: &mut Vec<f64>,
    ) -> Result<usize>
    where
        M: TrainStep<T>,
    {
        let place = self.place();
        let (loss, observation) = guarded(place, || TrainStep::step(&self.model, batch))?.into_parts();
        let num_items = observation.num_items;
        meter.add(observation, place)?;
        let is_read = meter.num_pending() >= self.options.read_interval;
        if is_read {
            // Before the update: NaN must not reach the parameters.
            meter.read(|loss| losses.push(loss))?;
        }
        let loss = match &self.options.scaler {
            Some(scaler) => scaler.scale_loss(loss),
            None => scaled(loss, self.optimizer.loss_scale()),
        };
        let gradients = loss.try_backward().map_err(|source| TrainError::Tensor { place, source })?;
        // Without the tape the parameters have no other owner, and are updated in place.
        drop(loss);
        let gradients = GradientsParams::from_grads(gradients, &self.model);
        let learning_rate = self.learning_rate.at(place.step);
        let update = match &mut self.options.scaler {
            Some(scaler) => {
                scaler.step_from(&mut self.optimizer, learning_rate, &mut self.model, gradients, caller)
            }
            None => {
                let update = self.optimizer.update_from(learning_rate, &mut self.model, gradients, caller);
                update.map(|report| report.outcome != StepOutcome::SkippedNonFinite)
            }
        };
        let is_changed = update.map_err(|source| TrainError::Optimizer { place, source })?;
        let report = StepReport {
            epoch: place.epoch,
            step: place.step,
            batch: self.position.batch,
            num_items,
            learning_rate,
            loss: if is_read { meter.recent() } else { None },
            skipped: !is_changed,
        };
        self.position.step += 1;
        self.position.batch += 1;
        self.on_step.iter_mut().for_each(|callback| callback(&report));
        Ok(num_items)
    }

    fn validate<T, V>(&mut self, loader: &DataLoader<V>, epoch: u64) -> Result<Scores>
    where
        V: Send + 'static,
        M: TrainStep<T> + AutodiffModule<<M as TrainStep<T>>::Backend>,
        <M as AutodiffModule<<M as TrainStep<T>>::Backend>>::InnerModule: ValidStep<V>,
    {
        let mut model = self.model.valid();
        let place = TrainPosition { validation: true, ..self.place() };
        self.optimizer.enter_eval(&mut model).map_err(|source| TrainError::Optimizer { place, source })?;
        let title = format!("valid {}/{}", epoch + 1, self.options.epochs);
        evaluate_with(&model, loader, &mut self.metrics, &self.options, epoch, title)
    }

    /// Updates the schedule and the best value, writes checkpoints and calls the callbacks.
    fn end_epoch(&mut self, report: &EpochReport) -> Result<()> {
        self.position.epoch += 1;
        self.position.batch = 0;
        self.learning_rate.observe(self.position.step, report.valid.as_ref().unwrap_or(&report.train).loss);
        // `check` ensures that the value exists.
        let value = self.options.monitor.value(report).unwrap_or(f64::NAN);
        let min_delta = self.options.early_stopping.map_or(0.0, |stopping| stopping.min_delta);
        let higher_is_better = self.higher_is_better();
        let is_best = self.position.best.update(report.epoch, value, higher_is_better, min_delta);
        if is_best {
            self.save_best()?;
        }
        self.save_last()?;
        let Trainer { on_epoch, model, .. } = self;
        on_epoch.iter_mut().for_each(|callback| callback(report, model));
        Ok(())
    }

    /// Waits until the outcome of all optimizer steps is known.
    fn finish_steps(&mut self) -> Result<()> {
        // The last step that was started.
        let place = self.place();
        let place = TrainPosition {
            step: place.step.saturating_sub(1),
            batch: place.batch.saturating_sub(1),
            ..place
        };
        self.optimizer.finish().map_err(|source| TrainError::Optimizer { place, source })
    }

    fn place(&self) -> TrainPosition {
        let Position { epoch, step, batch, .. } = self.position;
        TrainPosition { epoch, step, batch, validation: false }
    }
}

/// The source location of a call.
type Caller = &'static Location<'static>;

/// The loss times the loss scale of an optimizer.
fn scaled<B: Backend, const D: usize>(loss: Tensor<B, D>, scale: f64) -> Tensor<B, D> {
    if scale == 1.0 { loss } else { loss * scale }
}

/// Runs a step of the model and turns a panic into an error with its position.
fn guarded<R>(place: TrainPosition, step: impl FnOnce() -> R) -> Result<R> {
    // A step has a shared reference to the model, and running statistics are replaced as a whole.
    catch_unwind(AssertUnwindSafe(step)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let problem = text.or_else(|| payload.downcast_ref::<&str>().copied());
        TrainError::Panicked { place, problem: problem.unwrap_or("without a message").to_owned() }
    })
}

/// Evaluates a model on all batches of a loader's epoch 0. Returns the mean loss and the metrics.
///
/// # Errors
/// When a batch cannot be loaded, the model panics (as typed tensors do on shape mismatches), a metric lacks an input,
/// or the device failed. A NaN loss is not an error here.
pub fn evaluate<M, V>(model: &M, loader: &DataLoader<V>, metrics: &mut [Box<dyn Metric>]) -> Result<Scores>
where
    V: Send + 'static,
    M: ValidStep<V>,
{
    let options = Options { progress: false, stop_on_non_finite: false, ..Options::default() };
    evaluate_with(model, loader, metrics, &options, 0, String::new())
}

/// Batches between two reads of the validation loss: enough to avoid waiting for the device, and few enough to keep in
/// memory.
const VALIDATION_READ_INTERVAL: usize = 64;

fn evaluate_with<M, V>(
    model: &M,
    loader: &DataLoader<V>,
    metrics: &mut [Box<dyn Metric>],
    options: &Options,
    epoch: u64,
    title: String,
) -> Result<Scores>
where
    V: Send + 'static,
    M: ValidStep<V>,
{
    let mut place = TrainPosition { epoch, step: 0, batch: 0, validation: true };
    // Divergence in validation alone does not stop training. It is in the history and counts for early stopping.
    let mut meter = Meter::new(metrics, false);
    let mut progress = Progress::start(options.progress, title, 0, loader.num_items());
    for batch in loader.iter_epoch(0) {
        let batch = batch.map_err(|source| TrainError::Data { place, source })?;
        let (_, observation) = guarded(place, || ValidStep::step(model, batch))?.into_parts();
        progress.add(observation.num_items);
        meter.add(observation, place)?;
        if meter.num_pending() >= VALIDATION_READ_INTERVAL || progress.is_due() {
            meter.read(|_| {})?;
        }
        if progress.is_due() {
            let scores = meter.scores(place)?;
            progress.show(&meter.describe(&scores));
        }
        place.step += 1;
        place.batch += 1;
    }
    meter.read(|_| {})?;
    let scores = meter.scores(place)?;
    progress.finish(&meter.describe(&scores));
    Ok(scores)
}
