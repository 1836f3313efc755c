//! Snapshots and references of the cache.

use std::fs;
use std::path::{Path, PathBuf};

use super::create_folder;
use crate::atomic::write_file;
use crate::error::{Result, StoreError};

/// Returns the folder of a commit.
pub(super) fn snapshot(entry: &Path, commit: &str) -> PathBuf {
    entry.join("snapshots").join(commit)
}

/// Whether a snapshot contains a file whose contents exist.
pub(super) fn is_installed(entry: &Path, commit: &str, file: &str) -> bool {
    snapshot(entry, commit).join(file).is_file()
}

/// Puts a blob into a snapshot: as a relative symbolic link, or as a copy on systems where links need privileges.
pub(super) fn link(entry: &Path, commit: &str, file: &str, etag: &str) -> Result<()> {
    let path = snapshot(entry, commit).join(file);
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    let failed = |source| StoreError::io(&path, "write", source);
    // The new file replaces an old one atomically.
    let temporary = path.with_file_name(format!(".{etag}.{}.link", std::process::id()));
    let _ = fs::remove_file(&temporary);
    place(entry, etag, file, &temporary).map_err(failed)?;
    fs::rename(&temporary, &path).map_err(|source| {
        let _ = fs::remove_file(&temporary);
        failed(source)
    })
}

#[cfg(unix)]
fn place(_entry: &Path, etag: &str, file: &str, temporary: &Path) -> std::io::Result<()> {
    // From the folder of the file to the entry: out of the file's folders, the commit and `snapshots`.
    let mut target: PathBuf = std::iter::repeat_n("..", file.split('/').count() + 1).collect();
    target.push("blobs");
    target.push(etag);
    std::os::unix::fs::symlink(target, temporary)
}

#[cfg(not(unix))]
fn place(entry: &Path, etag: &str, _file: &str, temporary: &Path) -> std::io::Result<()> {
    fs::copy(entry.join("blobs").join(etag), temporary).map(drop)
}

/// Lets a branch or tag refer to a commit.
pub(super) fn write_ref(entry: &Path, revision: &str, commit: &str) -> Result<()> {
    let path = entry.join("refs").join(revision);
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    write_file(&path, |writer| {
        writer.write_all(commit.as_bytes()).map_err(|source| StoreError::io(&path, "write", source))
    })
}
