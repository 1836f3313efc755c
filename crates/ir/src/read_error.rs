//! Why a file cannot be read, for messages.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Limit on the entries of a folder that are looked at, and number of those that a message lists.
const MOST: usize = 1000;
const LISTED: usize = 5;

/// Describes why a file cannot be read. For a path that does not exist, the text names `expected` and the contents of the
/// nearest folder that exists; for other errors it is that of the operating system.
///
/// ```
/// use kiln_ir::read_error;
/// use std::io::{Error, ErrorKind};
/// use std::path::Path;
///
/// let text = read_error(Path::new("absent/model.gguf"), &ErrorKind::NotFound.into(), "a GGUF file");
/// assert!(text.starts_with("there is no such file or folder\n  hint: expected a GGUF file; "), "{text}");
/// let denied = read_error(Path::new("model.gguf"), &Error::other("the disk failed"), "a GGUF file");
/// assert_eq!(denied, "the disk failed");
/// ```
pub fn read_error(path: &Path, error: &io::Error, expected: &str) -> String {
    if error.kind() != ErrorKind::NotFound {
        return error.to_string();
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = absolute.ancestors().skip(1).find(|folder| folder.is_dir());
    let beside = folder.map(|folder| contents(folder, path)).unwrap_or_default();
    format!("there is no such file or folder\n  hint: expected {expected}{beside}")
}

/// The names in a folder, those with the extension of the path first.
fn contents(folder: &Path, path: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(MOST).flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into()).collect();
    let is_other = |name: &String| Path::new(name).extension() != path.extension();
    names.sort_by_key(|name| (is_other(name), name.clone()));
    let rest = if names.len() > LISTED { " and others" } else { "" };
    let listed: Vec<String> =
        names.iter().take(LISTED).map(|name| format!("`{}`", name.escape_debug())).collect();
    let listed = if listed.is_empty() { "nothing".to_string() } else { listed.join(", ") };
    format!("; the folder {} contains {listed}{rest}", folder.display())
}
