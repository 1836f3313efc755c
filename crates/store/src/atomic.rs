//! Atomic writes: no reader sees a partial file.
//!
//! A file or folder is written under a temporary name in the same folder, synced to disk, and renamed. Renaming
//! replaces the target atomically: after a crash, a full disk or an error, the target is the old or the new version. A
//! killed process leaves the temporary file behind; the next writer of the same target removes it.

pub(crate) mod beside;
mod folder;
mod lock;
mod snapshot;

use std::fs::{self, File, FileType, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Result, StoreError};

pub(crate) use folder::{FolderKind, FolderWriter};
pub(crate) use snapshot::Snapshot;

/// The size of the write buffer in bytes.
const BUFFER: usize = 1 << 20;

/// Maximum number of folder entries searched for leftovers before a write: a longer search would take longer than the
/// write.
const MAX_ENTRIES: usize = 4096;

/// Writes a file atomically. `write` writes its contents. On an error the target does not change, and no other file is
/// left.
///
/// If the target is a symbolic link, the file it points to is written. Temporary files of killed writers of the same
/// target are removed; at most 4,096 folder entries are searched for them.
///
/// # Errors
/// The error of `write`. [`StoreError::NotReplaced`] when the target exists and is not a regular file, such as a folder
/// or a device. [`StoreError::Io`] with the target's path.
pub fn write_file(target: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = |source| StoreError::io(target, "write", source);
    let real = beside::resolve(target).map_err(failed)?;
    if let Ok(metadata) = fs::symlink_metadata(&real)
        && !metadata.is_file()
    {
        let found = describe(metadata.file_type()).to_owned();
        return Err(StoreError::NotReplaced { path: target.to_owned(), found });
    }
    beside::all(&real, beside::PARTIAL, MAX_ENTRIES).iter().for_each(|path| remove_leftover(path));
    let partial = PartialFile::create(&real).map_err(failed)?;
    fill(&partial.file, target, write)?;
    fs::rename(&partial.path, &real).map_err(failed)?;
    sync_folder(beside::parent(&real));
    Ok(())
}

/// Writes the contents of a newly created file and syncs it to disk. `shown` is its path in messages.
pub(crate) fn fill<T>(
    file: &File,
    shown: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
    let mut writer = BufWriter::with_capacity(BUFFER, file);
    let result = write(&mut writer)?;
    let written = writer.flush().and_then(|()| file.sync_all());
    written.map(|()| result).map_err(|source| StoreError::io(shown, "write", source))
}

/// A temporary file, deleted on drop. It is locked while its writer is alive.
struct PartialFile {
    path: PathBuf,
    file: File,
}

impl PartialFile {
    fn create(real: &Path) -> io::Result<PartialFile> {
        let create = |path: &Path| {
            let file = OpenOptions::new().write(true).create_new(true).open(path)?;
            // Between create and lock, another writer may take the file for a leftover. It is then removed, or will be.
            match file.try_lock() {
                Ok(()) if fs::symlink_metadata(path).is_err() => {
                    Err(io::Error::from(io::ErrorKind::AlreadyExists))
                }
                Err(TryLockError::WouldBlock) => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
                // Without locks, leftovers are never removed.
                Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
            }
        };
        let (path, file) = beside::create(real, beside::PARTIAL, create)?;
        Ok(PartialFile { path, file })
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After success no file has this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the temporary file of a writer that has ended.
fn remove_leftover(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
        && let Ok(file) = OpenOptions::new().write(true).open(path)
        && file.try_lock().is_ok()
    {
        let _ = fs::remove_file(path);
    }
}

/// Describes a file that is not a regular file, for messages.
fn describe(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_block_device() || kind.is_char_device() {
            return "a device";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_fifo() {
            return "a pipe";
        }
    }
    if kind.is_dir() {
        "a folder"
    } else if kind.is_file() {
        "a file"
    } else {
        "a special file"
    }
}

/// Syncs the directory entries of a folder to disk, where the system supports it. If it fails, a power failure may lose
/// the newest version.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn text(text: &'static str) -> impl FnOnce(&mut dyn Write) -> Result<()> {
        move |writer| {
            writer.write_all(text.as_bytes()).map_err(|error| StoreError::io(Path::new(""), "write", error))
        }
    }

    #[test]
    fn a_failing_writer_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        write_file(&path, |writer| writer.write_all(b"good").map_err(|e| StoreError::io(&path, "write", e)))
            .unwrap();
        let error = write_file(&path, |writer| {
            writer.write_all(&[0; 3 << 20]).unwrap();
            Err(StoreError::io(&path, "write", io::Error::other("No space left on device")))
        });
        let message = error.unwrap_err().to_string();
        assert!(message.ends_with("weights: cannot write: No space left on device"), "{message}");
        assert_eq!(fs::read(&path).unwrap(), b"good");
        assert_eq!(names(folder.path()), ["weights"]);
    }

    #[test]
    fn an_unwritable_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "no folder").unwrap();
        let error = write_file(&file.join("weights"), |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("weights: cannot write: "), "{error}");
        assert!(write_file(Path::new("/"), |_| Ok(())).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_symlink_stays_a_symlink() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let new =
            |writer: &mut dyn Write| writer.write_all(b"new").map_err(|e| StoreError::io(&link, "write", e));
        write_file(&link, new).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
    }

    #[cfg(unix)]
    #[test]
    fn a_dangling_symlink_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("real"), folder.path().join("link"));
        std::os::unix::fs::symlink("real", &link).unwrap();
        write_file(&link, text("new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
    }

    #[test]
    fn temporary_files_of_dead_writers_only_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        for leftover in [".weights.4711-0.partial", ".weights.0123456789abcdef.partial"] {
            fs::write(folder.path().join(leftover), "half").unwrap();
        }
        fs::write(folder.path().join(".weights.of-the-user.partial"), "mine").unwrap();
        write_file(&path, |writer| {
            let outer = names(folder.path());
            assert_eq!(outer.len(), 2, "{outer:?}");
            write_file(&path, text("inner"))?;
            assert!(names(folder.path()).iter().any(|name| outer[0] == *name), "removed under its writer");
            text("outer")(writer)
        })
        .unwrap();
        assert_eq!(names(folder.path()), [".weights.of-the-user.partial", "weights"]);
        assert_eq!(fs::read(&path).unwrap(), b"outer");
    }

    #[test]
    fn concurrent_writers_of_one_file_are_atomic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        std::thread::scope(|scope| {
            for contents in ["one", "two", "three", "four"] {
                let path = &path;
                scope.spawn(move || (0..50).for_each(|_| write_file(path, text(contents)).unwrap()));
            }
        });
        assert!(["one", "two", "three", "four"].contains(&fs::read_to_string(&path).unwrap().as_str()));
        assert_eq!(names(folder.path()), ["weights"]);
    }

    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it");
        let refused = |path: &Path, expected: &str| {
            let error = write_file(path, |_| panic!("nothing to write to")).unwrap_err();
            assert!(matches!(error, StoreError::NotReplaced { .. }), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        };
        refused(folder.path(), "a folder exists");
        refused(Path::new("/dev/null"), "a device exists");
        let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        refused(&path, "it: a socket exists");
        drop(socket);
        fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        refused(&path, "it: a pipe exists");
        assert_eq!(names(folder.path()), ["it"]);
    }
}
