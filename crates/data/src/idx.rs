//! The IDX file format of MNIST: a header with the element type and the sizes, then the elements.
//!
//! | bytes | meaning |
//! |---|---|
//! | 2 | zero |
//! | 1 | element type; `0x08` is an unsigned byte, the only one read here |
//! | 1 | number of dimensions |
//! | 4 each | size of each dimension, big-endian |
//! | the rest | elements, the last dimension varying fastest |
//!
//! Source: the description on the MNIST page of Y. LeCun, C. Cortes and C. J. C. Burges.
//!
//! The reader returns the header first, then the elements. It allocates no more than it has read, so it rejects early
//! both a file that declares huge sizes and a gzip bomb.
//!
//! ```
//! use kiln_data::idx::IdxReader;
//!
//! let file = [0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9];
//! let reader = IdxReader::new("three.idx", file.as_slice())?;
//! assert_eq!(reader.dims(), [1, 3]);
//! assert_eq!(reader.read_elements(1024)?, [7, 8, 9]);
//! # Ok::<(), kiln_data::DataError>(())
//! ```

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::DataError;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const UNSIGNED_BYTE: u8 = 0x08;

/// Reader of an IDX file of unsigned bytes. The header is already read.
pub struct IdxReader<'a> {
    source: Source<'a>,
    dims: Vec<u32>,
}

impl IdxReader<'static> {
    /// Opens a file, gzipped or plain. The format is detected from its first bytes.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new), and [`DataError::Io`] if the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let file = File::open(path).map_err(|error| DataError::io(path, error))?;
        Self::new(path, BufReader::new(file))
    }
}

impl<'a> IdxReader<'a> {
    /// Reads the header from `reader`, gzipped or plain. `name` is the file name in errors.
    ///
    /// # Errors
    ///
    /// - [`DataError::Truncated`] if the header is incomplete;
    /// - [`DataError::Malformed`] if it is not an IDX file of unsigned bytes, or the gzip stream is corrupt;
    /// - [`DataError::Io`] if reading fails.
    pub fn new(name: impl Into<PathBuf>, reader: impl Read + 'a) -> Result<Self, DataError> {
        let mut source = Source::open(name.into(), reader)?;
        let mut magic = [0; 4];
        source.fill(&mut magic)?;
        let [zero_high, zero_low, element, rank] = magic;
        if [zero_high, zero_low] != [0, 0] {
            let message =
                format!("not an IDX file: starts with {magic:02x?} instead of [00, 00, type, rank]");
            return Err(DataError::malformed(&source.file, 0, message));
        }
        if element != UNSIGNED_BYTE {
            let message =
                format!("IDX element type 0x{element:02x} is not supported, only 0x08 (unsigned byte)");
            return Err(DataError::malformed(&source.file, 2, message));
        }
        // One byte holds the rank, so this is at most 1020 bytes.
        let mut sizes = vec![0; 4 * usize::from(rank)];
        source.fill(&mut sizes)?;
        let dims = sizes.chunks_exact(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]])).collect();
        Ok(Self { source, dims })
    }

    /// Returns the declared size of each dimension, outermost first. The file may still be shorter.
    pub fn dims(&self) -> &[u32] {
        &self.dims
    }

    /// Reads all elements, in row-major order.
    ///
    /// # Errors
    ///
    /// - [`DataError::Malformed`] if the header declares more than `limit` elements, or the gzip stream is
    ///   corrupt;
    /// - [`DataError::Truncated`] or [`DataError::TrailingData`] if there are fewer or more elements than
    ///   declared;
    /// - [`DataError::Io`] if reading fails.
    pub fn read_elements(self, limit: u64) -> Result<Vec<u8>, DataError> {
        let Self { source, dims } = self;
        let declared = dims.iter().try_fold(1u64, |product, size| product.checked_mul(u64::from(*size)));
        match declared {
            Some(declared) if declared <= limit => source.read_to_end(declared),
            Some(_) | None => {
                let message = format!("declared sizes {dims:?} exceed the limit of {limit} elements");
                Err(DataError::malformed(&source.file, 4, message))
            }
        }
    }
}

impl fmt::Debug for IdxReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdxReader")
            .field("file", &self.source.file)
            .field("dims", &self.dims)
            .finish_non_exhaustive()
    }
}

/// A file's decompressed contents, with the number of bytes read so far.
struct Source<'a> {
    file: PathBuf,
    contents: Box<dyn Read + 'a>,
    offset: u64,
}

impl<'a> Source<'a> {
    fn open(file: PathBuf, mut reader: impl Read + 'a) -> Result<Self, DataError> {
        let mut start = Vec::with_capacity(GZIP_MAGIC.len());
        let taken = reader.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut start);
        taken.map_err(|error| DataError::io(&file, error))?;
        let gzipped = start == GZIP_MAGIC;
        let whole = io::Cursor::new(start).chain(reader);
        let contents: Box<dyn Read + 'a> =
            if gzipped { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
        Ok(Self { file, contents, offset: 0 })
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), DataError> {
        let expected = self.offset + buffer.len() as u64;
        let mut filled = 0;
        while filled < buffer.len() {
            match self.contents.read(&mut buffer[filled..]) {
                Ok(0) => return Err(self.truncated(expected)),
                Ok(count) => {
                    filled += count;
                    self.offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error, expected)),
            }
        }
        Ok(())
    }

    /// Reads the rest of the contents, which must be `count` bytes. The buffer grows with the bytes read, and reading
    /// stops at the first surplus byte.
    fn read_to_end(mut self, count: u64) -> Result<Vec<u8>, DataError> {
        let expected = self.offset + count;
        let mut bytes = Vec::new();
        let result = self.contents.by_ref().take(count + 1).read_to_end(&mut bytes);
        self.offset += bytes.len() as u64;
        match result {
            Err(error) => Err(self.failed(error, expected)),
            Ok(_) if self.offset < expected => Err(self.truncated(expected)),
            Ok(_) if self.offset > expected => {
                Err(DataError::TrailingData { file: self.file, offset: expected })
            }
            Ok(_) => Ok(bytes),
        }
    }

    fn truncated(&self, expected: u64) -> DataError {
        DataError::Truncated { file: self.file.clone(), offset: self.offset, expected }
    }

    /// Distinguishes a corrupt gzip stream from an I/O error.
    fn failed(&self, error: io::Error, expected: u64) -> DataError {
        let kind = error.kind();
        if kind == io::ErrorKind::UnexpectedEof {
            self.truncated(expected)
        } else if kind == io::ErrorKind::InvalidInput || kind == io::ErrorKind::InvalidData {
            DataError::malformed(&self.file, self.offset, format!("corrupt gzip stream: {error}"))
        } else {
            DataError::io(&self.file, error)
        }
    }
}
