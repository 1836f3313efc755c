//! The error type of the crate.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use kiln_tensor::TensorType;

/// A result whose error is [`StoreError`].
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// An error of reading or writing tensor files and checkpoints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file or folder could not be read or written.
    #[error("{}: cannot {action}: {}", path.display(), reason(path, action, source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The error from the operating system.
        source: io::Error,
    },

    /// Something else exists where a file or folder should be written.
    #[error("{}: {found} exists and is not replaced\n  hint: save under another path, or move it away", path.display())]
    NotReplaced {
        /// The path.
        path: PathBuf,
        /// A description of the existing file.
        found: String,
    },

    /// Another writer holds a folder.
    #[error(
        "{}: is being written by {holder}\n  hint: use a separate folder for each training run, or wait until the other ends",
        path.display()
    )]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The other writer: its process and machine, if known.
        holder: String,
    },

    /// A file of a checkpoint is damaged: it differs from the saved one.
    #[error("{}: damaged: {found}, but {expected} when it was saved\n  hint: resume from another checkpoint", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Its actual length or checksum.
        found: String,
        /// Its saved length or checksum.
        expected: String,
    },

    /// A file violates its format.
    #[error("{}: at byte {offset}: {problem}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Offset of the invalid bytes.
        offset: u64,
        /// A description of the problem.
        problem: String,
    },

    /// A file is a pointer of Git LFS, a page or empty, where a file of a model is expected.
    #[error("{}: {found}\n  hint: {hint}", file.display())]
    NotWeights {
        /// The file.
        file: PathBuf,
        /// The contents, as in "is empty".
        found: String,
        /// The remedy.
        hint: &'static str,
    },

    /// A file is shorter or longer than it declares.
    #[error(
        "{}: {found} bytes long, but its header declares {expected}\n  hint: the file is {}; get it again",
        file.display(), if found < expected { "truncated" } else { "not a safetensors file, or was appended to" }
    )]
    Length {
        /// The file.
        file: PathBuf,
        /// The actual length in bytes.
        found: u64,
        /// The declared length in bytes.
        expected: u64,
    },

    /// A file does not contain a tensor of that name.
    #[error("{}: no tensor `{name}`{}", file.display(), did_you_mean(suggestion.as_deref()))]
    NotFound {
        /// The file.
        file: PathBuf,
        /// The requested name.
        name: String,
        /// A similar name in the file.
        suggestion: Option<String>,
    },

    /// A tensor in a file has a dtype that Kiln does not support.
    #[error("{}: tensor `{name}` is of type {dtype}, which is not supported", file.display())]
    UnsupportedDType {
        /// The file.
        file: PathBuf,
        /// The tensor's name.
        name: String,
        /// The name of the dtype in the file.
        dtype: String,
    },

    /// The tensors of a file do not match the parameters of the module.
    #[error("{}: does not match the module{mismatch}", file.display())]
    Mismatch {
        /// The file.
        file: PathBuf,
        /// The differences between file and module.
        mismatch: Box<Mismatch>,
    },

    /// A file has different tensors for the names of a tied parameter.
    #[error(
        "{}: `{first}` and `{second}` differ, but the module ties them\n  \
         hint: exclude one with `LoadOptions::mapping`, or load a module that does not tie them", file.display()
    )]
    Tied {
        /// The file.
        file: PathBuf,
        /// A name of the parameter in the module.
        first: String,
        /// Another name of it.
        second: String,
    },

    /// Two tensors have the same name.
    #[error("{}: duplicate tensor name `{name}`", file.display())]
    Duplicate {
        /// The file.
        file: PathBuf,
        /// The name.
        name: String,
    },

    /// A value cannot be serialized as JSON, or JSON cannot be deserialized as the value.
    #[error("{}: {problem}", file.display())]
    Json {
        /// The file, or folder.
        file: PathBuf,
        /// A description of the problem.
        problem: String,
    },

    /// A file has a format version that this release of Kiln does not read.
    #[error(
        "{}: has format version {found}; supported: 0 to {supported}\n  hint: a newer release of Kiln wrote the file; update Kiln",
        file.display()
    )]
    Version {
        /// The file.
        file: PathBuf,
        /// The version of the file.
        found: String,
        /// The newest version that this release reads.
        supported: u32,
    },

    /// A state does not match the optimizer or the module.
    #[error("{}: {source}", file.display())]
    Optimizer {
        /// The file.
        file: PathBuf,
        /// The error of the optimizer.
        source: kiln_optim::OptimError,
    },

    /// A tensor could not be read from its device.
    #[error("{}: cannot save `{name}`: {source}", file.display())]
    Tensor {
        /// The file to be written.
        file: PathBuf,
        /// The tensor's name.
        name: String,
        /// The error of the device.
        source: kiln_tensor::Error,
    },

    /// An argument is invalid.
    #[error("{argument}: {problem}")]
    InvalidArgument {
        /// The argument and its value.
        argument: String,
        /// The requirement.
        problem: String,
    },

    /// A checkpoint has no module, optimizer or group of tensors of that name.
    #[error("{}: no {kind} `{name}` in the checkpoint{}", folder.display(), list_names(available))]
    NoSuchPart {
        /// The folder of the checkpoint.
        folder: PathBuf,
        /// The kind of part: `module`, `optimizer` or `group of tensors`.
        kind: String,
        /// The requested name.
        name: String,
        /// The names that exist.
        available: Vec<String>,
    },

    /// The cache of the Hugging Face hub does not contain a model.
    #[error(
        "`{model}` (revision `{revision}`) is not in the cache {}\n  hint: download it with `hub::Downloader` or \
         `hf download {model}`, or set HF_HOME to the folder of another cache",
        cache.display()
    )]
    NotInCache {
        /// The name of the model.
        model: String,
        /// The branch, tag or commit.
        revision: String,
        /// The folder of the cache.
        cache: PathBuf,
    },

    /// A symbolic link in the cache of the Hugging Face hub leaves the folder of its model.
    #[error("{}: is a symbolic link that leaves {}\n  hint: download the model again", path.display(), folder.display())]
    OutsideFolder {
        /// The link.
        path: PathBuf,
        /// The folder of the model.
        folder: PathBuf,
    },

    /// A download failed.
    #[error("{url}: {problem}")]
    Download {
        /// The URL.
        url: String,
        /// A description of the problem.
        problem: String,
    },

    /// Saves in the background failed.
    #[error("{}", list_saves(failed, *omitted))]
    BackgroundSaves {
        /// The first failed saves, at most 16.
        failed: Vec<FailedSave>,
        /// Number of failed saves that are not in `failed`.
        omitted: usize,
    },

    /// A save in the background panicked.
    #[error("{}: the save panicked: {message}", path.display())]
    Panicked {
        /// The folder of the checkpoint.
        path: PathBuf,
        /// The message of the panic.
        message: String,
    },
}

/// A save in the background that failed.
#[derive(Debug)]
pub struct FailedSave {
    /// The folder of the checkpoint.
    pub folder: PathBuf,
    /// The error.
    pub error: StoreError,
}

impl fmt::Display for FailedSave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (folder, error) = (self.folder.display().to_string(), self.error.to_string());
        // Most errors start with the path.
        if error.starts_with(&folder) { f.write_str(&error) } else { write!(f, "{folder}: {error}") }
    }
}

impl std::error::Error for FailedSave {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Why a file cannot be read or written.
fn reason(path: &Path, action: &str, source: &io::Error) -> String {
    let expected = match path.file_name().and_then(|name| name.to_str()) {
        Some("training.json") => "the folder of a checkpoint, which contains `training.json`",
        _ => "a file of weights, such as .safetensors, .pt, .gguf or .npz, or a folder with one",
    };
    match action {
        "read" => kiln_tensor::read_error(path, source, expected),
        _ => source.to_string(),
    }
}

impl StoreError {
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> StoreError {
        StoreError::Io { path: path.to_owned(), action, source }
    }

    pub(crate) fn malformed(file: &Path, offset: u64, problem: impl Into<String>) -> StoreError {
        StoreError::Malformed { file: file.to_owned(), offset, problem: problem.into() }
    }

    #[cfg(feature = "hub")]
    pub(crate) fn download(url: &str, problem: impl Into<String>) -> StoreError {
        StoreError::Download { url: url.to_owned(), problem: problem.into() }
    }

    pub(crate) fn json(file: &Path, problem: impl fmt::Display) -> StoreError {
        StoreError::Json { file: file.to_owned(), problem: problem.to_string() }
    }
}

/// The differences between a file and a module. `Display` prints a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mismatch {
    /// Parameters that the file does not contain, each with a similar name in the file.
    pub missing: Vec<(String, Option<String>)>,
    /// Tensors that the module does not have.
    pub unexpected: Vec<Unexpected>,
    /// Parameters whose type differs.
    pub types: Vec<TypeMismatch>,
    /// Rules of the [mapping](crate::Mapping) that match no tensor. They are no difference.
    pub unmatched: Vec<String>,
}

/// A tensor of a file that the module does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unexpected {
    /// The name in the file.
    pub name: String,
    /// The name after the mapping, if it differs.
    pub renamed: Option<String>,
    /// A similar name of a parameter that the file does not contain.
    pub similar: Option<String>,
}

/// A parameter whose type differs from that of its tensor in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeMismatch {
    /// The parameter's dotted name.
    pub name: String,
    /// The type of the parameter.
    pub expected: TensorType,
    /// The type of the tensor in the file.
    pub found: TensorType,
}

impl Mismatch {
    /// Returns whether there are no differences.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.types.is_empty()
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing =
            self.missing.iter().map(|(name, close)| format!("`{name}`{}", did_you_mean(close.as_deref())));
        section(f, "missing in the file", missing)?;
        section(f, "unknown to the module", self.unexpected.iter().map(Unexpected::to_string))?;
        section(f, "of another type", self.types.iter().map(TypeMismatch::to_string))?;
        section(f, UNMATCHED, self.unmatched.iter().cloned())?;
        f.write_str("\n  hint: `LoadOptions` can rename, cast, and skip tensors")
    }
}

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unexpected { name, renamed, similar } = self;
        match renamed {
            Some(renamed) => write!(f, "`{renamed}`, which is `{name}` in the file")?,
            None => write!(f, "`{name}`")?,
        }
        similar.as_ref().map_or(Ok(()), |similar| write!(f, " (the module has `{similar}`)"))
    }
}

impl fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TypeMismatch { name, expected, found } = self;
        write!(f, "`{name}` is {expected} in the module, {found} in the file")
    }
}

/// The heading of rules of a mapping that match nothing.
pub(crate) const UNMATCHED: &str = "rules of the mapping that match no tensor";

/// Formats a heading, at most ten entries, and the number of the others.
pub(crate) fn section(
    f: &mut fmt::Formatter<'_>,
    heading: &str,
    entries: impl ExactSizeIterator<Item = String>,
) -> fmt::Result {
    const SHOWN: usize = 10;
    let count = entries.len();
    if count == 0 {
        return Ok(());
    }
    write!(f, "\n  {heading}:")?;
    for entry in entries.take(SHOWN) {
        write!(f, "\n    {entry}")?;
    }
    if count > SHOWN { write!(f, "\n    and {} more", count - SHOWN) } else { Ok(()) }
}

pub(crate) fn did_you_mean(name: Option<&str>) -> String {
    name.map(|name| format!(" (there is `{name}`)")).unwrap_or_default()
}

fn list_names(names: &[String]) -> String {
    match names {
        [] => "; it has none".to_owned(),
        names => format!("; it has `{}`", names.join("`, `")),
    }
}

fn list_saves(failed: &[FailedSave], omitted: usize) -> String {
    let mut text = match failed.len() + omitted {
        1 => "1 checkpoint could not be saved".to_owned(),
        count => format!("{count} checkpoints could not be saved"),
    };
    text.extend(failed.iter().map(|save| format!("\n  {save}")));
    if omitted > 0 {
        text.push_str(&format!("\n  and {omitted} more"));
    }
    text
}
