//! The bytes of a file in memory, for parsers: mapped or read.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_backends::MappedFile;
use kiln_tensor::SharedBytes;

use crate::error::{Result, StoreError};
use crate::file::{MAPPED_FROM, MAPS};

/// The file name of in-memory bytes in messages.
pub(crate) const MEMORY: &str = "bytes in memory";

/// The bytes of a file. Files of at least 1 MiB are memory-mapped where the system supports it; others are read.
///
/// Clones share the bytes.
#[derive(Clone)]
pub(crate) struct FileBytes {
    path: PathBuf,
    bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    mapped: bool,
}

impl FileBytes {
    /// Opens a file.
    pub(crate) fn open(path: &Path) -> Result<FileBytes> {
        let failed = |source| StoreError::io(path, "read", source);
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if MAPS
            && length >= MAPPED_FROM
            && let Some(mapped) =
                usize::try_from(length).ok().and_then(|length| MappedFile::new(&file, length).ok())
        {
            return Ok(FileBytes { path: path.to_owned(), bytes: Arc::new(mapped), mapped: true });
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        Ok(FileBytes { path: path.to_owned(), bytes: Arc::new(bytes), mapped: false })
    }

    /// Reads a file without memory-mapping.
    pub(crate) fn read(path: &Path) -> Result<FileBytes> {
        let bytes = std::fs::read(path).map_err(|source| StoreError::io(path, "read", source))?;
        Ok(FileBytes::named(path, bytes))
    }

    /// Wraps bytes in memory. Messages call them "bytes in memory".
    pub(crate) fn from_vec(bytes: Vec<u8>) -> FileBytes {
        FileBytes::named(Path::new(MEMORY), bytes)
    }

    /// Wraps bytes in memory that are, or were computed from, the contents of a file. `path` is for messages.
    pub(crate) fn named(path: &Path, bytes: Vec<u8>) -> FileBytes {
        FileBytes { path: path.to_owned(), bytes: Arc::new(bytes), mapped: false }
    }

    /// Returns the path, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns all bytes.
    pub(crate) fn all(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }

    /// Returns a range of the bytes.
    ///
    /// # Errors
    /// When the file is shorter; the error names `what` and the offset.
    pub(crate) fn slice(&self, range: Range<u64>, what: &str) -> Result<&[u8]> {
        let range = self.checked(range, what)?;
        Ok(&self.all()[range])
    }

    /// Returns a range of the bytes that shares the memory of the file.
    ///
    /// # Errors
    /// See [`slice`](FileBytes::slice).
    pub(crate) fn shared(&self, range: Range<u64>, what: &str) -> Result<SharedBytes> {
        let range = self.checked(range.clone(), what)?;
        SharedBytes::new(self.bytes.clone(), range.clone()).map_err(|error| {
            StoreError::malformed(&self.path, range.start as u64, format!("{what}: {error}"))
        })
    }

    /// Returns whether the file is memory-mapped.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped
    }

    fn checked(&self, range: Range<u64>, what: &str) -> Result<Range<usize>> {
        let held = self.all().len() as u64;
        if range.start > range.end || range.end > held {
            let problem =
                format!("{what} has bytes {}..{}, but the file has {held} bytes", range.start, range.end);
            return Err(StoreError::malformed(&self.path, range.start.min(held), problem));
        }
        // Both are at most the length of a slice.
        Ok(range.start as usize..range.end as usize)
    }
}

impl std::fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileBytes({}, {} bytes)", self.path.display(), self.all().len())
    }
}
