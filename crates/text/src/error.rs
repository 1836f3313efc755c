//! The error type of the crate.

use std::io;
use std::path::PathBuf;

/// The files of this crate.
const EXPECTED: &str = "a `tokenizer.json`, or a folder of a Hugging Face model";

/// A result whose error is [`TextError`].
pub type Result<T, E = TextError> = std::result::Result<T, E>;

/// An error of tokenizers, chat templates and generation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file or folder could not be read.
    #[error("{}: cannot read: {}", path.display(), kiln_tensor::read_error(path, source, EXPECTED))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error from the operating system.
        source: io::Error,
    },

    /// A folder lacks the file that is needed.
    #[error("{}: contains no {file}\n  hint: {hint}", path.display())]
    MissingFile {
        /// The folder.
        path: PathBuf,
        /// The name of the file.
        file: &'static str,
        /// How to obtain it.
        hint: &'static str,
    },

    /// The description of a tokenizer is invalid.
    #[error("{origin}: invalid tokenizer: {problem}")]
    InvalidTokenizer {
        /// The file, or the kind of description.
        origin: String,
        /// The problem, and what to do.
        problem: String,
    },

    /// The settings of generation in a file are invalid.
    #[error("{origin}: {problem}\n  hint: correct the file, or remove the field")]
    InvalidDefaults {
        /// The file.
        origin: String,
        /// The field and the problem.
        problem: String,
    },

    /// Text could not be encoded or decoded.
    #[error("cannot {action}: {problem}")]
    Tokenization {
        /// The action that failed.
        action: &'static str,
        /// The problem.
        problem: String,
    },

    /// A token id is beyond the logits of the model.
    #[error(
        "token id {id} is beyond the {size} logits of the model\n  hint: the ids are of another tokenizer"
    )]
    UnknownId {
        /// The id.
        id: u32,
        /// Number of logits.
        size: usize,
    },

    /// A chat template could not be parsed or rendered.
    #[error("chat template: cannot {action}: {problem}")]
    Template {
        /// The action that failed.
        action: &'static str,
        /// The problem, with the line in the template.
        problem: String,
    },

    /// A chat template called `raise_exception`: it refuses the messages.
    #[error("the chat template refuses the messages: {message}")]
    TemplateRefused {
        /// The message of the template.
        message: String,
    },

    /// A setting of generation is invalid.
    #[error("[GenerateConfig] {setting} is {value}\n  hint: {hint}")]
    InvalidSetting {
        /// The name of the setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        hint: &'static str,
    },

    /// A prompt has no tokens.
    #[error("prompt {row} has no tokens\n  hint: start with the BOS token, or with text")]
    EmptyPrompt {
        /// The row in the batch.
        row: usize,
    },

    /// A prompt leaves no room for new tokens in the context of the model.
    #[error(
        "{prompt} prompt tokens leave no room in the context of {max_length} tokens\n  hint: shorten the prompt"
    )]
    ContextOverflow {
        /// Number of tokens of the prompt.
        prompt: usize,
        /// Length of the context.
        max_length: usize,
    },

    /// An argument does not fit the others.
    #[error("[{function}] {problem}")]
    InvalidArgument {
        /// The function.
        function: &'static str,
        /// The problem, and what to do.
        problem: String,
    },

    /// The sampler found no token with a probability.
    #[error(
        "the logits of row {row} contain no finite value\n  hint: check the weights and the dtype of the model"
    )]
    NoFiniteLogits {
        /// The row in the batch.
        row: usize,
    },

    /// A file of weights could not be read.
    #[error(transparent)]
    Store(#[from] kiln_store::StoreError),

    /// A computation failed.
    #[error(transparent)]
    Tensor(#[from] kiln_tensor::Error),
}

impl TextError {
    pub(crate) fn io(path: &std::path::Path, source: io::Error) -> Self {
        TextError::Io { path: path.to_path_buf(), source }
    }

    #[cfg(feature = "tokenizers")]
    pub(crate) fn invalid_tokenizer(origin: impl Into<String>, problem: impl Into<String>) -> Self {
        TextError::InvalidTokenizer { origin: origin.into(), problem: problem.into() }
    }
}
