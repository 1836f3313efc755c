//! NumPy files: `.npy` contains one array, `.npz` several named arrays.
//!
//! ```
//! use kiln_store::numpy::{self, Compression};
//! use kiln_tensor::TensorData;
//!
//! # let folder = std::env::temp_dir().join(format!("kiln-numpy-tour-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! let points = TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]);
//! numpy::write(folder.join("points.npy"), &points)?;
//! assert_eq!(numpy::read(folder.join("points.npy"))?, points);
//!
//! let named = [("points".to_owned(), points), ("labels".to_owned(), TensorData::from([0i64, 1]))];
//! numpy::write_archive(folder.join("all.npz"), named, Compression::Deflated)?;
//! let archive = numpy::Archive::open(folder.join("all.npz"))?;
//! assert_eq!(archive.names().collect::<Vec<_>>(), ["labels", "points"]);
//! assert_eq!(archive.read("labels")?.to_vec::<i64>(), [0, 1]);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The format is that of [`numpy.lib.format`](https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
//! Versions 1.0, 2.0 and 3.0, both byte orders, and C and Fortran order can be read. Written bytes are identical to
//! those of `numpy.save`.
//!
//! | descr | in Kiln |
//! |---|---|
//! | `f2` `f4` `f8` | [`DType::F16`], [`DType::F32`], [`DType::F64`] |
//! | `i1` `i2` `i4` `i8`, `u1` `u2` `u4` `u8`, `b1` | the integers and [`DType::Bool`] |
//! | `<V2`, `\|V2`, `bfloat16` | [`DType::BF16`] |
//! | `c8` `c16` | two tensors, by [`read_complex`] and [`write_complex`] |
//!
//! NumPy itself has no bfloat16. The package `ml_dtypes` adds one, which NumPy saves as `<V2`, a two-byte void type.
//! Any two-byte void is therefore read as bfloat16, and bfloat16 is written as `<V2`. In Python,
//! `numpy.load(path).view(ml_dtypes.bfloat16)` returns the values.
//!
//! Arrays of Python objects are rejected: they are pickled, and unpickling can run arbitrary code. Strings, dates and
//! structured dtypes are rejected too. The error names the file and the byte.

mod archive;
mod elements;
mod header;
mod input;

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::Path;

#[cfg(doc)]
use kiln_tensor::DType;
use kiln_tensor::TensorData;

use crate::atomic::write_file;
use crate::error::{Result, StoreError};
use crate::stand_in;
use elements::{Pairs, write_array, write_pairs};
use input::{ByteSource, Input};

pub(crate) use archive::write_arrays;
pub use archive::{Archive, Compression, archive_to_bytes, read_archive, write_archive};

/// The file name of in-memory bytes in messages.
const MEMORY: &str = "bytes in memory";

/// Reads the array of a `.npy` file.
///
/// It allocates no more than the length of the file, or twice that for an array in Fortran order, which is reordered.
///
/// # Errors
/// When the file cannot be read, is damaged, continues after its array, or has a dtype that Kiln does not support.
pub fn read(path: impl AsRef<Path>) -> Result<TensorData> {
    let path = path.as_ref();
    let (file, length) = open(path)?;
    elements::read_array(&mut Input::new(&mut BufReader::new(file), length, ByteSource::file(path)))
}

/// Writes an array to a `.npy` file in C order, little-endian. On an error the file does not change.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: impl AsRef<Path>, data: &TensorData) -> Result<()> {
    let path = path.as_ref();
    write_file(path, |writer| write_array(writer, data).map_err(|error| StoreError::io(path, "write", error)))
}

/// Reads an array from the bytes of a `.npy` file.
///
/// ```
/// use kiln_store::numpy;
/// use kiln_tensor::TensorData;
///
/// let data = TensorData::from([1u8, 2, 3]);
/// assert_eq!(numpy::from_bytes(&numpy::to_bytes(&data))?, data);
/// let message = numpy::from_bytes(b"no array").unwrap_err().to_string();
/// assert!(message.starts_with("bytes in memory: at byte 0: "));
/// # Ok::<(), kiln_store::StoreError>(())
/// ```
///
/// # Errors
/// See [`read`].
pub fn from_bytes(mut bytes: &[u8]) -> Result<TensorData> {
    elements::read_array(&mut in_memory(&mut bytes))
}

/// Returns the bytes of a `.npy` file with this array.
pub fn to_bytes(data: &TensorData) -> Vec<u8> {
    in_vec(|bytes| write_array(bytes, data))
}

/// Reads a complex array from a `.npy` file as real and imaginary parts: two tensors of the array's shape, `f32` for
/// `c8` and `f64` for `c16`.
///
/// ```
/// use kiln_store::numpy;
/// use kiln_tensor::TensorData;
///
/// let (real, imaginary) = (TensorData::from([1.0f32, 2.0]), TensorData::from([0.0f32, -1.0]));
/// let bytes = numpy::complex_to_bytes(&real, &imaginary)?;
/// assert_eq!(numpy::complex_from_bytes(&bytes)?, (real, imaginary));
/// # Ok::<(), kiln_store::StoreError>(())
/// ```
///
/// # Errors
/// The errors of [`read`], and when the array is not complex.
pub fn read_complex(path: impl AsRef<Path>) -> Result<(TensorData, TensorData)> {
    let path = path.as_ref();
    let (file, length) = open(path)?;
    elements::read_pairs(&mut Input::new(&mut BufReader::new(file), length, ByteSource::file(path)))
}

/// Writes a complex array to a `.npy` file: `c8` for parts of `f32`, `c16` for parts of `f64`. On an error the file
/// does not change.
///
/// # Errors
/// When the parts differ in type or are neither `f32` nor `f64`, or the file cannot be written.
pub fn write_complex(path: impl AsRef<Path>, real: &TensorData, imaginary: &TensorData) -> Result<()> {
    let path = path.as_ref();
    let pairs = Pairs::new(path, real, imaginary)?;
    write_file(path, |writer| {
        write_pairs(writer, &pairs).map_err(|error| StoreError::io(path, "write", error))
    })
}

/// Reads a complex array from the bytes of a `.npy` file, like [`read_complex`].
///
/// # Errors
/// See [`read_complex`].
pub fn complex_from_bytes(mut bytes: &[u8]) -> Result<(TensorData, TensorData)> {
    elements::read_pairs(&mut in_memory(&mut bytes))
}

/// Returns the bytes of a `.npy` file with this complex array, like [`write_complex`].
///
/// # Errors
/// When the parts differ in type or are neither `f32` nor `f64`.
pub fn complex_to_bytes(real: &TensorData, imaginary: &TensorData) -> Result<Vec<u8>> {
    let pairs = Pairs::new(Path::new(MEMORY), real, imaginary)?;
    Ok(in_vec(|bytes| write_pairs(bytes, &pairs)))
}

/// Opens a regular file. Opening a pipe would wait for its writer, so it is rejected.
fn open(path: &Path) -> Result<(File, u64)> {
    let failed = |source| StoreError::io(path, "read", source);
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
    }
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut start = Vec::new();
    (&mut file).take(stand_in::START).read_to_end(&mut start).map_err(failed)?;
    stand_in::refuse(path, &start)?;
    file.rewind().map_err(failed)?;
    Ok((file, length))
}

fn in_memory<'a>(bytes: &'a mut &[u8]) -> Input<'a> {
    let length = bytes.len() as u64;
    Input::new(bytes, length, ByteSource::file(Path::new(MEMORY)))
}

fn in_vec(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes).expect("a vector takes every write");
    bytes
}
