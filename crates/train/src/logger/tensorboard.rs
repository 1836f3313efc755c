//! Event files for TensorBoard.

mod event;
mod frame;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use event::Message;

use super::Logger;
use super::png::Image;
use super::points::{STEP, points};
use crate::error::LoggerError;
use crate::metric::MetricValue;
use crate::record::{Level, Record, RunDescription, ValuesRecord};

/// Writes an event file for TensorBoard.
///
/// Tags are `SPLIT/NAME`, such as `step/loss` (of each step), `train/accuracy` (of each epoch) or `valid/loss`. Steps are
/// those of [`Point`](super::Point). Numbers are scalars, histograms and images have their own dashboards, and texts and
/// matrices are texts. Hyper-parameters are shown by the HParams plugin. Numbers are stored as `f32`.
///
/// Each process writes a new file. When a run is resumed, TensorBoard forgets the later events of the earlier files.
///
/// ```no_run
/// use kiln_train::logger::TensorBoardLogger;
///
/// let logger = TensorBoardLogger::create("runs/mnist")?;
/// // tensorboard --logdir runs
/// # Ok::<(), kiln_train::LoggerError>(())
/// ```
#[derive(Debug)]
pub struct TensorBoardLogger {
    path: PathBuf,
    file: BufWriter<File>,
}

impl TensorBoardLogger {
    /// Creates an event file `events.out.tfevents.TIME.HOST.PROCESS.NUMBER` in a folder, and the folder.
    ///
    /// # Errors
    /// When the folder or the file cannot be created.
    pub fn create(folder: impl AsRef<Path>) -> Result<TensorBoardLogger, LoggerError> {
        let folder = folder.as_ref();
        fs::create_dir_all(folder).map_err(LoggerError::io(folder))?;
        let (path, file) = new_file(folder)?;
        let mut logger = TensorBoardLogger { path, file: BufWriter::new(file) };
        logger.write(event::file_version(now()))?;
        Ok(logger)
    }

    /// Returns the path of the event file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn start(&mut self, run: &RunDescription) -> Result<(), LoggerError> {
        if run.step > 0 {
            self.write(event::restart(now(), run.step + 1))?;
        }
        let mut values = Vec::new();
        if !run.hyper_parameters.is_empty() {
            let tags = run.metrics.iter().map(|metric| format!("train/{}", metric.name));
            let tags: Vec<String> = tags.chain(["train/loss".to_owned()]).collect();
            values.push(event::experiment(&run.hyper_parameters, &tags));
            values.push(event::session_start(&run.hyper_parameters, run.started));
        }
        if !run.task.is_empty() {
            values.push(event::text("run/task", &code_block(&run.task)));
        }
        if !run.environment.is_empty() {
            let line = |(name, value): (&String, &String)| format!("{name}: {value}\n");
            let lines: String = run.environment.iter().map(line).collect();
            values.push(event::text("run/environment", &code_block(&lines)));
        }
        self.summaries(run.step, values)
    }

    fn values(&mut self, record: &ValuesRecord) -> Result<(), LoggerError> {
        let mut values = Vec::new();
        for (name, value) in &record.values {
            let tag = format!("{}/{name}", record.split.name());
            let summary =
                summary(&tag, value).map_err(|problem| LoggerError::Other(format!("`{tag}`: {problem}")))?;
            values.extend(summary);
        }
        self.summaries(record.step, values)
    }

    /// Writes the numbers of a record, an event for each step.
    fn points(&mut self, record: &Record) -> Result<(), LoggerError> {
        for group in points(record).chunk_by(|one, other| one.step == other.step) {
            let scalar =
                |point: &super::Point| event::scalar(&format!("{}/{}", point.split, point.name), point.value);
            self.summaries(group[0].step, group.iter().map(scalar).collect())?;
        }
        Ok(())
    }

    fn summaries(&mut self, step: u64, values: Vec<Message>) -> Result<(), LoggerError> {
        if values.is_empty() {
            return Ok(());
        }
        self.write(event::summaries(now(), step, values))
    }

    fn write(&mut self, event: Message) -> Result<(), LoggerError> {
        let written = self.file.write_all(&frame::frame(&event.into_bytes()));
        written.map_err(LoggerError::io(&self.path))
    }
}

impl Logger for TensorBoardLogger {
    fn name(&self) -> &str {
        "tensorboard"
    }

    fn record(&mut self, record: &Record) -> Result<(), LoggerError> {
        self.points(record)?;
        match record {
            Record::Start(run) => self.start(run),
            Record::Values(values) if values.complete => self.values(values),
            Record::Epoch { epoch, step, duration } => {
                let values = [("epoch", *epoch as f64 + 1.0), ("epoch_seconds", duration.as_secs_f64())];
                let scalar = |(name, value): (&str, f64)| event::scalar(&format!("{STEP}/{name}"), value);
                self.summaries(*step, values.map(scalar).into())
            }
            Record::Message { level, text } => {
                let tag = match level {
                    Level::Info => "message/info",
                    Level::Warning => "message/warning",
                    Level::Error => "message/error",
                };
                self.summaries(0, vec![event::text(tag, text)])
            }
            Record::Usage(usage) => self.summaries(0, vec![event::text("usage", &usage.to_string())]),
            Record::End { step, .. } => self.summaries(*step, vec![event::session_end(now())]),
            Record::Step(_)
            | Record::Values(_)
            | Record::Progress(_)
            | Record::Batches { .. }
            | Record::Checkpoint { .. } => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), LoggerError> {
        self.file.flush().map_err(LoggerError::io(&self.path))
    }
}

/// Returns the summary of a value that is not a number.
fn summary(tag: &str, value: &MetricValue) -> Result<Option<Message>, String> {
    let summary = match value {
        MetricValue::Scalar(_) | MetricValue::PerClass(_) => return Ok(None),
        MetricValue::Matrix { columns, elements, .. } => event::text(tag, &table(*columns, elements)),
        MetricValue::Histogram { edges, counts } => event::histogram(tag, edges, counts)?,
        MetricValue::Image { height, width, channels, pixels } => {
            let image = Image { height: *height, width: *width, channels: *channels, pixels };
            event::image(tag, &image)?
        }
        MetricValue::Text(text) => event::text(tag, text),
    };
    Ok(Some(summary))
}

/// A matrix as a table in Markdown. Rows and columns are numbered from 0.
fn table(columns: usize, elements: &[f64]) -> String {
    let heads: String = (0..columns).map(|column| format!(" {column} |")).collect();
    let rule = "---|".repeat(columns);
    let mut table = format!("| |{heads}\n|---|{rule}\n");
    for (index, row) in elements.chunks(columns.max(1)).enumerate() {
        let cells: String = row.iter().map(|element| format!(" {element} |")).collect();
        table += &format!("| **{index}** |{cells}\n");
    }
    table
}

/// A text as a code block in Markdown.
fn code_block(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// Seconds since 1970-01-01 UTC.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Creates a file of which no other has the name. TensorBoard reads files in the order of their names, so the number
/// of later files of the same second is greater.
fn new_file(folder: &Path) -> Result<(PathBuf, File), LoggerError> {
    let (seconds, host, process) = (now() as u64, host(), std::process::id());
    let mut number = 0;
    loop {
        let path = folder.join(format!("events.out.tfevents.{seconds:010}.{host}.{process}.{number}"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(LoggerError::io(&path)(error)),
        }
    }
}

/// The name of this machine, with the letters that file names allow.
fn host() -> String {
    let variables = || ["HOSTNAME", "COMPUTERNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(variables).unwrap_or_default();
    let allowed = |letter: &char| letter.is_ascii_alphanumeric() || ".-_".contains(*letter);
    let name: String = name.trim().chars().filter(allowed).take(64).collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}
