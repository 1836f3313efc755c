//! Loggers: they write the records of a run.
//!
//! * [`InMemoryLogger`] keeps records, for tests and notebooks.
//! * [`JsonlLogger`] writes lines of JSON, [`read_run`] reads them, and a [`RunFolder`] is the folder of a run with this
//!   log and its checkpoints. `kiln runs` lists, compares and plots them.
//! * [`CsvLogger`] writes the numbers as a table.
//! * `TensorBoardLogger` writes event files (feature `tensorboard`).
//!
//! `png` encodes images of metrics (feature `png`).

mod csv;
mod jsonl;
mod memory;
#[cfg(feature = "png")]
mod png;
mod points;
mod resume;
mod run_folder;
#[cfg(feature = "tensorboard")]
mod tensorboard;

pub use csv::CsvLogger;
pub use jsonl::{JsonlLogger, RecordReader, read_run};
pub use memory::InMemoryLogger;
#[cfg(feature = "png")]
#[cfg_attr(docsrs, doc(cfg(feature = "png")))]
pub use png::{Image, png};
pub use points::{Point, STEP, points};
pub use run_folder::RunFolder;
#[cfg(feature = "tensorboard")]
#[cfg_attr(docsrs, doc(cfg(feature = "tensorboard")))]
pub use tensorboard::TensorBoardLogger;

use crate::error::LoggerError;
use crate::record::Record;

/// Writes the records of a run to a file or a service.
///
/// A logger that fails ends training, with an error that names it. A logger should buffer, and write at
/// [`flush`](Logger::flush).
pub trait Logger: Send {
    /// Returns the name, for errors.
    fn name(&self) -> &str;

    /// Writes a record.
    ///
    /// # Errors
    /// When the record cannot be written.
    fn record(&mut self, record: &Record) -> Result<(), LoggerError>;

    /// Writes buffered records. The learner calls it after each epoch, before each checkpoint and at the end.
    ///
    /// # Errors
    /// When a record cannot be written.
    fn flush(&mut self) -> Result<(), LoggerError> {
        Ok(())
    }
}
