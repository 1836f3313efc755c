//! NumPy archives: `.npz` files.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;
use flate2::{Crc, CrcReader};
use kiln_tensor::{Shape, TensorData, TensorType};

use super::elements::{read_array, read_pairs, write_array};
use super::header::{Header, Numbers};
use super::input::{ByteSource, Input};
use super::{MEMORY, open};
use crate::atomic::write_file;
use crate::error::{Result, StoreError};
use crate::names::closest;
use crate::source::{TensorContents, TensorInfo, TensorSource, WeightFormat};
use crate::zip::{Directory, Entry, write_directory, write_local};

/// The suffix that NumPy appends to an array's name to form the entry's name.
const ENDING: &str = ".npy";

/// A `.npz` file that is open for reading. Opening reads only the list of names; arrays are read one at a time.
///
/// ```
/// use kiln_store::numpy::{self, Archive, Compression};
/// use kiln_tensor::{DType, TensorData, TensorType};
///
/// let named = [("x".to_owned(), TensorData::from([1.0f32, 2.0])), ("y".to_owned(), TensorData::from([true]))];
/// let archive = Archive::from_bytes(numpy::archive_to_bytes(named, Compression::Stored)?)?;
/// assert_eq!(archive.names().collect::<Vec<_>>(), ["x", "y"]);
/// assert_eq!(archive.ty("x")?, TensorType::new([2], DType::F32));
/// assert_eq!(archive.read("y")?.into_vec::<bool>()?, [true]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Entries whose name does not end in `.npy` are not arrays and are not listed.
///
/// Compressed arrays can be 1,000 times as big as the file. Without [`with_max_bytes`](Archive::with_max_bytes), all
/// compressed arrays together may have [`DEFAULT_MAX_BYTES`](Archive::DEFAULT_MAX_BYTES), or 16 times the length of the
/// file if that is more; arrays of an archive beyond that cannot be read. Stored arrays have no limit: the file is as
/// long as they are.
pub struct Archive {
    path: PathBuf,
    source: Mutex<Box<dyn Source>>,
    directory: Directory,
    /// The most bytes of all compressed arrays.
    max_bytes: u64,
    /// Index in the directory of each array, by its name without the suffix.
    arrays: BTreeMap<String, usize>,
}

trait Source: Read + Seek + Send {}

impl<T: Read + Seek + Send> Source for T {}

impl Archive {
    /// The most bytes that all compressed arrays of an archive may have together: 1 GiB.
    pub const DEFAULT_MAX_BYTES: u64 = 1 << 30;

    /// The ratio of compression up to which an archive may have more than [`DEFAULT_MAX_BYTES`](Self::DEFAULT_MAX_BYTES).
    const MAX_RATIO: u64 = 16;

    /// Opens a file and reads the list of its arrays.
    ///
    /// # Errors
    /// When the file cannot be read, is not a zip archive, is truncated or damaged, contains two arrays of one name, or
    /// contains entries but no array.
    pub fn open(path: impl AsRef<Path>) -> Result<Archive> {
        let path = path.as_ref();
        let (file, length) = open(path)?;
        Archive::of(path, Box::new(BufReader::new(file)), length)
    }

    /// Opens an archive from bytes in memory.
    ///
    /// # Errors
    /// See [`open`](Archive::open).
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Archive> {
        let length = bytes.len() as u64;
        Archive::of(Path::new(MEMORY), Box::new(Cursor::new(bytes)), length)
    }

    fn of(path: &Path, mut source: Box<dyn Source>, length: u64) -> Result<Archive> {
        let directory = Directory::read(path, &mut source, length)?;
        let mut arrays = BTreeMap::new();
        for (place, entry) in directory.entries.iter().enumerate() {
            let Some(name) = entry.name.strip_suffix(ENDING) else { continue };
            if arrays.insert(name.to_owned(), place).is_some() {
                return Err(StoreError::Duplicate { file: path.to_owned(), name: name.to_owned() });
            }
        }
        if let ([first, ..], true) = (&*directory.entries, arrays.is_empty()) {
            let problem = format!(
                "the archive contains no array, but `{}`\n  hint: the names of arrays end in `{ENDING}`",
                first.name.escape_debug()
            );
            return Err(StoreError::malformed(path, first.offset, problem));
        }
        let max_bytes = Self::DEFAULT_MAX_BYTES.max(length.saturating_mul(Self::MAX_RATIO));
        Ok(Archive { path: path.to_owned(), source: Mutex::new(source), directory, max_bytes, arrays })
    }

    /// Sets the most bytes that all compressed arrays may have together.
    ///
    /// ```
    /// use kiln_store::numpy::{self, Archive, Compression};
    /// use kiln_tensor::TensorData;
    ///
    /// let named = [("x".to_owned(), TensorData::from(vec![0u8; 1000]))];
    /// let bytes = numpy::archive_to_bytes(named, Compression::Deflated)?;
    /// let archive = Archive::from_bytes(bytes)?.with_max_bytes(1000);
    /// assert!(archive.read("x").unwrap_err().to_string().contains("more than the 1000 allowed"));
    /// assert!(archive.with_max_bytes(2000).read("x").is_ok());
    /// # Ok::<(), kiln_store::StoreError>(())
    /// ```
    #[must_use]
    pub fn with_max_bytes(mut self, bytes: u64) -> Archive {
        self.max_bytes = bytes;
        self
    }

    /// Returns the file's path; `bytes in memory` for an archive in memory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Iterates over the names of the arrays, in alphabetical order, without the suffix `.npy`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.arrays.keys().map(String::as_str)
    }

    /// Returns the number of arrays.
    pub fn len(&self) -> usize {
        self.arrays.len()
    }

    /// Returns whether the archive contains no arrays.
    pub fn is_empty(&self) -> bool {
        self.arrays.is_empty()
    }

    /// Returns the type of an array; for a complex array, that of its real part. Reads only the header.
    ///
    /// # Errors
    /// When there is no array of that name, its header is damaged, or Kiln does not support its dtype.
    pub fn ty(&self, name: &str) -> Result<TensorType> {
        self.with_array(name, false, |input| {
            let header = Header::read(input)?;
            let (Numbers::Real(dtype) | Numbers::Complex(dtype)) = header.numbers;
            Ok(TensorType { shape: header.shape, dtype })
        })
    }

    /// Reads an array.
    ///
    /// # Errors
    /// When there is no array of that name, it is damaged (its checksum is verified), Kiln does not support its dtype, or
    /// the compressed arrays exceed the limit.
    pub fn read(&self, name: &str) -> Result<TensorData> {
        self.with_array(name, true, read_array)
    }

    /// Reads a complex array as real and imaginary parts, like [`read_complex`](super::read_complex).
    ///
    /// # Errors
    /// The errors of [`read`](Archive::read), and when the array is not complex.
    pub fn read_complex(&self, name: &str) -> Result<(TensorData, TensorData)> {
        self.with_array(name, true, read_pairs)
    }

    /// Reads an entry. With `whole`, checks that the entry ends there and verifies its checksum.
    fn with_array<T>(
        &self,
        name: &str,
        whole: bool,
        read: impl FnOnce(&mut Input<'_>) -> Result<T>,
    ) -> Result<T> {
        let entry = self.entry(name)?;
        if whole && entry.deflated {
            self.check_total()?;
        }
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let start = self.directory.data_start(&self.path, &mut *source, entry)?;
        let place = ByteSource::entry(&self.path, &entry.name, start, entry.deflated);
        source.seek(SeekFrom::Start(start)).map_err(|error| StoreError::io(&self.path, "read", error))?;
        let bytes = (&mut *source).take(entry.compressed);
        let contents = if entry.deflated {
            Contents::Deflated(DeflateDecoder::new(BufReader::new(bytes)))
        } else {
            Contents::Stored(bytes)
        };
        let mut reader = CrcReader::new(contents);
        let result = read(&mut Input::new(&mut reader, entry.size, place))?;
        if whole {
            check_end(reader, entry, &place)?;
        }
        Ok(result)
    }

    /// Refuses compressed arrays that are too big together.
    fn check_total(&self) -> Result<()> {
        let entries = self.arrays.values().map(|&place| &self.directory.entries[place]);
        let sizes = entries.filter(|entry| entry.deflated).map(|entry| entry.size);
        let total = sizes.fold(0, u64::saturating_add);
        if total <= self.max_bytes {
            return Ok(());
        }
        let problem = format!(
            "the compressed arrays have {total} bytes, more than the {} allowed\n  hint: if the file is trusted, \
             `Archive::with_max_bytes` raises the limit",
            self.max_bytes
        );
        Err(StoreError::malformed(&self.path, 0, problem))
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        match self.arrays.get(name) {
            Some(&place) => Ok(&self.directory.entries[place]),
            None => Err(StoreError::NotFound {
                file: self.path.clone(),
                name: name.to_owned(),
                suggestion: closest(name, self.names()).map(str::to_owned),
            }),
        }
    }
}

impl TensorSource for Archive {
    fn path(&self) -> &Path {
        Archive::path(self)
    }

    fn format(&self) -> WeightFormat {
        WeightFormat::Npz
    }

    fn names(&self) -> Vec<&str> {
        Archive::names(self).collect()
    }

    /// Returns shape and dtype of an array, from its header. Complex arrays have no dtype, and arrays that are no tensors
    /// (objects, strings) have neither shape nor dtype; [`contents`](TensorSource::contents) returns the reason.
    fn info(&self, name: &str) -> Option<TensorInfo> {
        self.entry(name).ok()?;
        let header = self.with_array(name, false, Header::read);
        Some(match header {
            Ok(Header { shape, numbers: Numbers::Real(dtype), .. }) => {
                TensorInfo { shape, dtype: Some(dtype), dtype_name: dtype.name().to_owned(), blocks: None }
            }
            Ok(Header { shape, numbers: Numbers::Complex(part), .. }) => {
                let dtype_name = format!("complex{}", 16 * part.size());
                TensorInfo { shape, dtype: None, dtype_name, blocks: None }
            }
            Err(_) => {
                let dtype_name = "unknown".to_owned();
                TensorInfo { shape: Shape::default(), dtype: None, dtype_name, blocks: None }
            }
        })
    }

    fn contents(&self, name: &str) -> Result<TensorContents> {
        self.read(name).map(TensorContents::Host)
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive").field("path", &self.path).field("names", &self.arrays.keys()).finish()
    }
}

/// The bytes of an entry, stored or deflated.
enum Contents<'a> {
    Stored(io::Take<&'a mut Box<dyn Source>>),
    Deflated(DeflateDecoder<BufReader<io::Take<&'a mut Box<dyn Source>>>>),
}

impl Read for Contents<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Contents::Stored(stored) => stored.read(bytes),
            Contents::Deflated(deflated) => deflated.read(bytes),
        }
    }
}

fn check_end(mut reader: CrcReader<Contents<'_>>, entry: &Entry, place: &ByteSource<'_>) -> Result<()> {
    let found = reader.crc().sum();
    let more = reader.read(&mut [0]).map_err(|error| place.failed(entry.size, error))?;
    if more > 0 {
        let problem = format!("continues after its {} declared bytes", entry.size);
        return Err(place.malformed(entry.size, problem));
    }
    if found != entry.crc {
        let problem = format!(
            "the checksum is {found:08x}, but should be {:08x}\n  hint: the file is damaged; get it again",
            entry.crc
        );
        return Err(place.malformed(0, problem));
    }
    Ok(())
}

/// Reads all arrays of a `.npz` file, by name. Use [`Archive`] to read some of them, or to raise the limit of compressed
/// arrays.
///
/// # Errors
/// The errors of [`Archive::open`] and [`Archive::read`].
pub fn read_archive(path: impl AsRef<Path>) -> Result<BTreeMap<String, TensorData>> {
    let archive = Archive::open(path)?;
    archive.names().map(|name| Ok((name.to_owned(), archive.read(name)?))).collect()
}

/// The compression of the arrays in an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Stored without compression, like `numpy.savez`.
    #[default]
    Stored,
    /// Deflate compression, like `numpy.savez_compressed`: smaller for repetitive data, and several times slower.
    Deflated,
}

/// Writes named arrays to a `.npz` file, in their order. On an error the file does not change. Equal arrays produce
/// equal bytes.
///
/// Each array is taken from the iterator when its entry is written, so an iterator that reads or computes them holds one
/// at a time.
///
/// # Errors
/// When two arrays have the same name, a name is longer than 65,531 bytes, or the file cannot be written.
pub fn write_archive(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (String, TensorData)>,
    compression: Compression,
) -> Result<()> {
    write_arrays(path.as_ref(), &mut tensors.into_iter().map(Ok::<_, StoreError>), compression)
}

/// Returns the bytes of a `.npz` file with these arrays.
///
/// # Errors
/// When two arrays have the same name, or a name is longer than 65,531 bytes.
pub fn archive_to_bytes(
    tensors: impl IntoIterator<Item = (String, TensorData)>,
    compression: Compression,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write_entries(
        Path::new(MEMORY),
        &mut bytes,
        &mut tensors.into_iter().map(Ok::<_, StoreError>),
        compression,
    )?;
    Ok(bytes)
}

/// Named arrays, each read when it is asked for.
type Arrays<'a> = dyn Iterator<Item = Result<(String, TensorData)>> + 'a;

/// Writes arrays that may fail to be read, like [`write_archive`].
pub(crate) fn write_arrays(path: &Path, arrays: &mut Arrays<'_>, compression: Compression) -> Result<()> {
    write_file(path, |writer| write_entries(path, writer, arrays, compression))
}

/// Writes entry after entry. `path` is for messages.
fn write_entries(
    path: &Path,
    writer: &mut dyn Write,
    arrays: &mut Arrays<'_>,
    compression: Compression,
) -> Result<()> {
    let failed = |error| StoreError::io(path, "write", error);
    let (mut entries, mut names) = (Vec::new(), HashSet::new());
    let mut offset = 0;
    for array in arrays {
        let (name, data) = array?;
        check_name(path, &name)?;
        if !names.insert(name.clone()) {
            return Err(StoreError::Duplicate { file: path.to_owned(), name });
        }
        entries.push(write_entry(writer, &name, &data, compression, &mut offset).map_err(failed)?);
    }
    write_directory(writer, &entries, offset).map_err(failed)
}

/// Refuses a name that is too long for an entry.
fn check_name(path: &Path, name: &str) -> Result<()> {
    let longest = usize::from(u16::MAX) - ENDING.len();
    if name.len() <= longest {
        return Ok(());
    }
    let start: String = name.chars().take(20).collect();
    let problem = format!("the name `{start}…` is longer than the {longest} bytes allowed");
    Err(StoreError::malformed(path, 0, problem))
}

/// Writes the entry of an array at an offset, and moves the offset to the end of the entry.
fn write_entry(
    writer: &mut dyn Write,
    name: &str,
    data: &TensorData,
    compression: Compression,
    offset: &mut u64,
) -> io::Result<Entry> {
    let (entry, compressed) = prepare(name, data, compression, *offset)?;
    *offset += write_local(writer, &entry, 1)? + entry.compressed;
    match compressed {
        Some(bytes) => writer.write_all(&bytes)?,
        None => write_array(writer, data)?,
    }
    Ok(entry)
}

/// Prepares the entry of an array and its compressed bytes. The local header precedes the bytes and contains their
/// checksum.
fn prepare(
    name: &str,
    data: &TensorData,
    compression: Compression,
    offset: u64,
) -> io::Result<(Entry, Option<Vec<u8>>)> {
    let deflated = compression == Compression::Deflated;
    let encoder = deflated.then(|| DeflateEncoder::new(Vec::new(), flate2::Compression::default()));
    let mut pass = Pass { crc: Crc::new(), size: 0, encoder };
    write_array(&mut pass, data)?;
    let compressed = pass.encoder.map(DeflateEncoder::finish).transpose()?;
    let entry = Entry {
        name: format!("{name}{ENDING}"),
        deflated,
        crc: pass.crc.sum(),
        compressed: compressed.as_ref().map_or(pass.size, |bytes| bytes.len() as u64),
        size: pass.size,
        offset,
    };
    Ok((entry, compressed))
}

/// A writer that counts the bytes, and compresses them if it has an encoder.
struct Pass {
    crc: Crc,
    size: u64,
    encoder: Option<DeflateEncoder<Vec<u8>>>,
}

impl Write for Pass {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.crc.update(bytes);
        self.size += bytes.len() as u64;
        if let Some(encoder) = &mut self.encoder {
            encoder.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
