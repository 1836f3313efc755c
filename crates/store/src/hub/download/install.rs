//! Snapshots and references of the cache.

use std::fs;
use std::path::{Path, PathBuf};

use super::create_folder;
use crate::atomic::{beside, write_file};
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
    // The new file replaces an old one atomically. Threads and processes may link it at once.
    let create = |temporary: &Path| place(entry, etag, file, temporary);
    let (temporary, ()) = beside::create(&path, beside::PARTIAL, create).map_err(failed)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_link_one_file_at_once() {
        let root = tempfile::tempdir().unwrap();
        create_folder(&root.path().join("blobs")).unwrap();
        fs::write(root.path().join("blobs/e1"), "weights").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|_| link(root.path(), "c1", "a/weights", "e1").unwrap()));
            }
        });
        let folder = snapshot(root.path(), "c1").join("a");
        assert_eq!(fs::read_to_string(folder.join("weights")).unwrap(), "weights");
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "temporary links are left");
    }
}
