//! Exclusive locks of paths.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use super::beside;
use crate::error::{Result, StoreError};

/// Maximum length of the text in a lock file, in bytes.
const MAX_HOLDER_BYTES: u64 = 300;

/// How often an empty lock file is read again, 5 ms apart: its holder writes it just after locking it.
const HOLDER_RETRIES: usize = 20;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// An exclusive lock for writing a path, among all processes and within this one.
///
/// It is a system lock on `.NAME.lock` in the same folder, so the system releases it when the process ends. The file
/// contains the holder of the lock.
#[derive(Debug)]
#[cfg_attr(not(unix), expect(dead_code, reason = "the file is only kept open, and stays"))]
pub(super) struct PathLock {
    path: PathBuf,
    /// Closing it releases the lock.
    file: File,
    is_exclusive: bool,
}

impl PathLock {
    /// Locks a path and waits for at most `patience`.
    ///
    /// # Errors
    /// [`StoreError::Locked`] with the holder, or [`StoreError::Io`] when the lock file cannot be created.
    pub(super) fn acquire(real: &Path, shown: &Path, patience: Duration) -> Result<PathLock> {
        let failed = |source| StoreError::io(shown, "write", source);
        let path = beside::named(real, ".lock");
        let started = Instant::now();
        loop {
            let mut file = open(&path).map_err(failed)?;
            let is_exclusive = match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) if started.elapsed() < patience => {
                    thread::sleep(PAUSE);
                    continue;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::Locked { path: shown.to_owned(), holder: holder(&mut file) });
                }
                // Some network file systems do not support locks. Each save is still atomic.
                Err(TryLockError::Error(_)) => false,
            };
            if is_exclusive && !is_at(&file, &path) {
                // The previous holder removed the file after it was opened here.
                continue;
            }
            // The holder is written as far as the disk has space for it.
            let _ = file.set_len(0).and_then(|()| file.write_all(this_process().as_bytes()));
            return Ok(PathLock { path, file, is_exclusive });
        }
    }

    /// Whether the file system supports locks, so that there is no other writer.
    pub(super) fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }
}

#[cfg(unix)]
impl Drop for PathLock {
    fn drop(&mut self) {
        // While the lock is held: another process may lock an unlocked file at any moment.
        if is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    }
    options.open(path)
}

/// Whether a path still refers to an open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        (Ok(_) | Err(_), _) => false,
    }
}

/// On systems where an open file cannot be removed safely, lock files are kept.
#[cfg(not(unix))]
fn is_at(_file: &File, _path: &Path) -> bool {
    true
}

/// Reads the process in the lock file.
fn holder(file: &mut File) -> String {
    let mut read = read_holder(file);
    for _ in 0..HOLDER_RETRIES {
        if !read.as_ref().is_ok_and(String::is_empty) {
            break;
        }
        thread::sleep(PAUSE);
        read = read_holder(file);
    }
    match read {
        Ok(text) if text == this_process() => format!("this process, {}", process::id()),
        Ok(text) if !text.is_empty() && !text.contains(char::is_control) => text,
        // On Windows no other process can read it.
        Ok(_) | Err(_) => "another process".to_owned(),
    }
}

fn read_holder(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.take(MAX_HOLDER_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn this_process() -> String {
    format!("process {} on {}", process::id(), host())
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "this machine".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_lock_error_names_the_holder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let lock = |patience| PathLock::acquire(&path, Path::new("shown"), patience);
        let first = lock(Duration::ZERO).unwrap();
        let error = lock(Duration::from_millis(20)).unwrap_err().to_string();
        let expected = format!("shown: is being written by this process, {}", process::id());
        assert!(error.starts_with(&expected), "{error}");
        let file = folder.path().join(".run.lock");
        fs::write(&file, "process 1 on elsewhere").unwrap();
        let error = lock(Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("is being written by process 1 on elsewhere"), "{error}");
        fs::write(&file, "\u{1b}[31m").unwrap();
        let error = lock(Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("is being written by another process"), "{error}");
        drop(first);
        assert!(lock(Duration::ZERO).is_ok());
        assert_eq!(file.exists(), cfg!(not(unix)));
    }

    #[test]
    fn a_holder_that_is_still_writing_its_name_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let file = folder.path().join(".run.lock");
        let first = PathLock::acquire(&path, &path, Duration::ZERO).unwrap();
        fs::write(&file, "").unwrap();
        let error = thread::scope(|scope| {
            let second = scope.spawn(|| PathLock::acquire(&path, &path, Duration::ZERO).unwrap_err());
            thread::sleep(PAUSE * 4);
            fs::write(&file, "process 1 on elsewhere").unwrap();
            second.join().unwrap().to_string()
        });
        assert!(error.contains("is being written by process 1 on elsewhere"), "{error}");
        drop(first);
    }

    #[test]
    fn waiting_writers_acquire_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let counter = std::sync::Mutex::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let _lock = PathLock::acquire(&path, &path, Duration::from_secs(60)).unwrap();
                        let mut counter = counter.try_lock().expect("two hold the lock");
                        *counter += 1;
                    }
                });
            }
        });
        assert_eq!(counter.into_inner().unwrap(), 80);
    }

    #[test]
    fn a_stale_lock_file_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        fs::write(folder.path().join(".run.lock"), "process 1 on elsewhere").unwrap();
        assert!(PathLock::acquire(&path, &path, Duration::ZERO).unwrap().is_exclusive());
    }

    #[cfg(unix)]
    #[test]
    fn a_symlink_as_lock_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        fs::write(&precious, "text").unwrap();
        std::os::unix::fs::symlink(&precious, folder.path().join(".run.lock")).unwrap();
        let path = folder.path().join("run");
        assert!(PathLock::acquire(&path, &path, Duration::ZERO).is_err());
        assert_eq!(fs::read_to_string(precious).unwrap(), "text");
    }
}
