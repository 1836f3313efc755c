//! Intervals of epochs or steps.

use crate::error::{Result, TrainError};

/// An interval of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// After each n-th epoch.
    Epochs(u64),
    /// After each n-th step.
    Steps(u64),
    /// Never.
    Never,
}

impl Interval {
    /// Whether it ends after epoch `epoch`, counted from 0.
    pub(crate) fn is_due_after_epoch(self, epoch: u64) -> bool {
        match self {
            Interval::Epochs(epochs) => (epoch + 1).is_multiple_of(epochs),
            Interval::Steps(_) | Interval::Never => false,
        }
    }

    /// Whether it ends after `steps` steps.
    pub(crate) fn is_due_after_step(self, steps: u64) -> bool {
        match self {
            Interval::Steps(interval) => steps.is_multiple_of(interval),
            Interval::Epochs(_) | Interval::Never => false,
        }
    }

    pub(crate) fn check(self, option: &'static str) -> Result<()> {
        match self {
            Interval::Epochs(0) | Interval::Steps(0) => {
                Err(TrainError::InvalidOption { option, value: "0".to_owned(), requirement: "at least 1" })
            }
            Interval::Epochs(_) | Interval::Steps(_) | Interval::Never => Ok(()),
        }
    }
}
