//! The folder of a run.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::jsonl::{JsonlLogger, RecordReader, read_run};
use crate::error::LoggerError;
use crate::record::Record;

/// The file with the records of a run. A folder that contains it is the folder of a run.
const RECORDS: &str = "records.jsonl";
const CHECKPOINTS: &str = "checkpoints";

/// Maximum length of a name in bytes. File systems allow 255, with the number of a run.
const MAX_NAME: usize = 200;

/// The folder of a run: `ROOT/NAME/records.jsonl` and `ROOT/NAME/checkpoints/`.
///
/// ```
/// use kiln_train::logger::{Logger, RunFolder};
/// use kiln_train::{Level, Record};
///
/// # let root = std::env::temp_dir().join(format!("kiln-runs-{}", std::process::id()));
/// let run = RunFolder::create(&root, "mnist")?;
/// let mut logger = run.logger()?;
/// logger.record(&Record::Message { level: Level::Info, text: "hello".to_owned() })?;
/// logger.flush()?;
/// assert_eq!(RunFolder::create(&root, "mnist")?.name(), "mnist-2");
/// let runs = RunFolder::list(&root)?;
/// assert_eq!(runs.iter().map(RunFolder::name).collect::<Vec<_>>(), ["mnist", "mnist-2"]);
/// assert_eq!(runs[0].read()?.len(), 1);
/// # std::fs::remove_dir_all(&root).unwrap();
/// # Ok::<(), kiln_train::LoggerError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
    name: String,
}

impl RunFolder {
    /// Creates the folder of a new run. If `name` exists in `root`, the run is named `name-2`, `name-3` and so on.
    ///
    /// Of processes that create runs of one name at the same time, each gets its own folder.
    ///
    /// # Errors
    /// When the name is empty, longer than 200 bytes, starts with a period, or contains a control character or one of
    /// `/ \ : * ? " |`; or when the folder cannot be created.
    pub fn create(root: impl AsRef<Path>, name: &str) -> Result<RunFolder, LoggerError> {
        check_name(name)?;
        let root = root.as_ref();
        fs::create_dir_all(root).map_err(LoggerError::io(root))?;
        let names = (2_u64..).map(|number| format!("{name}-{number}"));
        for name in std::iter::once(name.to_owned()).chain(names) {
            let path = root.join(&name);
            match fs::create_dir(&path) {
                Ok(()) => return RunFolder { path, name }.fill(),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(LoggerError::io(&path)(source)),
            }
        }
        unreachable!("there are more numbers than folders")
    }

    /// Creates the contents of a new folder. The file of the records is the last: without it, the folder is no run.
    fn fill(self) -> Result<RunFolder, LoggerError> {
        let (checkpoints, records) = (self.checkpoints(), self.records());
        fs::create_dir(&checkpoints).map_err(LoggerError::io(&checkpoints))?;
        let created = OpenOptions::new().write(true).create_new(true).open(&records);
        created.map_err(LoggerError::io(&records))?;
        Ok(self)
    }

    /// Opens the folder of a run.
    ///
    /// # Errors
    /// When the folder has no file `records.jsonl`, or its name is not Unicode.
    pub fn open(path: impl AsRef<Path>) -> Result<RunFolder, LoggerError> {
        let path = path.as_ref().to_owned();
        let records = path.join(RECORDS);
        let metadata = fs::metadata(&records).map_err(LoggerError::io(&records))?;
        // The name of `.` and of `runs/mnist/..` is that of the real folder.
        let real = fs::canonicalize(&path).map_err(LoggerError::io(&path))?;
        match real.file_name().and_then(|name| name.to_str()) {
            Some(name) if metadata.is_file() => Ok(RunFolder { path, name: name.to_owned() }),
            _ => Err(LoggerError::Other(format!("{}: is not the folder of a run", path.display()))),
        }
    }

    /// Returns the runs in a folder, ordered by name. Other entries are left out.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(root: impl AsRef<Path>) -> Result<Vec<RunFolder>, LoggerError> {
        let root = root.as_ref();
        let entries = fs::read_dir(root).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(LoggerError::io(root))?;
        let open = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let run = RunFolder { path: entry.path(), name };
            run.records().is_file().then_some(run)
        };
        let mut runs: Vec<RunFolder> = entries.into_iter().filter_map(open).collect();
        runs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(runs)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the records.
    pub fn records(&self) -> PathBuf {
        self.path.join(RECORDS)
    }

    /// Returns the folder of the checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }

    /// Returns the logger of the run, which continues its records.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn logger(&self) -> Result<JsonlLogger, LoggerError> {
        JsonlLogger::append(self.records())
    }

    /// Reads the records.
    ///
    /// # Errors
    /// Those of [`read_run`].
    pub fn read(&self) -> Result<Vec<Record>, LoggerError> {
        read_run(self.records())
    }

    /// Reads the records, one after the other.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn reader(&self) -> Result<RecordReader, LoggerError> {
        RecordReader::open(self.records())
    }
}

fn check_name(name: &str) -> Result<(), LoggerError> {
    let is_forbidden = |letter: char| letter.is_control() || "/\\:*?\"|".contains(letter);
    let problem = if name.is_empty() {
        "is empty"
    } else if name.len() > MAX_NAME {
        "is longer than 200 bytes"
    } else if name.starts_with('.') {
        "starts with a period"
    } else if name.contains(is_forbidden) {
        "contains a control character or one of / \\ : * ? \" |"
    } else {
        return Ok(());
    };
    Err(LoggerError::Other(format!("the name of the run {problem}: {name:?}")))
}
