//! Checkpoints of the best and the last state.

use std::path::{Path, PathBuf};

use kiln_store::CheckpointSeries;

use super::{Callback, Context, Event};
use crate::error::Result;
use crate::interval::Interval;
use crate::monitor::{Best, Monitor};
use crate::task::StateVisitor;

/// Writes a checkpoint to a folder after each evaluation whose monitored value is the best so far.
#[derive(Clone, Debug)]
pub struct KeepBest {
    folder: PathBuf,
    /// `None` for that of the learner.
    monitor: Option<Monitor>,
    best: Best,
}

/// Writes checkpoints at an interval, on interruption and at the end of training: to one folder, which is replaced, or
/// to a series of folders.
#[derive(Clone, Debug)]
pub struct KeepLast {
    folder: PathBuf,
    interval: Interval,
    /// The number of checkpoints to keep, in a series of folders.
    keep: Option<usize>,
    series: Option<CheckpointSeries>,
    /// The number of steps at the last checkpoint, so that the end of training does not repeat it.
    taken: Option<u64>,
}

impl KeepBest {
    /// Returns the callback for a folder.
    pub fn new(folder: impl Into<PathBuf>) -> KeepBest {
        KeepBest { folder: folder.into(), monitor: None, best: Best::default() }
    }

    /// Sets the monitored value. Default: the [monitor](crate::Learner::monitor) of the learner.
    #[must_use]
    pub fn monitor(mut self, monitor: Monitor) -> KeepBest {
        self.monitor = Some(monitor);
        self
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl KeepLast {
    /// Returns the callback for a folder. The interval is one epoch.
    pub fn new(folder: impl Into<PathBuf>) -> KeepLast {
        KeepLast {
            folder: folder.into(),
            interval: Interval::Epochs(1),
            keep: None,
            series: None,
            taken: None,
        }
    }

    /// Sets the interval. Default: each epoch.
    #[must_use]
    pub fn every(mut self, interval: Interval) -> KeepLast {
        self.interval = interval;
        self
    }

    /// Keeps the last `count` checkpoints: each in a folder `step-N` of its own inside the folder. Default: one, in the
    /// folder itself.
    #[must_use]
    pub fn keep(mut self, count: usize) -> KeepLast {
        self.keep = Some(count);
        self
    }

    /// The folder to lock before training starts. Folders of a series are locked for each save.
    pub(crate) fn locked_folder(&self) -> Option<&Path> {
        if self.keep.is_none() { Some(&self.folder) } else { None }
    }
}

impl<T> Callback<T> for KeepBest {
    fn name(&self) -> &str {
        "keep_best"
    }

    fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()> {
        let control = &mut *context.control;
        match event {
            Event::Started => control.monitor(&self.monitor).check(control)?,
            Event::Evaluated(report) => {
                if self.best.observe(&self.monitor, control, report, 0.0) {
                    control.save(&self.folder);
                }
            }
            Event::EpochStarted
            | Event::StepStarted
            | Event::StepEnded
            | Event::StepMeasured(_)
            | Event::ValidationStarted
            | Event::ValidationEnded
            | Event::Closing
            | Event::EpochEnded(_)
            | Event::CheckpointTaken(_)
            | Event::Ended(_) => {}
        }
        Ok(())
    }

    /// Runs before the last checkpoint, which contains its state.
    fn order(&self) -> i32 {
        90
    }

    fn state(&mut self, _task: &mut T, visitor: &mut dyn StateVisitor) -> Result<()> {
        visitor.value("best", &mut self.best)
    }
}

impl<T> Callback<T> for KeepLast {
    fn name(&self) -> &str {
        "keep_last"
    }

    fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()> {
        let control = &mut *context.control;
        let steps = control.steps();
        let is_due = match event {
            Event::Started => {
                self.taken = None;
                self.interval.check("the interval of checkpoints")?;
                let open = |keep| CheckpointSeries::open(&self.folder, keep);
                self.series = self.keep.map(open).transpose()?;
                false
            }
            Event::EpochEnded(report) => self.interval.is_due_after_epoch(report.epoch),
            Event::StepEnded => self.interval.is_due_after_step(steps),
            Event::Ended(_) => self.taken != Some(steps),
            Event::EpochStarted
            | Event::StepStarted
            | Event::StepMeasured(_)
            | Event::ValidationStarted
            | Event::ValidationEnded
            | Event::Closing
            | Event::Evaluated(_)
            | Event::CheckpointTaken(_) => false,
        };
        if is_due {
            self.taken = Some(steps);
            match &mut self.series {
                Some(series) => control.save_to_series(series),
                None => control.save(&self.folder),
            }
        }
        Ok(())
    }

    fn order(&self) -> i32 {
        100
    }
}
