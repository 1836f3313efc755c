//! The error type of the crate.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// A boxed error of any type that a [`Batcher`](crate::Batcher) may return.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error of a dataset, a file or a data loader.
///
/// Offsets are bytes from the start of the file's contents. For a gzipped file, they count decompressed bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file or folder could not be read or written.
    #[error("{}: {}", path.display(), kiln_ir::read_error(path, source, "a file of the dataset"))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error from the operating system.
        source: io::Error,
    },

    /// A file is shorter than it declares.
    #[error("{}: truncated at byte {offset}: expected {expected} bytes", file.display())]
    Truncated {
        /// The file.
        file: PathBuf,
        /// Number of bytes present.
        offset: u64,
        /// Number of bytes that the file declares.
        expected: u64,
    },

    /// A file is longer than it declares.
    #[error("{}: unexpected data from byte {offset} on: the header declares {offset} bytes", file.display())]
    TrailingData {
        /// The file.
        file: PathBuf,
        /// Offset where the contents should end.
        offset: u64,
    },

    /// A file violates its format.
    #[error("{}: at byte {offset}: {message}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Offset of the invalid bytes.
        offset: u64,
        /// A description of the problem.
        message: String,
    },

    /// A data set was not found.
    #[error("{}", describe_not_found(name, searched, hint))]
    NotFound {
        /// The data set and split, such as `MNIST train`.
        name: String,
        /// The searched folders, in order.
        searched: Vec<PathBuf>,
        /// A hint how to obtain the data.
        hint: String,
    },

    /// No mirror delivered a valid file.
    #[error("{file}: download failed:{}\n  hint: check the network, or put the file into {} yourself",
        indent(attempts), directory.display())]
    Download {
        /// Name of the file.
        file: String,
        /// The target folder of the download.
        directory: PathBuf,
        /// The error of each URL that was tried.
        attempts: Vec<String>,
    },

    /// An argument is invalid.
    #[error("[{operation}] {message}\n  hint: {hint}")]
    InvalidArgument {
        /// The function or type that rejected the argument.
        operation: &'static str,
        /// A description of the problem, including the values.
        message: String,
        /// A suggested fix.
        hint: String,
    },

    /// The batch size of a loader is 0.
    #[error("[data_loader] batch size is 0\n  hint: call batch_size(n) with n of at least 1")]
    ZeroBatchSize,

    /// The dataset of a loader has no items.
    #[error(
        "[data_loader] the dataset is empty\n  \
         hint: check the folder, filter or split of the dataset"
    )]
    EmptyDataset,

    /// A dataset returned `None` for an index below its length.
    #[error(
        "[data_loader] the dataset has no item {index} although its length is {len}\n  \
         hint: Dataset::get must return Some for every index below Dataset::len"
    )]
    MissingItem {
        /// The requested index.
        index: usize,
        /// The dataset's length when the loader was built.
        len: usize,
    },

    /// A dataset or batcher panicked while a batch was built.
    #[error("[data_loader] building batch {batch} of epoch {epoch} panicked: {message}")]
    Panicked {
        /// Epoch of the batch.
        epoch: u64,
        /// Index of the batch within its epoch.
        batch: usize,
        /// The panic message.
        message: String,
    },

    /// The operating system could not create a worker thread.
    #[error("[data_loader] worker thread {worker} did not start: {source}\n  hint: use fewer num_workers")]
    SpawnWorker {
        /// Index of the worker.
        worker: usize,
        /// The error from the operating system.
        source: io::Error,
    },

    /// An error that a batcher returned.
    #[error(transparent)]
    Batcher(#[from] BoxError),
}

impl DataError {
    /// Wraps an error of a batcher, or a message, as the error of [`Batcher::batch`](crate::Batcher::batch).
    pub fn batcher(error: impl Into<BoxError>) -> Self {
        Self::Batcher(error.into())
    }

    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn malformed(file: &Path, offset: u64, message: impl Into<String>) -> Self {
        Self::Malformed { file: file.to_owned(), offset, message: message.into() }
    }

    pub(crate) fn argument(
        operation: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::InvalidArgument { operation, message: message.into(), hint: hint.into() }
    }
}

fn describe_not_found(name: &str, searched: &[PathBuf], hint: &str) -> String {
    let places: Vec<String> = searched.iter().map(|path| path.display().to_string()).collect();
    format!("{name} files not found; looked in:{}\n  hint: {hint}", indent(&places))
}

fn indent(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        let _ = write!(text, "\n    {line}");
        text
    })
}
