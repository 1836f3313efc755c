//! Locks of blobs: one process downloads each of them.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Result, StoreError};

/// How often a waiting process looks at the lock.
const POLL: Duration = Duration::from_millis(50);

/// An exclusive lock of a blob among processes, at the path that `huggingface_hub` locks too. The system releases it when
/// the process ends. The file stays, so that no two processes lock different files of one path.
#[derive(Debug)]
pub(super) struct BlobLock {
    /// Closing it releases the lock. `None` where the file system does not support locks.
    _file: Option<File>,
}

impl BlobLock {
    /// Locks a blob. Waits as long as the holder's download grows at least once in `patience`.
    ///
    /// # Errors
    /// [`StoreError::Download`] when the holder makes no progress; [`StoreError::Io`] when the file cannot be created.
    pub(super) fn acquire(path: &Path, download: &Path, patience: Duration, url: &str) -> Result<BlobLock> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(|source| StoreError::io(path, "create", source))?;
        let size = || fs::metadata(download).map(|metadata| metadata.len()).ok();
        let (mut last_size, mut since) = (size(), Instant::now());
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(BlobLock { _file: Some(file) }),
                // Some network file systems do not support locks.
                Err(TryLockError::Error(_)) => return Ok(BlobLock { _file: None }),
                Err(TryLockError::WouldBlock) => {}
            }
            let current = size();
            if current != last_size {
                (last_size, since) = (current, Instant::now());
            } else if since.elapsed() >= patience {
                let problem = format!(
                    "another process downloads it, without progress for {patience:.0?}\n  hint: end that process"
                );
                return Err(StoreError::download(url, problem));
            }
            thread::sleep(POLL);
        }
    }
}
