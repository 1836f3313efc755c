//! Several arrays in one file.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;
use flate2::{Crc, CrcReader};
use kiln_tensor::{TensorData, TensorType};

use super::elements::{read_array, read_pairs, write_array};
use super::header::{Header, Numbers};
use super::input::{ByteSource, Input};
use super::zip::{Directory, Entry, write_directory, write_local};
use super::{MEMORY, in_vec, open};
use crate::atomic::write_file;
use crate::error::{Result, StoreError};
use crate::names::closest;

/// The suffix that NumPy appends to an array's name to form the entry's name.
const ENDING: &str = ".npy";

/// A `.npz` file that is open for reading. Opening reads the list of names alone; arrays are read one at a time.
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
/// Entries of the archive whose name does not end in `.npy` are no arrays and are not listed.
pub struct Archive {
    path: PathBuf,
    source: Mutex<Box<dyn Source>>,
    directory: Directory,
    /// Of the arrays, without the ending: their places in the directory.
    arrays: BTreeMap<String, usize>,
}

trait Source: Read + Seek + Send {}

impl<T: Read + Seek + Send> Source for T {}

impl Archive {
    /// Opens a file and reads the list of its arrays.
    ///
    /// # Errors
    /// When the file cannot be read, is no zip archive, is truncated, or holds other things than arrays alone.
    pub fn open(path: impl AsRef<Path>) -> Result<Archive> {
        let path = path.as_ref();
        let (file, length) = open(path)?;
        Archive::of(path, Box::new(BufReader::new(file)), length)
    }

    /// Opens an archive in memory.
    ///
    /// # Errors
    /// As [`open`](Archive::open).
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
                "the archive holds no array, but `{}`\n  hint: the names of arrays end in `{ENDING}`",
                first.name.escape_debug()
            );
            return Err(StoreError::malformed(path, first.offset, problem));
        }
        Ok(Archive { path: path.to_owned(), source: Mutex::new(source), directory, arrays })
    }

    /// The file's path; `bytes in memory` for one that is not in a file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the arrays, in alphabetical order, without the ending `.npy`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.arrays.keys().map(String::as_str)
    }

    /// The number of arrays.
    pub fn len(&self) -> usize {
        self.arrays.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.arrays.is_empty()
    }

    /// The type of an array: reads its header alone. For complex numbers, the type of their real parts.
    ///
    /// # Errors
    /// When there is none of that name, its header is damaged, or its type is none of Kiln's.
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
    /// When there is none of that name, it is damaged (its checksum must hold), or its type is none of Kiln's.
    pub fn read(&self, name: &str) -> Result<TensorData> {
        self.with_array(name, true, read_array)
    }

    /// Reads an array of complex numbers as their real and imaginary parts, as [`read_complex`](super::read_complex) does.
    ///
    /// # Errors
    /// As [`read`](Archive::read), and when the numbers are not complex.
    pub fn read_complex(&self, name: &str) -> Result<(TensorData, TensorData)> {
        self.with_array(name, true, read_pairs)
    }

    /// Reads an entry; where all of it is read, checks that it ends there and that the checksum holds.
    fn with_array<T>(
        &self,
        name: &str,
        whole: bool,
        read: impl FnOnce(&mut Input<'_>) -> Result<T>,
    ) -> Result<T> {
        let entry = self.entry(name)?;
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

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive").field("path", &self.path).field("names", &self.arrays.keys()).finish()
    }
}

/// The bytes of an entry.
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
        let problem = format!("goes on after the {} bytes that it claims", entry.size);
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

/// Reads all arrays of a `.npz` file, by name. [`Archive`] reads some of them.
///
/// # Errors
/// As [`Archive::open`] and [`Archive::read`].
pub fn read_archive(path: impl AsRef<Path>) -> Result<BTreeMap<String, TensorData>> {
    let archive = Archive::open(path)?;
    archive.names().map(|name| Ok((name.to_owned(), archive.read(name)?))).collect()
}

/// How the arrays of an archive are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// As they are, like `numpy.savez`.
    #[default]
    Stored,
    /// Deflated, like `numpy.savez_compressed`: smaller where numbers repeat, several times slower.
    Deflated,
}

/// Writes named arrays to a `.npz` file, in their order. On an error the file does not change. The same arrays
/// give the same bytes.
///
/// # Errors
/// When two arrays have the same name, a name is longer than 65,531 bytes, or the file cannot be written.
pub fn write_archive(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (String, TensorData)>,
    compression: Compression,
) -> Result<()> {
    let path = path.as_ref();
    let tensors = checked(path, tensors)?;
    write_file(path, |writer| {
        write_entries(writer, &tensors, compression).map_err(|error| StoreError::io(path, "write", error))
    })
}

/// The bytes of a `.npz` file with these arrays.
///
/// # Errors
/// When two arrays have the same name, or a name is longer than 65,531 bytes.
pub fn archive_to_bytes(
    tensors: impl IntoIterator<Item = (String, TensorData)>,
    compression: Compression,
) -> Result<Vec<u8>> {
    let tensors = checked(Path::new(MEMORY), tensors)?;
    Ok(in_vec(|bytes| write_entries(bytes, &tensors, compression)))
}

/// Checks the names before anything is written.
fn checked(
    file: &Path,
    tensors: impl IntoIterator<Item = (String, TensorData)>,
) -> Result<Vec<(String, TensorData)>> {
    let tensors: Vec<(String, TensorData)> = tensors.into_iter().collect();
    let mut names: Vec<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(StoreError::Duplicate { file: file.to_owned(), name: pair[0].to_owned() });
    }
    let longest = usize::from(u16::MAX) - ENDING.len();
    if let Some(name) = names.into_iter().find(|name| name.len() > longest) {
        let start: String = name.chars().take(20).collect();
        let problem = format!("the name `{start}…` is longer than the {longest} bytes allowed");
        return Err(StoreError::malformed(file, 0, problem));
    }
    Ok(tensors)
}

fn write_entries(
    writer: &mut dyn Write,
    tensors: &[(String, TensorData)],
    compression: Compression,
) -> io::Result<()> {
    let mut entries = Vec::with_capacity(tensors.len());
    let mut offset = 0;
    for (name, data) in tensors {
        let (entry, compressed) = prepare(name, data, compression, offset)?;
        offset += write_local(writer, &entry)? + entry.compressed;
        match compressed {
            Some(bytes) => writer.write_all(&bytes)?,
            None => write_array(writer, data)?,
        }
        entries.push(entry);
    }
    write_directory(writer, &entries, offset)
}

/// The entry of an array, whose header comes before its bytes and holds their checksum; and the compressed bytes.
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

/// Counts the written bytes, and compresses them if there is an encoder.
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
