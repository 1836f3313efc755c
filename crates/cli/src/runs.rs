//! `kiln runs`: lists, shows and compares training runs by their records.

mod read;
mod report;
mod tables;
mod text;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use kiln_train::logger::{RecordReader, RunFolder};
use read::Run;

/// Options of `kiln runs`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the runs of a folder with their best metrics.
    List {
        /// The folder that contains the folders of runs.
        #[arg(default_value = "runs")]
        root: PathBuf,
    },
    /// Show configuration, metrics and messages of a run.
    Show {
        /// The folder of a run, its file `records.jsonl`, or the name of a run in ROOT.
        run: PathBuf,
        /// The folder that contains the folders of runs.
        #[arg(long, default_value = "runs")]
        root: PathBuf,
    },
    /// Compare metrics of runs, and their hyper-parameters where these differ.
    Compare {
        /// Folders of runs, files `records.jsonl`, or names of runs in ROOT.
        #[arg(num_args = 2.., required = true, value_name = "RUN")]
        runs: Vec<PathBuf>,
        /// The folder that contains the folders of runs.
        #[arg(long, default_value = "runs")]
        root: PathBuf,
    },
    /// Write a report with curves, tables and configuration as one HTML page.
    Report {
        /// Folders of runs, files `records.jsonl`, or names of runs in ROOT.
        #[arg(num_args = 1.., required = true, value_name = "RUN")]
        runs: Vec<PathBuf>,
        /// The page, which is replaced atomically.
        #[arg(short, long, value_name = "FILE", default_value = "report.html")]
        output: PathBuf,
        /// The folder that contains the folders of runs.
        #[arg(long, default_value = "runs")]
        root: PathBuf,
    },
}

/// Returns the text to print.
///
/// # Errors
/// When a run cannot be read, or the report cannot be written.
pub(crate) fn run(options: Options) -> Result<String, String> {
    match options.command {
        Command::List { root } => {
            let folders = RunFolder::list(&root).map_err(|error| error.to_string())?;
            let read =
                |folder: &RunFolder| (folder.name().to_owned(), Run::read(folder.name(), &folder.records()));
            Ok(tables::list(&folders.iter().map(read).collect::<Vec<_>>()))
        }
        Command::Show { run, root } => Ok(tables::show(&read(&run, &root)?)),
        Command::Compare { runs, root } => Ok(tables::compare(&read_all(&runs, &root)?)),
        Command::Report { runs, output, root } => {
            report::write(&read_all(&runs, &root)?, &output)?;
            Ok(format!("{}\n", text::printable(&output.display().to_string())))
        }
    }
}

fn read_all(runs: &[PathBuf], root: &Path) -> Result<Vec<Run>, String> {
    runs.iter().map(|run| read(run, root)).collect()
}

/// Reads a run: a folder, a file of records, or a name in `root`.
fn read(run: &Path, root: &Path) -> Result<Run, String> {
    if run.is_file() {
        let stem = run.file_stem().unwrap_or_default().to_string_lossy();
        return Run::read(&stem, run);
    }
    let inside = root.join(run);
    let path = if run.is_dir() || !inside.is_dir() { run } else { &inside };
    let folder = RunFolder::open(path)
        .map_err(|error| format!("{error}\n  hint: `kiln runs list` lists the runs of a folder"))?;
    Run::read(folder.name(), &folder.records())
}

/// Opens a log.
fn open(path: &Path) -> Result<RecordReader, String> {
    RecordReader::open(path).map_err(|error| error.to_string())
}
