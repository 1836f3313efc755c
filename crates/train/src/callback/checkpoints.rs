//! Checkpoints of the best and the last state.

use std::path::{Path, PathBuf};

use kiln_store::CheckpointSeries;

use super::{Callback, Context, Event};
use crate::error::Result;
use crate::interval::Interval;
use crate::monitor::{Monitor, Monitored};
use crate::task::StateVisitor;

/// Writes a checkpoint to a folder after each evaluation whose monitored value is the best so far.
#[derive(Clone, Debug)]
pub struct KeepBest {
    folder: PathBuf,
    monitored: Monitored,
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
        KeepBest { folder: folder.into(), monitored: Monitored::default() }
    }

    kiln_ir::setters! {
        /// Sets the monitored value. Default: the [monitor](crate::Learner::monitor) of the learner.
        monitor(monitor: Monitor) => monitored.monitor = Some(monitor);
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

    kiln_ir::setters! {
        /// Sets the interval. Default: each epoch.
        every(interval: Interval) => interval = interval;

        /// Keeps the last `count` checkpoints: each in a folder `step-N` of its own inside the folder. Default: one, in the
        /// folder itself.
        keep(count: usize) => keep = Some(count);
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
        if self.monitored.on(event, context.control, 0.0)? {
            context.control.save(&self.folder);
        }
        Ok(())
    }

    /// Runs before the last checkpoint, which contains its state.
    fn order(&self) -> i32 {
        90
    }

    fn state(&mut self, _task: &mut T, visitor: &mut dyn StateVisitor) -> Result<()> {
        visitor.value("best", &mut self.monitored.best)
    }
}

impl<T> Callback<T> for KeepLast {
    fn name(&self) -> &str {
        "keep_last"
    }

    fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()> {
        let control = &mut *context.control;
        let steps = control.steps();
        if let Event::Started = event {
            self.taken = None;
            self.interval.check("the interval of checkpoints")?;
            let open = |keep| CheckpointSeries::open(&self.folder, keep);
            self.series = self.keep.map(open).transpose()?;
        }
        let is_due = if let Event::EpochEnded(report) = event {
            self.interval.is_due_after_epoch(report.epoch)
        } else if let Event::StepEnded = event {
            self.interval.is_due_after_step(steps)
        } else {
            matches!(event, Event::Ended(_)) && self.taken != Some(steps)
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
