//! Early stopping.

use super::{Callback, Context, Event};
use crate::error::{Result, TrainError};
use crate::history::StopReason;
use crate::monitor::{Monitor, Monitored};
use crate::task::StateVisitor;

/// Early stopping: stops training when the monitored value has not improved for a number of evaluations.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlyStopping {
    monitored: Monitored,
    patience: u64,
    min_delta: f64,
}

impl EarlyStopping {
    /// Returns early stopping with a patience: the number of consecutive evaluations without improvement, at
    /// least 1.
    pub fn new(patience: u64) -> EarlyStopping {
        EarlyStopping { monitored: Monitored::default(), patience, min_delta: 0.0 }
    }

    kiln_ir::setters! {
        /// Sets the monitored value. Default: the [monitor](crate::Learner::monitor) of the learner.
        monitor(monitor: Monitor) => monitored.monitor = Some(monitor);

        /// Sets the minimum change that counts as an improvement: finite and at least 0. Default: 0.
        min_delta(min_delta: f64) => min_delta = min_delta;
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
        if let Event::Started = event {
            self.check()?;
        }
        self.monitored.on(event, context.control, self.min_delta)?;
        if matches!(event, Event::Started | Event::Evaluated(_))
            && self.monitored.best.waited >= self.patience
        {
            context.control.stop(StopReason::EarlyStopping);
        }
        Ok(())
    }

    fn state(&mut self, _task: &mut T, visitor: &mut dyn StateVisitor) -> Result<()> {
        visitor.value("best", &mut self.monitored.best)
    }
}
