//! Names of repositories, revisions and files, checked before they become paths or URLs.

use std::fmt;

use crate::error::{Result, StoreError};

/// The branch that is used without a revision.
pub(super) const MAIN: &str = "main";
/// Prefix of the folder of a model in the cache.
const PREFIX: &str = "models--";
/// Maximum length of each part of a repository's name.
const MAX_PART: usize = 96;
/// Maximum length of revisions and file names, in bytes.
const MAX_PATH: usize = 1024;

/// The name of a model's repository: `org/name`, or `name` for some old models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RepositoryName(String);

impl RepositoryName {
    /// Checks a name by the rules of the hub: at most two parts of ASCII letters, digits, `-`, `_` and `.`.
    pub(super) fn parse(name: &str) -> Result<RepositoryName> {
        let parts: Vec<&str> = name.split('/').collect();
        let valid = parts.len() <= 2
            && parts.iter().all(|part| is_valid_part(part))
            && !name.contains("--")
            && !name.contains("..")
            && !name.ends_with(".git");
        if valid {
            return Ok(RepositoryName(name.to_owned()));
        }
        let problem = "not the name of a model on the Hugging Face hub\n  hint: names are like `org/name`";
        Err(invalid(format!("`{}`", name.escape_debug()), problem))
    }

    /// Returns the name that belongs to a folder of the cache.
    pub(super) fn from_folder(folder: &str) -> Option<RepositoryName> {
        RepositoryName::parse(&folder.strip_prefix(PREFIX)?.replacen("--", "/", 1)).ok()
    }

    /// Returns the name of the folder in the cache: `models--org--name`.
    pub(super) fn folder(&self) -> String {
        format!("{PREFIX}{}", self.0.replace('/', "--"))
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_valid_part(part: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = part.as_bytes();
    bytes.len() <= MAX_PART
        && bytes.first().copied().is_some_and(is_word)
        && bytes.last().copied().is_some_and(is_word)
        && bytes.iter().all(|&byte| is_word(byte) || matches!(byte, b'-' | b'.'))
}

/// Checks that a revision (branch, tag or commit) is a relative path without `..`.
pub(super) fn check_revision(revision: &str) -> Result<()> {
    check_path(revision)
        .map_err(|problem| invalid(format!("revision `{}`", revision.escape_debug()), problem))
}

/// Checks that the name of a file in a repository is a relative path without `..`.
pub(super) fn check_file(name: &str) -> Result<()> {
    check_path(name).map_err(|problem| invalid(format!("file name `{}`", name.escape_debug()), problem))
}

fn check_path(path: &str) -> Result<(), &'static str> {
    if path.len() > MAX_PATH {
        return Err("longer than 1024 bytes");
    }
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("not a relative path inside the repository");
    }
    // A backslash and a colon separate parts of paths on Windows.
    if path.contains(|character: char| matches!(character, '\\' | ':') || character.is_control()) {
        return Err("contains a backslash, a colon or a control character");
    }
    Ok(())
}

/// Whether a revision is a commit: 40 hexadecimal digits.
pub(super) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn invalid(argument: String, problem: &str) -> StoreError {
    StoreError::InvalidArgument { argument, problem: problem.to_owned() }
}
