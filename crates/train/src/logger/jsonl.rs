//! Records as lines of JSON.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::Logger;
use super::resume::{ResumePoint, exists, starts_again};
use crate::error::LoggerError;
use crate::record::Record;

/// The buffer is written when it is longer, in bytes.
const BUFFER: usize = 1 << 16;

/// Maximum length of a line in bytes. A record with images of metrics is the longest.
const MAX_LINE: u64 = 64 << 20;

/// Maximum length in bytes of a file that [`read_run`] reads into memory.
const MAX_BYTES: u64 = 1 << 30;

/// Writes each record as one line of JSON.
///
/// NaN and infinities are the strings `"NaN"`, `"inf"` and `"-inf"`; [`read_run`] reads every number back exactly. Lines
/// are buffered until [`flush`](Logger::flush) or until there are 64 KiB of them.
///
/// A run that continues from a checkpoint appends to its log:
///
/// ```
/// use kiln_train::logger::{JsonlLogger, Logger, read_run};
/// use kiln_train::{Record, RunDescription, StepRecord};
///
/// let step = |step| Record::Step(StepRecord { step, ..Default::default() });
/// let start = |step| Record::Start(RunDescription { step, ..Default::default() });
/// # let folder = std::env::temp_dir().join(format!("kiln-jsonl-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let path = folder.join("records.jsonl");
/// let mut logger = JsonlLogger::create(&path)?;
/// for record in [start(0), step(0), step(1), step(2)] {
///     logger.record(&record)?;
/// }
/// drop(logger); // The process ends. The last checkpoint is of step 2.
///
/// let mut logger = JsonlLogger::append(&path)?;
/// for record in [start(2), step(2), step(3)] {
///     logger.record(&record)?;
/// }
/// logger.flush()?;
/// assert_eq!(read_run(&path)?, [start(0), step(0), step(1), start(2), step(2), step(3)]);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct JsonlLogger {
    path: PathBuf,
    file: File,
    /// Complete lines that are not yet in the file.
    buffer: Vec<u8>,
    /// Whether the file has records of an earlier process.
    has_earlier: bool,
}

impl JsonlLogger {
    /// Creates a log.
    ///
    /// # Errors
    /// When the file exists and is not empty, or cannot be created.
    pub fn create(path: impl AsRef<Path>) -> Result<JsonlLogger, LoggerError> {
        let logger = JsonlLogger::append(path)?;
        if logger.has_earlier {
            return Err(exists(&logger.path, "`JsonlLogger::append` continues the log"));
        }
        Ok(logger)
    }

    /// Opens a log to continue it, or creates it. A last line without an end, of a process that was killed, is removed.
    ///
    /// The next [`Record::Start`] removes the records after its step, as [`resume_at`](JsonlLogger::resume_at) does. A
    /// start at step 0 is an error if the log has steps, because it would remove all of them.
    ///
    /// # Errors
    /// When the file cannot be opened, or its last line is too long.
    pub fn append(path: impl AsRef<Path>) -> Result<JsonlLogger, LoggerError> {
        let path = path.as_ref().to_owned();
        let failed = LoggerError::io(&path);
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = options.map_err(failed)?;
        let length = complete_length(&mut file).map_err(failed)?;
        file.set_len(length).and_then(|()| file.seek(SeekFrom::Start(length))).map_err(failed)?;
        Ok(JsonlLogger { path, file, buffer: Vec::new(), has_earlier: length > 0 })
    }

    /// Removes the records that a run which continues after `step` optimizer steps writes again, so that the log of a
    /// resumed run equals that of an uninterrupted one, apart from [`Record::Start`] and measured durations.
    ///
    /// Kept are the records up to [`Record::Checkpoint`] of this step, or, without such a record, those before the first
    /// one that belongs to a later step. An [`End`](Record::End) at the end is removed as well. Step 0 removes all records.
    ///
    /// # Errors
    /// When the log cannot be read or written.
    pub fn resume_at(&mut self, step: u64) -> Result<(), LoggerError> {
        self.flush()?;
        let mut point = ResumePoint::new(step);
        let mut lines = RecordReader::open(&self.path)?;
        while let Some(record) = lines.next() {
            if !point.see(&record?, lines.offset) {
                break;
            }
        }
        let length = point.length();
        let cut = self.file.set_len(length).and_then(|()| self.file.seek(SeekFrom::Start(length)));
        cut.map_err(LoggerError::io(&self.path))?;
        self.has_earlier = false;
        Ok(())
    }

    /// Returns the path of the log.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the log has a step. A run that was interrupted before its first step has none, and starts again at step 0.
    fn has_steps(&self) -> Result<bool, LoggerError> {
        for record in RecordReader::open(&self.path)? {
            if let Record::Step(_) = record? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn continue_at(&mut self, step: u64) -> Result<(), LoggerError> {
        if step > 0 || !self.has_steps()? {
            return self.resume_at(step);
        }
        Err(starts_again(&self.path, "records"))
    }
}

impl Logger for JsonlLogger {
    fn name(&self) -> &str {
        "jsonl"
    }

    fn record(&mut self, record: &Record) -> Result<(), LoggerError> {
        if let (true, Record::Start(start)) = (self.has_earlier, record) {
            self.continue_at(start.step)?;
        }
        let length = self.buffer.len();
        if let Err(error) = serde_json::to_writer(&mut self.buffer, record) {
            self.buffer.truncate(length);
            return Err(LoggerError::Other(format!("a record cannot be written as JSON: {error}")));
        }
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), LoggerError> {
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(LoggerError::io(&self.path))
    }
}

impl Drop for JsonlLogger {
    /// Writes buffered records. An error is ignored; `flush` returns it.
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

/// Returns the length up to the end of the last complete line.
fn complete_length(file: &mut File) -> std::io::Result<u64> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut end = length;
    let mut block = [0; 4096];
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let part = &mut block[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(part)?;
        if let Some(index) = part.iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + index as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Reads the records of a log.
///
/// # Errors
/// When the file cannot be read, is longer than 1 GiB, or has an invalid line; the error contains the line. A last line
/// without an end is no error: the process is writing it, or was killed while it did.
pub fn read_run(path: impl AsRef<Path>) -> Result<Vec<Record>, LoggerError> {
    let reader = RecordReader::open(path)?;
    if reader.length > MAX_BYTES {
        let path = reader.path.display();
        return Err(LoggerError::Other(format!(
            "{path}: {} bytes, more than {MAX_BYTES}\n  hint: `RecordReader` reads one record after the other",
            reader.length
        )));
    }
    reader.collect()
}

/// Reads a log, one record after the other. Memory is bounded by the longest line, which has at most 64 MiB.
///
/// The iterator ends after the first error, and before a last line without an end.
#[derive(Debug)]
pub struct RecordReader {
    path: PathBuf,
    reader: BufReader<File>,
    /// The length of the file when it was opened.
    length: u64,
    buffer: Vec<u8>,
    line: u64,
    /// The end of the last record in bytes.
    offset: u64,
    ended: bool,
}

impl RecordReader {
    /// Opens a log.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<RecordReader, LoggerError> {
        let path = path.as_ref().to_owned();
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (length, file) = opened.map_err(LoggerError::io(&path))?;
        let reader = BufReader::with_capacity(BUFFER, file);
        Ok(RecordReader { path, reader, length, buffer: Vec::new(), line: 0, offset: 0, ended: false })
    }

    /// Reads a line with its end. `None` at the end of the file.
    fn read_line(&mut self) -> Result<Option<&[u8]>, LoggerError> {
        self.line += 1;
        self.buffer.clear();
        let read = (&mut self.reader).take(MAX_LINE + 1).read_until(b'\n', &mut self.buffer);
        let bytes = read.map_err(LoggerError::io(&self.path))? as u64;
        if bytes > MAX_LINE {
            return Err(self.invalid(format!("is longer than {MAX_LINE} bytes")));
        }
        self.offset += bytes;
        Ok(self.buffer.strip_suffix(b"\n"))
    }

    fn read_record(&mut self) -> Result<Option<Record>, LoggerError> {
        let Some(line) = self.read_line()? else { return Ok(None) };
        match serde_json::from_slice(line) {
            Ok(record) => Ok(Some(record)),
            Err(error) => Err(self.invalid(format!("is no record: {error}"))),
        }
    }

    fn invalid(&self, problem: String) -> LoggerError {
        LoggerError::Line { path: self.path.clone(), line: self.line, problem }
    }
}

impl Iterator for RecordReader {
    type Item = Result<Record, LoggerError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let record = self.read_record().transpose();
        self.ended = !matches!(record, Some(Ok(_)));
        record
    }
}
