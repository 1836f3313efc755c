//! The position in a log from which a resumed run continues.

use crate::record::Record;

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
        match record {
            Record::Checkpoint { step, .. } if *step == self.step => self.checkpoint = Some(end),
            Record::End { .. } => return true,
            Record::Checkpoint { .. }
            | Record::Start(_)
            | Record::Step(_)
            | Record::Progress(_)
            | Record::Values(_)
            | Record::Epoch { .. }
            | Record::Usage(_)
            | Record::Batches { .. }
            | Record::Message { .. } => {}
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
