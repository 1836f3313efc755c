//! Numbers as a table of comma-separated values.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use kiln_store::atomic;

use super::Logger;
use super::points::{Point, points};
use super::resume::{exists, starts_again};
use crate::error::LoggerError;
use crate::record::Record;

const HEADER: &str = "step,epoch,split,name,value\n";

/// Maximum length in bytes of a table that is continued.
const MAX_BYTES: u64 = 1 << 30;

/// Writes the numbers of records as a table with the columns `step,epoch,split,name,value`, those of [`Point`].
///
/// Fields with commas, quotes or line breaks are quoted as in RFC 4180. NaN and infinities are `NaN`, `inf` and `-inf`,
/// which pandas and R read.
#[derive(Debug)]
pub struct CsvLogger {
    path: PathBuf,
    file: BufWriter<File>,
    /// Whether the table has rows of an earlier process.
    has_earlier: bool,
    /// Split and name of the kept rows of the step at which the run was resumed, and this step.
    resumed: (u64, HashSet<(String, String)>),
}

impl CsvLogger {
    /// Creates a table.
    ///
    /// # Errors
    /// When the file exists and is not empty, or cannot be created.
    pub fn create(path: impl AsRef<Path>) -> Result<CsvLogger, LoggerError> {
        let logger = CsvLogger::append(path)?;
        if logger.has_earlier {
            return Err(exists(&logger.path, "`CsvLogger::append` continues the table"));
        }
        Ok(logger)
    }

    /// Opens a table to continue it, or creates it. The next [`Record::Start`] removes the rows after its step, as
    /// [`resume_at`](CsvLogger::resume_at) does; a start at step 0 is an error if the table has rows.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn append(path: impl AsRef<Path>) -> Result<CsvLogger, LoggerError> {
        let path = path.as_ref().to_owned();
        let failed = LoggerError::io(&path);
        let mut file = OpenOptions::new().append(true).create(true).open(&path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length == 0 {
            file.write_all(HEADER.as_bytes()).map_err(failed)?;
        }
        let has_earlier = length > HEADER.len() as u64;
        Ok(CsvLogger { path, file: BufWriter::new(file), has_earlier, resumed: Default::default() })
    }

    /// Removes the rows of steps after `step`, and a last row without an end. Rows of this step that the run writes again
    /// are not added a second time, so the table of a resumed run equals that of an uninterrupted one.
    ///
    /// # Errors
    /// When the table cannot be read or written, is longer than 1 GiB, or has an invalid row; the error contains the line.
    pub fn resume_at(&mut self, step: u64) -> Result<(), LoggerError> {
        self.flush()?;
        let text = self.read()?;
        let mut kept = HEADER.to_owned();
        let mut same_step = HashSet::new();
        let table =
            text.strip_prefix(HEADER).ok_or_else(|| self.invalid(1, "is not the header".to_owned()))?;
        let mut line = 2;
        for row in rows(table) {
            let fields = parse(row).map_err(|problem| self.invalid(line, problem))?;
            if fields.step <= step {
                kept.push_str(row);
            }
            if fields.step == step {
                same_step.insert((fields.split, fields.name));
            }
            line += row.matches('\n').count() as u64;
        }
        let write = atomic::write_file(&self.path, |file| {
            file.write_all(kept.as_bytes()).map_err(|source| kiln_store::StoreError::Io {
                path: self.path.clone(),
                action: "write",
                source,
            })
        });
        write.map_err(|error| LoggerError::Other(error.to_string()))?;
        *self = CsvLogger::append(&self.path)?;
        self.has_earlier = false;
        self.resumed = (step, same_step);
        Ok(())
    }

    fn read(&self) -> Result<String, LoggerError> {
        let length = fs::metadata(&self.path).map_err(LoggerError::io(&self.path))?.len();
        if length > MAX_BYTES {
            let path = self.path.display();
            return Err(LoggerError::Other(format!("{path}: {length} bytes, more than {MAX_BYTES}")));
        }
        fs::read_to_string(&self.path).map_err(LoggerError::io(&self.path))
    }

    fn write(&mut self, point: &Point) -> Result<(), LoggerError> {
        let (step, known) = &self.resumed;
        if point.step == *step && known.contains(&(point.split.clone(), point.name.clone())) {
            return Ok(());
        }
        let Point { step, epoch, split, name, value } = point;
        let (split, name) = (quoted(split), quoted(name));
        writeln!(self.file, "{step},{epoch},{split},{name},{value:?}").map_err(LoggerError::io(&self.path))
    }

    fn continue_at(&mut self, step: u64) -> Result<(), LoggerError> {
        if step > 0 {
            return self.resume_at(step);
        }
        Err(starts_again(&self.path, "rows"))
    }

    fn invalid(&self, line: u64, problem: String) -> LoggerError {
        LoggerError::Line { path: self.path.clone(), line, problem }
    }
}

impl Logger for CsvLogger {
    fn name(&self) -> &str {
        "csv"
    }

    fn record(&mut self, record: &Record) -> Result<(), LoggerError> {
        if let (true, Record::Start(start)) = (self.has_earlier, record) {
            self.continue_at(start.step)?;
        }
        points(record).iter().try_for_each(|point| self.write(point))
    }

    fn flush(&mut self) -> Result<(), LoggerError> {
        self.file.flush().map_err(LoggerError::io(&self.path))
    }
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field.to_owned()
}

/// Splits a table into rows with their ends. A line break between quotes does not end a row. A last row without an end
/// is left out.
fn rows(table: &str) -> impl Iterator<Item = &str> {
    let mut rest = table;
    std::iter::from_fn(move || {
        let mut in_quotes = false;
        let end = rest.bytes().position(|byte| {
            in_quotes ^= byte == b'"';
            byte == b'\n' && !in_quotes
        })?;
        let (row, after) = rest.split_at(end + 1);
        rest = after;
        Some(row)
    })
}

/// The fields of a row that resuming needs.
struct Fields {
    step: u64,
    split: String,
    name: String,
}

fn parse(row: &str) -> Result<Fields, String> {
    let mut fields = vec![String::new()];
    let mut in_quotes = false;
    let mut letters = row.trim_end_matches('\n').chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if in_quotes && letters.next_if_eq(&'"').is_some() => fields.last_mut().unwrap().push('"'),
            '"' => in_quotes = !in_quotes,
            ',' if !in_quotes => fields.push(String::new()),
            _ => fields.last_mut().unwrap().push(letter),
        }
    }
    let Ok([step, _, split, name, _]) = <[String; 5]>::try_from(fields) else {
        return Err("does not have 5 fields".to_owned());
    };
    let step = step.parse().map_err(|_| format!("has the step `{step}`, expected a number"))?;
    Ok(Fields { step, split, name })
}
