//! Early stopping.

use super::{Callback, Context, Event};
use crate::error::{Result, TrainError};
use crate::history::StopReason;
use crate::monitor::{Best, Monitor};
use crate::task::StateVisitor;

/// Early stopping: stops training when the monitored value has not improved for a number of evaluations.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlyStopping {
    /// `None` for that of the learner.
    monitor: Option<Monitor>,
    patience: u64,
    min_delta: f64,
    best: Best,
}

impl EarlyStopping {
    /// Returns early stopping with a patience: the number of consecutive evaluations without improvement, at
    /// least 1.
    pub fn new(patience: u64) -> EarlyStopping {
        EarlyStopping { monitor: None, patience, min_delta: 0.0, best: Best::default() }
    }

    /// Sets the monitored value. Default: the [monitor](crate::Learner::monitor) of the learner.
    #[must_use]
    pub fn monitor(mut self, monitor: Monitor) -> EarlyStopping {
        self.monitor = Some(monitor);
        self
    }

    /// Sets the minimum change that counts as an improvement: finite and at least 0. Default: 0.
    #[must_use]
    pub fn min_delta(mut self, min_delta: f64) -> EarlyStopping {
        self.min_delta = min_delta;
        self
    }

    fn check(&self) -> Result<()> {
        let refuse = |option, value: String, requirement| {
            Err(TrainError::InvalidOption { option, value, requirement })
        };
        if self.patience == 0 {
            return refuse("the patience of early stopping", "0".to_owned(), "at least 1");
        }
        if !(self.min_delta.is_finite() && self.min_delta >= 0.0) {
            return refuse("min_delta", self.min_delta.to_string(), "a finite number of at least 0");
        }
        Ok(())
    }
}

impl<T> Callback<T> for EarlyStopping {
    fn name(&self) -> &str {
        "early_stopping"
    }

    fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()> {
        let control = &mut *context.control;
        match event {
            Event::Started => {
                self.check()?;
                control.monitor(&self.monitor).check(control)?;
            }
            Event::Evaluated(report) => {
                self.best.observe(&self.monitor, control, report, self.min_delta);
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
            | Event::Ended(_) => return Ok(()),
        }
        if self.best.waited >= self.patience {
            control.stop(StopReason::EarlyStopping);
        }
        Ok(())
    }

    fn state(&mut self, _task: &mut T, visitor: &mut dyn StateVisitor) -> Result<()> {
        visitor.value("best", &mut self.best)
    }
}
