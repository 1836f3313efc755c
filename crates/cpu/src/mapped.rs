//! Memory-mapped files.

use memmap2::{Mmap, MmapOptions};
use std::fs::File;
use std::io;

/// A memory-mapped file as bytes, which the system reads at their first use. Tensors over it
/// ([`write_shared`](kiln_ir::Engine::write_shared)) need no memory of their own, and are created without reading.
///
/// Kiln never writes to the file: the mapping is private and read-only, and no op reuses its memory in place.
///
/// # Files that change
/// The file must not change while it is mapped. If another program writes it in place, the bytes may change under the
/// tensors. If it becomes shorter, the system kills the process that reads past its new end (`SIGBUS`). Replacing it by
/// renaming another file over it, as Kiln does when it saves, and deleting it are harmless: the mapping stays valid.
#[derive(Debug)]
pub struct MappedFile(Mmap);

impl MappedFile {
    /// Maps the first `len` bytes of an open file.
    ///
    /// # Errors
    /// When the file is shorter, `len` is 0, or the file cannot be mapped, for example because the system does not
    /// support it or it is no regular file.
    ///
    /// ```
    /// use kiln_cpu::MappedFile;
    ///
    /// # let path = std::env::temp_dir().join(format!("kiln-mapped-{}", std::process::id()));
    /// std::fs::write(&path, b"four")?;
    /// let mapped = MappedFile::new(&std::fs::File::open(&path)?, 4)?;
    /// assert_eq!(mapped.as_ref(), b"four");
    /// assert!(MappedFile::new(&std::fs::File::open(&path)?, 5).is_err());
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(file: &File, len: usize) -> io::Result<MappedFile> {
        let metadata = file.metadata()?;
        if !metadata.is_file() || len == 0 {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "only files with contents can be mapped"));
        }
        if metadata.len() < len as u64 {
            let problem = std::format!("{} bytes, but {len} were requested", metadata.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        // SAFETY: the mapping is private, and plain bytes, valid for any contents. The user must not change the file,
        // as documented above: no system can guarantee it.
        let mapping = unsafe { MmapOptions::new().len(len).map_copy_read_only(file) }?;
        Ok(MappedFile(mapping))
    }

    /// Requests that the system reads these bytes now, and maps them at once rather than a few pages at a time at their
    /// first use. Only a hint: it does nothing if the system does not support it.
    pub fn prefetch(&self, bytes: core::ops::Range<usize>) {
        #[cfg(target_os = "linux")]
        if bytes.start < bytes.end && bytes.end <= self.0.len() {
            let _ = self.0.advise_range(memmap2::Advice::PopulateRead, bytes.start, bytes.len());
        }
        #[cfg(not(target_os = "linux"))]
        let _ = bytes;
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
