//! Callbacks of closures.

use std::fmt;

use super::{Callback, Context, Event};
use crate::error::Result;
use crate::history::EpochReport;
use crate::record::StepRecord;

/// Calls a closure with the record of each step, one step late, after its values were read from the device.
pub struct OnStep<F>(pub F);

/// Calls a closure with the report of each epoch and the task.
pub struct OnEpoch<F>(pub F);

impl<T, F: FnMut(&StepRecord) + Send> Callback<T> for OnStep<F> {
    fn name(&self) -> &str {
        "on_step"
    }

    fn on(&mut self, event: Event<'_>, _context: &mut Context<'_, T>) -> Result<()> {
        if let Event::StepMeasured(record) = event {
            (self.0)(record);
        }
        Ok(())
    }
}

impl<T, F: FnMut(&EpochReport, &mut T) + Send> Callback<T> for OnEpoch<F> {
    fn name(&self) -> &str {
        "on_epoch"
    }

    fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()> {
        if let Event::EpochEnded(report) = event {
            (self.0)(report, context.task);
        }
        Ok(())
    }
}

impl<F> fmt::Debug for OnStep<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnStep")
    }
}

impl<F> fmt::Debug for OnEpoch<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnEpoch")
    }
}
