//! Configurations: hyperparameters as typed data, serialized as JSON.

mod range;

use alloc::format;
use alloc::string::String;
use core::fmt;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use kiln_macros::Config;
#[doc(hidden)]
pub use range::check_ranges;
pub use range::{InRange, OutOfRange};

/// Hyperparameters that are serialized as JSON. Derive it with [`#[derive(Config)]`](macro@crate::Config).
///
/// ```
/// use kiln_nn::Config;
///
/// #[derive(Config, Debug, PartialEq)]
/// struct TrainingConfig {
///     epochs: usize,
///     #[config(default = 1e-3)]
///     learning_rate: f64,
///     seed: Option<u64>,
/// }
///
/// let config = TrainingConfig::new(10).with_learning_rate(0.01);
/// assert_eq!(TrainingConfig::from_json(&config.to_json())?, config);
/// assert_eq!(TrainingConfig::from_json(r#"{ "epochs": 3 }"#)?, TrainingConfig::new(3));
///
/// let error = TrainingConfig::from_json(r#"{ "epoch": 3 }"#).unwrap_err();
/// assert!(error.to_string().starts_with("line 1, column 9: unknown field `epoch`"));
/// # Ok::<(), kiln_nn::ConfigError>(())
/// ```
pub trait Config: Serialize + DeserializeOwned {
    /// Returns the configuration as indented JSON.
    ///
    /// # Panics
    /// When a field's `Serialize` fails, or a map has keys that are not strings.
    fn to_json(&self) -> String {
        match serde_json::to_string_pretty(self) {
            Ok(json) => json,
            Err(error) => panic!("[config] a field cannot be written as JSON: {error}"),
        }
    }

    /// Parses a configuration from JSON. Fields with defaults may be absent.
    ///
    /// # Errors
    /// When the text is not valid JSON, or a field is unknown, missing or of the wrong type. The error contains line
    /// and column.
    fn from_json(json: &str) -> Result<Self, ConfigError> {
        serde_json::from_str(json).map_err(|error| ConfigError::content(None, &error))
    }

    /// Checks the ranges that `#[config(range = "[0, 1)")]` declares. Types that are created from a configuration check
    /// them then.
    ///
    /// ```
    /// use kiln_nn::Config;
    ///
    /// #[derive(Config)]
    /// struct NoiseConfig {
    ///     #[config(range = "[0, 1)", default = 0.1)]
    ///     share: f64,
    /// }
    ///
    /// let error = NoiseConfig::new().with_share(1.0).check_ranges().unwrap_err();
    /// assert_eq!(error.to_string(), "share is 1\n  hint: it must be at least 0 and below 1");
    /// ```
    ///
    /// # Errors
    /// When a number is outside of its range, or NaN. The error is that of the first such field.
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        Ok(())
    }

    /// Writes the configuration to a file as JSON, atomically: if it fails, the file is unchanged.
    ///
    /// # Errors
    /// When the file cannot be written. The error contains the path.
    #[cfg(feature = "std")]
    fn save(&self, path: impl AsRef<std::path::Path>) -> Result<(), ConfigError> {
        file::write(path.as_ref(), &self.to_json())
    }

    /// Reads a configuration from a JSON file of at most 64 MiB.
    ///
    /// # Errors
    /// When the file cannot be read, is longer than 64 MiB, or [`from_json`](Config::from_json) fails. The error
    /// contains the path.
    #[cfg(feature = "std")]
    fn load(path: impl AsRef<std::path::Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let json = file::read(path)?;
        serde_json::from_str(&json).map_err(|error| ConfigError::content(Some(&path.display()), &error))
    }
}

/// The error of reading or writing a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text is not a valid configuration.
    #[error("{place}line {line}, column {column}: {problem}")]
    Content {
        /// The file's path followed by `, `. Empty if the text is not from a file.
        place: String,
        /// The line, counted from 1.
        line: usize,
        /// The column, counted from 1.
        column: usize,
        /// A description of the problem.
        problem: String,
    },
    /// The file cannot be read or written.
    #[cfg(feature = "std")]
    #[error("{path}: cannot {action} the configuration: {}", file::reason(path, action, source))]
    File {
        /// The file's path.
        path: String,
        /// `read` or `write`.
        action: &'static str,
        /// The error from the operating system.
        source: std::io::Error,
    },
}

impl ConfigError {
    fn content(path: Option<&dyn fmt::Display>, error: &serde_json::Error) -> ConfigError {
        let (line, column) = (error.line(), error.column());
        // serde_json repeats line and column at the end of its message.
        let text = format!("{error}");
        let repeated = format!(" at line {line} column {column}");
        let problem = text.strip_suffix(&repeated).unwrap_or(&text).into();
        let place = path.map(|path| format!("{path}, ")).unwrap_or_default();
        ConfigError::Content { place, line, column, problem }
    }
}

/// Implements `Display` of derived configurations: prints JSON.
///
/// # Errors
/// When the formatter fails.
#[doc(hidden)]
pub fn display(config: &impl Config, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(&config.to_json())
}

#[cfg(feature = "std")]
mod file {
    use super::ConfigError;
    use std::io::{Error, ErrorKind, Read, Write};
    use std::path::{Path, PathBuf};
    use std::string::String;

    /// Why a file cannot be read or written.
    pub(super) fn reason(path: &str, action: &str, source: &Error) -> String {
        match action {
            "read" => kiln_tensor::read_error(Path::new(path), source, "a configuration in JSON"),
            _ => std::format!("{source}"),
        }
    }

    /// Limit on the length of a configuration file. A longer file was probably passed by mistake.
    const MAX_BYTES: u64 = 64 << 20;

    pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
        let read = || {
            let mut text = String::new();
            std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
            if text.len() as u64 > MAX_BYTES {
                return Err(Error::new(ErrorKind::InvalidData, "the file is longer than 64 MiB"));
            }
            Ok(text)
        };
        read().map_err(|source| error(path, "read", source))
    }

    /// Writes a temporary file and renames it, so that no reader sees a partial file.
    pub(super) fn write(path: &Path, text: &str) -> Result<(), ConfigError> {
        let beside = beside(path);
        let write = || {
            let mut file = std::fs::File::create_new(&beside)?;
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            std::fs::rename(&beside, path)
        };
        write().map_err(|source| {
            let _ = std::fs::remove_file(&beside);
            error(path, "write", source)
        })
    }

    /// A temporary name in the same folder. It is random, not the process id: process ids repeat across containers.
    fn beside(path: &Path) -> PathBuf {
        use std::hash::{BuildHasher, Hasher, RandomState};
        let random = RandomState::new().build_hasher().finish();
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(std::format!(".{random:016x}.partial"));
        path.with_file_name(name)
    }

    fn error(path: &Path, action: &'static str, source: Error) -> ConfigError {
        ConfigError::File { path: path.display().to_string(), action, source }
    }
}
