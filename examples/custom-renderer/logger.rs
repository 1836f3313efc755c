//! A logger: a table of all epochs in Markdown.

use kiln::train::{Logger, LoggerError, Record, RunDescription, ValuesRecord};
use std::fs;
use std::path::PathBuf;

/// Writes a table with a row for each epoch and split, and a column for each metric.
pub(crate) struct MarkdownLogger {
    path: PathBuf,
    columns: Vec<String>,
    table: String,
}

impl MarkdownLogger {
    /// Returns a logger to a file, which it replaces.
    pub(crate) fn new(path: PathBuf) -> MarkdownLogger {
        MarkdownLogger { path, columns: Vec::new(), table: String::new() }
    }

    fn start(&mut self, run: &RunDescription) {
        self.columns = run.metrics.iter().map(|metric| metric.name.clone()).collect();
        let rule = "|---".repeat(2 + self.columns.len());
        self.table = format!("| epoch | data | {} |\n{rule}|\n", self.columns.join(" | "));
    }

    fn add(&mut self, values: &ValuesRecord) {
        let cell = |name: &String| values.text.get(name).map_or("", String::as_str);
        let cells: Vec<&str> = self.columns.iter().map(cell).collect();
        let (epoch, split) = (values.epoch + 1, values.split.name());
        self.table.push_str(&format!("| {epoch} | {split} | {} |\n", cells.join(" | ")));
    }
}

impl Logger for MarkdownLogger {
    fn name(&self) -> &str {
        "markdown"
    }

    fn record(&mut self, record: &Record) -> Result<(), LoggerError> {
        if let Record::Start(run) = record {
            self.start(run);
        }
        if let Record::Values(values) = record {
            self.add(values);
        }
        Ok(())
    }

    /// The learner calls this after each epoch, so that an interrupted run has a table too.
    fn flush(&mut self) -> Result<(), LoggerError> {
        let failed = |source| LoggerError::Io { path: self.path.clone(), source };
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(&self.path, &self.table).map_err(failed)
    }
}
