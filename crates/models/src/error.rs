//! The error type of the crate.

use std::path::{Path, PathBuf};

use kiln_store::StoreError;
use kiln_text::TextError;

/// A result whose error is [`ModelError`].
pub type Result<T, E = ModelError> = std::result::Result<T, E>;

/// An error of opening a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file of the model cannot be read.
    #[error("{}: cannot read: {}", path.display(), kiln_tensor::read_error(path, source, "a file of a model"))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error from the operating system.
        source: std::io::Error,
    },

    /// The configuration is not JSON.
    #[error("the configuration is not JSON: {0}")]
    Json(#[from] serde_json::Error),

    /// A field of a configuration is missing, or has a value of the wrong type.
    #[error("configuration: `{field}` is {found}, expected {expected}")]
    Field {
        /// The name of the field.
        field: String,
        /// A description of the value; `missing` if there is none.
        found: String,
        /// A description of valid values.
        expected: String,
    },

    /// The configuration requests a feature that the model does not have.
    #[error("configuration: `{field}` is {value}, which is not supported\n  hint: supported are {supported}")]
    Unsupported {
        /// The name of the field.
        field: String,
        /// Its value.
        value: String,
        /// The supported values.
        supported: String,
    },

    /// The weights cannot be read, or do not match the configuration.
    #[error(transparent)]
    Store(#[from] StoreError),

    /// The tokenizer, the chat template or the settings of generation are invalid.
    #[error(transparent)]
    Text(#[from] TextError),

    /// A part of a model, such as its tokenizer, is missing.
    #[error("{}: {problem}\n  hint: {hint}", path.display())]
    Missing {
        /// The file or folder.
        path: PathBuf,
        /// A description of the missing part.
        problem: String,
        /// Advice.
        hint: String,
    },
}

impl ModelError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> ModelError {
        ModelError::Io { path: path.to_owned(), source }
    }
}
