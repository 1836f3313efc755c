//! Checkpoints of a learner.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kiln_nn::Module;
use kiln_optim::lr_scheduler::ScheduleState;
use kiln_optim::{LearningRate, Optimizer};
use kiln_store::{BackgroundWriter, Checkpoint, CheckpointContents, CheckpointWriter, TrainingState, json};
use serde::de::DeserializeOwned;

use super::{Learner, Position};
use crate::callback::{Callback, SaveRequest};
use crate::error::{Result, TrainError};
use crate::loader::LoaderIdentity;
use crate::meter::Meter;
use crate::record::Record;
use crate::task::{StateTensors, StateValue, StateVisitor, Task};
use crate::trainable::MODEL;

/// The key of the position in a checkpoint.
const POSITION: &str = "learner.position";
/// The key of the training loader's properties.
const LOADER: &str = "learner.loader";
/// The key of the names of the training metrics.
const METRIC_NAMES: &str = "learner.metrics";
/// The name of the metrics' state.
const METRICS: &str = "metrics";
/// The file of the optimizer of the model with the default name.
const OPTIMIZER: &str = "optimizer";

impl<T: Task> Learner<T> {
    /// Locks the folders of checkpoints and starts the thread that writes them.
    pub(super) fn open_writer(&self) -> Result<Option<BackgroundWriter>> {
        if self.options.folders.is_empty() {
            return Ok(None);
        }
        let mut writer = BackgroundWriter::new()?;
        for folder in &self.options.folders {
            writer.add(CheckpointWriter::open(folder)?);
        }
        Ok(Some(writer))
    }

    /// Takes the contents of a checkpoint and hands them to the writer.
    pub(super) fn save(&mut self, request: &SaveRequest) -> Result<()> {
        self.read(0)?;
        self.finish_updates()?;
        self.flush_loggers()?;
        let contents = self.contents()?;
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => BackgroundWriter::new()?,
        };
        let SaveRequest { folder, series } = request;
        match series {
            Some(series) => writer.submit_to_series(series, folder, contents),
            None => writer.submit_latest(folder, contents),
        }
        self.writer.insert(writer).poll()?;
        let step = self.position.step;
        self.send(&Record::Checkpoint { step, folder: folder.display().to_string() })
    }

    /// Waits until all checkpoints are written.
    pub(super) fn finish_writing(&mut self) -> Result<()> {
        match self.writer.take() {
            Some(writer) => Ok(writer.finish()?),
            None => Ok(()),
        }
    }

    fn contents(&mut self) -> Result<CheckpointContents> {
        let place = self.place();
        let metrics = self.meter.state(place)?;
        let mut save = Save {
            contents: Some(CheckpointContents::new(TrainingState::default())),
            state: None,
            values: BTreeMap::new(),
            prefix: String::new(),
            replica: 0,
        };
        self.visit(|prefix, part| {
            save.prefix = prefix.to_owned();
            part.state(&mut save)
        })?;
        let Save { contents, state, values, .. } = save;
        let mut state = state.unwrap_or_default().at(self.position.epoch, self.position.step);
        for (key, value) in values {
            state = state.with_json(key, value);
        }
        state = state.with_value(POSITION, &self.position)?.with_value(LOADER, &self.identity)?;
        state = state.with_value(METRIC_NAMES, &self.meter.metric_names())?;
        let contents = contents.unwrap_or_else(|| CheckpointContents::new(TrainingState::default()));
        Ok(contents.with_state(state).with_tensors(METRICS, metrics)?)
    }

    /// Loads all state from a checkpoint.
    pub(super) fn load(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let state = checkpoint.state();
        let Some(position) = state.value::<Position>(POSITION)? else {
            return Err(TrainError::InvalidOption {
                option: "the checkpoint to resume",
                value: checkpoint.folder().display().to_string(),
                requirement: "one that a learner wrote",
            });
        };
        let mut load = Load { checkpoint, prefix: String::new() };
        self.visit(|prefix, part| {
            load.prefix = prefix.to_owned();
            part.state(&mut load)
        })?;
        let mut restore = RestoreRandom { checkpoint, prefix: String::new(), replica: 0 };
        self.visit(|prefix, part| {
            restore.prefix = prefix.to_owned();
            part.state(&mut restore)
        })?;
        self.check_metrics(
            &position,
            &state.value::<Vec<String>>(METRIC_NAMES)?.unwrap_or_default(),
            checkpoint,
        )?;
        self.meter = Meter::new(&self.train_metrics);
        self.meter.load_state(&checkpoint.tensors(METRICS)?)?;
        self.position = position;
        let identity = state.value::<LoaderIdentity>(LOADER)?.unwrap_or_default();
        self.resumed = Some((checkpoint.folder().to_owned(), identity));
        Ok(())
    }

    /// Refuses to continue within an epoch that began with other metrics.
    fn check_metrics(&self, position: &Position, saved: &[String], checkpoint: &Checkpoint) -> Result<()> {
        let present = crate::meter::names(&self.train_metrics);
        if position.batch == 0 || present == saved {
            return Ok(());
        }
        Err(TrainError::OtherRun {
            folder: checkpoint.folder().to_owned(),
            problem: format!("its epoch began with the metrics {saved:?}, this run has {present:?}"),
            hint: "set the metrics of the run before `resume`",
        })
    }

    /// Visits the task and the callbacks, each with the prefix of its names.
    fn visit(&mut self, mut visit: impl FnMut(&str, &mut dyn Part) -> Result<()>) -> Result<()> {
        visit("", &mut TaskPart(&mut self.task))?;
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for callback in &mut self.callbacks {
            let occurrences = seen.entry(callback.name().to_owned()).or_default();
            *occurrences += 1;
            let number = if *occurrences == 1 { String::new() } else { format!("{occurrences}_") };
            let prefix = format!("callback_{}_{number}", callback.name());
            visit(&prefix, &mut CallbackPart(&mut **callback, &mut self.task))?;
        }
        Ok(())
    }
}

/// A part of a run with state: the task or a callback.
trait Part {
    fn state(&mut self, visitor: &mut dyn StateVisitor) -> Result<()>;
}

struct TaskPart<'a, T>(&'a mut T);

impl<T: Task> Part for TaskPart<'_, T> {
    fn state(&mut self, visitor: &mut dyn StateVisitor) -> Result<()> {
        self.0.state(visitor)
    }
}

struct CallbackPart<'a, T>(&'a mut dyn Callback<T>, &'a mut T);

impl<T> Part for CallbackPart<'_, T> {
    fn state(&mut self, visitor: &mut dyn StateVisitor) -> Result<()> {
        self.0.state(self.1, visitor)
    }
}

/// The keys of the values of a checkpoint.
fn random_key(name: &str, replica: usize) -> String {
    if replica == 0 { format!("random.{name}") } else { format!("random.{name}.replica.{replica}") }
}

fn schedule_key(name: &str) -> String {
    format!("schedule.{name}")
}

fn value_key(name: &str) -> String {
    format!("value.{name}")
}

/// The name of an optimizer's file.
fn optimizer_name(name: &str) -> &str {
    if name == MODEL { OPTIMIZER } else { name }
}

/// Collects the state for a checkpoint.
struct Save {
    /// `None` only while a part is added.
    contents: Option<CheckpointContents>,
    /// The state of the first module.
    state: Option<TrainingState>,
    values: BTreeMap<String, serde_json::Value>,
    prefix: String,
    /// The replica that is visited. Of those after 0 only the random state is saved: all else is equal.
    replica: usize,
}

impl Save {
    fn named(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn add(
        &mut self,
        add: impl FnOnce(CheckpointContents) -> kiln_store::Result<CheckpointContents>,
    ) -> Result<()> {
        if let Some(contents) = self.contents.take() {
            self.contents = Some(add(contents)?);
        }
        Ok(())
    }

    fn set(&mut self, key: String, value: serde_json::Result<serde_json::Value>) -> Result<()> {
        let name = key.strip_prefix("value.").unwrap_or(&key);
        let failed =
            |error| TrainError::task(format!("a checkpoint cannot keep the value `{name}`: {error}"));
        let value = value.map_err(failed)?;
        if self.values.insert(key.clone(), value).is_some() {
            return Err(TrainError::task(format!("the state has two values `{key}`: names must be unique")));
        }
        Ok(())
    }
}

impl StateVisitor for Save {
    fn replica(&mut self, rank: usize) -> bool {
        self.replica = rank;
        true
    }

    fn module(&mut self, name: &str, module: &mut dyn Module) -> Result<()> {
        let name = self.named(name);
        let state = TrainingState::of(module);
        self.set(random_key(&name, self.replica), json::to_value(&state))?;
        if self.replica > 0 {
            return Ok(());
        }
        self.state.get_or_insert(state);
        self.add(|contents| contents.with_module(&name, module))
    }

    fn optimizer(&mut self, name: &str, optimizer: &mut dyn Optimizer, module: &dyn Module) -> Result<()> {
        if self.replica > 0 {
            return Ok(());
        }
        let name = self.named(name);
        self.add(|contents| contents.with_optimizer(optimizer_name(&name), optimizer, module))
    }

    fn schedule(&mut self, name: &str, schedule: &mut dyn LearningRate, _step: u64) -> Result<()> {
        let state = schedule.state();
        if self.replica > 0 || state.is_empty() {
            Ok(())
        } else {
            self.set(schedule_key(&self.named(name)), json::to_value(&state))
        }
    }

    fn value(&mut self, name: &str, value: &mut dyn StateValue) -> Result<()> {
        if self.replica > 0 {
            return Ok(());
        }
        self.set(value_key(&self.named(name)), value.save())
    }

    fn tensors(&mut self, name: &str, tensors: &mut dyn StateTensors) -> Result<()> {
        if self.replica > 0 {
            return Ok(());
        }
        let (name, tensors) = (self.named(name), tensors.save()?);
        self.add(|contents| contents.with_tensors(&name, tensors))
    }
}

/// Loads the state from a checkpoint.
struct Load<'a> {
    checkpoint: &'a Checkpoint,
    prefix: String,
}

impl Load<'_> {
    fn named(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn read<V: DeserializeOwned>(&self, key: &str) -> Result<Option<V>> {
        Ok(self.checkpoint.state().value(key)?)
    }

    fn missing(&self, problem: String) -> TrainError {
        let hint = "resume with the task and the callbacks of the run";
        TrainError::OtherRun { folder: PathBuf::from(self.checkpoint.folder()), problem, hint }
    }
}

impl StateVisitor for Load<'_> {
    fn replica(&mut self, _rank: usize) -> bool {
        true
    }

    fn module(&mut self, name: &str, module: &mut dyn Module) -> Result<()> {
        Ok(self.checkpoint.load_module_into(&self.named(name), module)?)
    }

    fn optimizer(&mut self, name: &str, optimizer: &mut dyn Optimizer, module: &dyn Module) -> Result<()> {
        let name = self.named(name);
        Ok(self.checkpoint.load_named_optimizer(optimizer_name(&name), optimizer, module)?)
    }

    fn schedule(&mut self, name: &str, schedule: &mut dyn LearningRate, _step: u64) -> Result<()> {
        // A schedule without state saved none: any schedule continues from its initial state.
        let Some(state) = self.read::<ScheduleState>(&schedule_key(&self.named(name)))? else {
            return Ok(());
        };
        schedule.load_state(&state).map_err(|error| TrainError::InvalidOption {
            option: "the learning-rate schedule",
            value: error.to_string(),
            requirement: "the schedule that the checkpoint was written with",
        })
    }

    fn value(&mut self, name: &str, value: &mut dyn StateValue) -> Result<()> {
        let key = value_key(&self.named(name));
        let Some(json) = self.checkpoint.state().json(&key) else {
            return Err(self.missing(format!("it has no value `{}`", self.named(name))));
        };
        value.load(json).map_err(|error| self.missing(format!("its value `{}`: {error}", self.named(name))))
    }

    fn tensors(&mut self, name: &str, tensors: &mut dyn StateTensors) -> Result<()> {
        tensors.load(self.checkpoint.tensors(&self.named(name))?)
    }
}

/// Restores the random state of the modules' devices.
struct RestoreRandom<'a> {
    checkpoint: &'a Checkpoint,
    prefix: String,
    replica: usize,
}

impl StateVisitor for RestoreRandom<'_> {
    fn replica(&mut self, rank: usize) -> bool {
        self.replica = rank;
        true
    }

    fn module(&mut self, name: &str, module: &mut dyn Module) -> Result<()> {
        let key = random_key(&format!("{}{name}", self.prefix), self.replica);
        if let Some(state) = self.checkpoint.state().value::<TrainingState>(&key)? {
            state.restore_random(module)?;
        }
        Ok(())
    }
}
