//! Files that were saved in place of weights: pointers of Git LFS, error pages and empty files.

use std::path::Path;

use crate::error::{Result, StoreError};

/// The first lines of pointers: <https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md>.
const LFS: [&str; 2] =
    ["version https://git-lfs.github.com/spec/", "version https://hawser.github.com/spec/"];

/// The start of pages, in lower case.
const PAGES: [(&str, &str); 3] = [("<!doctype html", "HTML"), ("<html", "HTML"), ("<?xml", "XML")];

/// The number of bytes that decide.
pub(crate) const START: u64 = 512;

/// Refuses a file of a model by its first bytes if it is a pointer of Git LFS, an HTML or XML page, or empty. `path` is
/// for messages.
///
/// # Errors
/// [`StoreError::NotWeights`] with the remedy.
pub fn refuse(path: &Path, start: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(&start[..start.len().min(START as usize)]);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let lower = text.to_ascii_lowercase();
    let page = PAGES.iter().find(|(tag, _)| lower.starts_with(tag));
    let (found, hint) = if start.is_empty() {
        (
            "is empty".to_owned(),
            "the download or the program that wrote it was interrupted; get the file again",
        )
    } else if LFS.iter().any(|line| text.starts_with(line)) {
        let size = text.lines().find_map(|line| line.strip_prefix("size ")).map(str::trim);
        let size = size.filter(|size| size.bytes().all(|digit| digit.is_ascii_digit()));
        let size = size.map(|size| format!(" of {size} bytes")).unwrap_or_default();
        let found = format!("is a pointer of Git LFS, not the file{size} itself");
        (found, "run `git lfs install` and `git lfs pull` in the repository, or download the file")
    } else if let Some((_, kind)) = page {
        let hint = "the server answered with a page, such as an error or a sign-in; open the address in a browser, \
                    and get the file again";
        (format!("is an {kind} page"), hint)
    } else {
        return Ok(());
    };
    Err(StoreError::NotWeights { file: path.to_owned(), found, hint })
}
