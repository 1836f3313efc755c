//! A logger that keeps records in memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Logger;
use super::points::{Point, points};
use crate::error::LoggerError;
use crate::record::Record;

/// Keeps all records in memory. Clones share the records, so one clone is given to training and another is read:
///
/// ```
/// use kiln_train::logger::{InMemoryLogger, Logger};
/// use kiln_train::{MetricValue, Record, Split, ValuesRecord};
///
/// let logger = InMemoryLogger::new();
/// let mut training = logger.clone();
/// training.record(&Record::Values(ValuesRecord {
///     split: Split::Train,
///     epoch: 0,
///     step: 100,
///     complete: true,
///     values: vec![("loss".to_owned(), MetricValue::Scalar(0.5))],
///     text: Default::default(),
/// }))?;
/// assert_eq!(logger.series("train", "loss"), [(100, 0.5)]);
/// # Ok::<(), kiln_train::LoggerError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct InMemoryLogger(Arc<Mutex<Vec<Record>>>);

impl InMemoryLogger {
    /// Returns a logger without records.
    pub fn new() -> InMemoryLogger {
        InMemoryLogger::default()
    }

    /// Returns a copy of all records, in order.
    pub fn records(&self) -> Vec<Record> {
        self.lock().clone()
    }

    /// Returns the numbers of all records, in order.
    pub fn points(&self) -> Vec<Point> {
        self.lock().iter().flat_map(points).collect()
    }

    /// Returns the steps and values of a series, in order. `split` and `name` are those of [`Point`]. Empty where no
    /// record has such a number.
    pub fn series(&self, split: &str, name: &str) -> Vec<(u64, f64)> {
        let records = self.lock();
        let all = records.iter().flat_map(points);
        let wanted = all.filter(|point| point.split == split && point.name == name);
        wanted.map(|point| (point.step, point.value)).collect()
    }

    /// Locks the records. A panic of another thread leaves them whole, because they are only appended to.
    fn lock(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Logger for InMemoryLogger {
    fn name(&self) -> &str {
        "memory"
    }

    fn record(&mut self, record: &Record) -> Result<(), LoggerError> {
        self.lock().push(record.clone());
        Ok(())
    }
}
