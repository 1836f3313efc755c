//! The position in a log from which a resumed run continues.

use std::path::Path;

use crate::error::LoggerError;
use crate::record::Record;

/// Returns the error of a file that is created, but is not empty.
pub(super) fn exists(path: &Path, hint: &str) -> LoggerError {
    let path = path.display();
    LoggerError::Other(format!("{path}: exists and is not empty\n  hint: {hint} of a resumed run"))
}

/// Returns the error of training that would remove the entries of an earlier run.
pub(super) fn starts_again(path: &Path, entries: &str) -> LoggerError {
    LoggerError::Other(format!(
        "{}: has the {entries} of an earlier run, and training starts at step 0\n  \
         hint: resume from a checkpoint, use another file, or remove all {entries} with `resume_at(0)`",
        path.display()
    ))
}

/// Finds the end of the records that a run which continues after `step` optimizer steps does not write again.
#[derive(Debug)]
pub(super) struct ResumePoint {
    step: u64,
    /// The end of the last record that is kept.
    kept: u64,
    /// The end of the checkpoint of the step.
    checkpoint: Option<u64>,
}

impl ResumePoint {
    pub(super) fn new(step: u64) -> ResumePoint {
        ResumePoint { step, kept: 0, checkpoint: None }
    }

    /// Adds the next record, which ends at byte `end`. Returns whether later records may be kept.
    pub(super) fn see(&mut self, record: &Record, end: u64) -> bool {
        if self.is_later(record) {
            return false;
        }
        if let Record::End { .. } = record {
            return true;
        }
        if let Record::Checkpoint { step, .. } = record
            && *step == self.step
        {
            self.checkpoint = Some(end);
        }
        self.kept = end;
        true
    }

    /// Returns the length of the log in bytes.
    pub(super) fn length(&self) -> u64 {
        self.checkpoint.unwrap_or(self.kept)
    }

    /// Returns whether the resumed run writes the record again. Steps are counted from 0; other records have the number
    /// of steps that are done.
    fn is_later(&self, record: &Record) -> bool {
        match record {
            Record::Start(start) => start.step >= self.step,
            Record::Step(step) => step.step >= self.step,
            Record::Values(values) => values.step > self.step,
            Record::Epoch { step, .. }
            | Record::Batches { step, .. }
            | Record::Checkpoint { step, .. }
            | Record::End { step, .. } => *step > self.step,
            Record::Progress(_) | Record::Usage(_) | Record::Message { .. } => false,
        }
    }
}
