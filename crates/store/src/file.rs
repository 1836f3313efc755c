//! Safetensors files: reading and writing named tensors.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kiln_backends::MappedFile;
use kiln_tensor::{AnyTensor, DType, Elements, SharedBytes, Stack, TensorData, TensorType};

use crate::atomic::write_file;
use crate::bytes::FileBytes;
use crate::error::{Result, StoreError};
use crate::float8::Float8;
use crate::header::{Entry, Header, LENGTH_BYTES, MAX_HEADER_BYTES};
use crate::names::closest;
use crate::source::{TensorContents, TensorInfo, TensorSource, WeightFormat};
use crate::stand_in;

/// Minimum size of memory-mapped files, in bytes. Smaller files can be read as fast, without keeping a mapping.
pub(crate) const MAPPED_FROM: u64 = 1 << 20;

/// Whether files are memory-mapped. On Windows a mapped file could not be replaced.
pub(crate) const MAPS: bool = !cfg!(windows);

/// A safetensors file that is open for reading. Opening reads only the header; tensors are read one at a time.
///
/// Files of at least 1 MiB are memory-mapped where the system supports it. Tensors that are [loaded](TensorFile::load)
/// on the CPU then use the mapped pages, which the system reads on first access. Such a file must not be written in
/// place or truncated while its tensors are in use (see [`MappedFile`] for the consequences). Replacing or deleting it
/// is safe. [`open_unmapped`](TensorFile::open_unmapped) copies instead. On Windows a mapped file could not be
/// replaced, so all files are copied.
///
/// ```
/// use kiln_store::{TensorFile, save_tensors};
/// use kiln_tensor::TensorData;
///
/// # let folder = std::env::temp_dir().join(format!("kiln-store-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let path = folder.join("points.safetensors");
/// save_tensors(&path, [("points".to_string(), TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]))], &Default::default())?;
///
/// let file = TensorFile::open(&path)?;
/// assert_eq!(file.names().collect::<Vec<_>>(), ["points"]);
/// assert_eq!(file.read("points")?.to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0]);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    header: Header,
    data_start: u64,
    storage: Storage,
}

/// Where the bytes of a file are.
enum Storage {
    /// Tensors are read from the file, and share its pages if it is mapped.
    File(Arc<Mutex<File>>, Option<Arc<MappedFile>>),
    /// The whole file is in memory.
    Memory(FileBytes),
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Storage::File(file, mapped) => f.debug_tuple("File").field(file).field(mapped).finish(),
            Storage::Memory(bytes) => bytes.fmt(f),
        }
    }
}

impl TensorFile {
    /// Opens a file and checks its header.
    ///
    /// # Errors
    /// When the file cannot be read, is truncated, continues after its tensors, or has an invalid header.
    pub fn open(path: impl AsRef<Path>) -> Result<TensorFile> {
        TensorFile::open_at(path.as_ref(), MAPS)
    }

    /// Opens a file without memory-mapping: tensors are copied, so that other processes may change the file.
    ///
    /// # Errors
    /// See [`open`](TensorFile::open).
    pub fn open_unmapped(path: impl AsRef<Path>) -> Result<TensorFile> {
        TensorFile::open_at(path.as_ref(), false)
    }

    fn open_at(path: &Path, maps: bool) -> Result<TensorFile> {
        let file = File::open(path).map_err(|source| StoreError::io(path, "read", source))?;
        TensorFile::of(path, Arc::new(Mutex::new(file)), maps)
    }

    /// Wraps a file that is already open. `path` is for messages.
    pub(crate) fn of(path: &Path, shared: Arc<Mutex<File>>, maps: bool) -> Result<TensorFile> {
        let failed = |source| StoreError::io(path, "read", source);
        let mut file = lock(&shared);
        let length = file.metadata().map_err(failed)?.len();
        file.rewind().map_err(failed)?;
        let mut start = Vec::new();
        (&mut *file).take(stand_in::START).read_to_end(&mut start).map_err(failed)?;
        stand_in::refuse(path, &start)?;
        file.rewind().map_err(failed)?;
        let header_bytes = header_length(path, &mut *file, length)?;
        let mut text = vec![0; header_bytes as usize];
        file.read_exact(&mut text).map_err(failed)?;
        let data_start = LENGTH_BYTES + header_bytes;
        let header = Header::parse(path, &text, length - data_start)?;
        let mapped = if maps && length >= MAPPED_FROM { mapped(&file, length) } else { None };
        drop(file);
        Ok(TensorFile { path: path.to_owned(), header, data_start, storage: Storage::File(shared, mapped) })
    }

    /// Reads a file that is in memory. Tensors that are [loaded](TensorFile::load) on the CPU share this memory if its
    /// alignment allows.
    ///
    /// # Errors
    /// See [`open`](TensorFile::open).
    pub fn from_bytes(bytes: Vec<u8>) -> Result<TensorFile> {
        let bytes = FileBytes::from_vec(bytes);
        let (path, length) = (bytes.path().to_owned(), bytes.all().len() as u64);
        stand_in::refuse(&path, bytes.all())?;
        let header_bytes = header_length(&path, &mut bytes.all(), length)?;
        let data_start = LENGTH_BYTES + header_bytes;
        let text = bytes.slice(LENGTH_BYTES..data_start, "the header")?;
        let header = Header::parse(&path, text, length - data_start)?;
        Ok(TensorFile { path, header, data_start, storage: Storage::Memory(bytes) })
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Iterates over the names of the tensors, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.header.tensors.keys().map(String::as_str)
    }

    /// Returns the number of tensors.
    pub fn len(&self) -> usize {
        self.header.tensors.len()
    }

    /// Returns whether the file contains no tensors.
    pub fn is_empty(&self) -> bool {
        self.header.tensors.is_empty()
    }

    /// Returns the metadata of the file: strings by key.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// Returns shape and dtype of a tensor; `None` if there is no tensor of that name.
    pub fn info(&self, name: &str) -> Option<TensorInfo> {
        let entry = self.header.tensors.get(name)?;
        Some(TensorInfo {
            shape: entry.shape,
            dtype: entry.known_dtype(),
            dtype_name: entry.dtype.clone(),
            blocks: None,
        })
    }

    /// Returns whether the file is memory-mapped, so that tensors on the CPU share its pages.
    pub fn is_mapped(&self) -> bool {
        matches!(self.storage, Storage::File(_, Some(_)))
    }

    /// Loads a tensor to a device.
    ///
    /// If the file [is mapped](TensorFile::is_mapped) and the device is the CPU, the tensor uses the mapped pages
    /// without a copy. This requires alignment to the dtype, as in files that Kiln wrote. Otherwise the elements are
    /// copied.
    ///
    /// ```
    /// use kiln_backends::Device;
    /// use kiln_store::{TensorFile, save_tensors};
    /// use kiln_tensor::TensorData;
    ///
    /// # let folder = std::env::temp_dir().join(format!("kiln-store-load-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// let path = folder.join("large.safetensors");
    /// save_tensors(&path, [("x".to_string(), TensorData::from(vec![1.0f32; 1 << 20]))], &Default::default())?;
    ///
    /// let x = TensorFile::open(&path)?.load("x", &Device::cpu())?;
    /// assert_eq!(x.sum()?.into_scalar::<f32>()?, 1048576.0);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`read`](TensorFile::read).
    pub fn load(&self, name: &str, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        Ok(self.elements(name)?.into_tensor(device))
    }

    /// The elements of a tensor: a range of the mapped file if possible, otherwise a copy.
    fn elements(&self, name: &str) -> Result<TensorContents> {
        let entry = self.entry(name)?;
        let ty = self.type_of(name, entry)?;
        // Kernels do not validate `bool` elements, so these are read and checked.
        if let Some(bytes) = self.shared(entry)
            && cfg!(target_endian = "little")
            && !ty.dtype.is_bool()
            && entry.float8().is_none()
        {
            return Ok(TensorContents::Shared(bytes, ty));
        }
        self.read(name).map(TensorContents::Host)
    }

    fn shared(&self, entry: &Entry) -> Option<SharedBytes> {
        let start = usize::try_from(self.data_start + entry.begin).ok()?;
        let end = usize::try_from(self.data_start + entry.end).ok()?;
        match &self.storage {
            Storage::File(_, mapped) => SharedBytes::new(mapped.clone()?, start..end).ok(),
            Storage::Memory(bytes) => bytes.shared(start as u64..end as u64, "the tensor").ok(),
        }
    }

    /// Reads a tensor to host memory.
    ///
    /// # Errors
    /// When there is no tensor of that name, its dtype is not supported, its bytes cannot be read, or a `bool` element
    /// is neither 0 nor 1.
    pub fn read(&self, name: &str) -> Result<TensorData> {
        let entry = self.entry(name)?;
        let ty = self.type_of(name, entry)?;
        let data = match (entry.float8(), self.shared(entry)) {
            (Some(format), _) => self.read_float8(entry, format),
            (None, Some(bytes)) if cfg!(target_endian = "little") => {
                Ok(TensorData::from_bytes(bytes.as_slice(), ty))
            }
            (None, _) => self.read_elements(entry, ty),
        };
        let data = data.map_err(|source| StoreError::io(&self.path, "read", source))?;
        data.map_err(|error| {
            let problem = format!("tensor `{name}`: {error}");
            StoreError::malformed(&self.path, self.data_start + entry.begin, problem)
        })
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        self.header.tensors.get(name).ok_or_else(|| StoreError::NotFound {
            file: self.path.clone(),
            name: name.to_owned(),
            suggestion: closest(name, self.names()).map(str::to_owned),
        })
    }

    fn type_of(&self, name: &str, entry: &Entry) -> Result<TensorType> {
        match entry.known_dtype() {
            Some(dtype) => Ok(TensorType { shape: entry.shape, dtype }),
            None => Err(StoreError::UnsupportedDType {
                file: self.path.clone(),
                name: name.to_owned(),
                dtype: entry.dtype.clone(),
            }),
        }
    }

    /// Reads directly into the memory of the elements, if every bit pattern is a valid element: for all dtypes except
    /// `bool`.
    fn read_elements(
        &self,
        entry: &Entry,
        ty: TensorType,
    ) -> io::Result<Result<TensorData, kiln_tensor::Error>> {
        // `open` checked that the file is as long as all entries require, which bounds this allocation.
        let mut data = TensorData::zeros(ty);
        if let Some(bytes) = bytes_mut(data.elements_mut()) {
            self.read_bytes(entry, bytes)?;
            reverse_elements(bytes, ty.dtype);
            return Ok(Ok(data));
        }
        let mut bytes = vec![0; (entry.end - entry.begin) as usize];
        self.read_bytes(entry, &mut bytes)?;
        Ok(TensorData::from_bytes(&bytes, ty))
    }

    fn read_float8(
        &self,
        entry: &Entry,
        format: Float8,
    ) -> io::Result<Result<TensorData, kiln_tensor::Error>> {
        // `open` checked that the file has all bytes of its entries.
        let mut bytes = vec![0; (entry.end - entry.begin) as usize];
        self.read_bytes(entry, &mut bytes)?;
        Ok(TensorData::new(format.decode_all(&bytes), entry.shape))
    }

    fn read_bytes(&self, entry: &Entry, bytes: &mut [u8]) -> io::Result<()> {
        let file = match &self.storage {
            Storage::File(file, _) => file,
            Storage::Memory(memory) => {
                let range = self.data_start + entry.begin..self.data_start + entry.end;
                let held = memory.slice(range, "the tensor").map_err(io::Error::other)?;
                bytes.copy_from_slice(held);
                return Ok(());
            }
        };
        let mut file = lock(file);
        file.seek(SeekFrom::Start(self.data_start + entry.begin))?;
        file.read_exact(bytes)
    }
}

impl TensorSource for TensorFile {
    fn path(&self) -> &Path {
        TensorFile::path(self)
    }

    fn format(&self) -> WeightFormat {
        WeightFormat::Safetensors
    }

    fn names(&self) -> Vec<&str> {
        TensorFile::names(self).collect()
    }

    fn info(&self, name: &str) -> Option<TensorInfo> {
        TensorFile::info(self, name)
    }

    fn contents(&self, name: &str) -> Result<TensorContents> {
        self.elements(name)
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        TensorFile::metadata(self).clone()
    }
}

/// Locks a file and its position for one reader.
pub(crate) fn lock(file: &Mutex<File>) -> MutexGuard<'_, File> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maps the file into memory if the system supports it. The caller checked its length.
fn mapped(file: &File, length: u64) -> Option<Arc<MappedFile>> {
    MappedFile::new(file, usize::try_from(length).ok()?).ok().map(Arc::new)
}

/// Reads the length of the header and checks that the file contains the whole header.
fn header_length(path: &Path, file: &mut impl Read, length: u64) -> Result<u64> {
    if length < LENGTH_BYTES {
        return Err(StoreError::Length { file: path.to_owned(), found: length, expected: LENGTH_BYTES });
    }
    let mut bytes = [0; LENGTH_BYTES as usize];
    file.read_exact(&mut bytes).map_err(|source| StoreError::io(path, "read", source))?;
    let header = u64::from_le_bytes(bytes);
    if header > MAX_HEADER_BYTES {
        let problem = format!("the header is {header} bytes long, more than the {MAX_HEADER_BYTES} allowed");
        return Err(StoreError::malformed(path, 0, problem));
    }
    let expected = LENGTH_BYTES + header;
    if length < expected {
        return Err(StoreError::Length { file: path.to_owned(), found: length, expected });
    }
    Ok(header)
}

/// Writes tensors and metadata to a safetensors file. On an error the file does not change.
///
/// The output is deterministic: equal tensors produce equal bytes.
///
/// # Errors
/// When two tensors have the same name, the header would exceed 100,000,000 bytes, or the file cannot be written.
pub fn save_tensors(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (String, TensorData)>,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let tensors = tensors.into_iter().map(|(name, data)| (name, Source::Host(data)));
    write_tensors(path.as_ref(), tensors.collect(), metadata)
}

/// The elements of a tensor to write.
pub(crate) enum Source {
    Host(TensorData),
    /// Read from the device one at a time, so that not all tensors are in host memory at once.
    Device(AnyTensor),
    /// Cast to a dtype when it is written.
    Cast(Box<Source>, DType),
    /// Read when it is written.
    Deferred(TensorType, Box<Deferred>),
}

/// Reads a tensor.
pub(crate) type Deferred = dyn Fn() -> Result<TensorData, kiln_tensor::Error> + Send + Sync;

/// Tensors for a file, by name.
pub(crate) type NamedSources = Vec<(String, Source)>;

impl Source {
    pub(crate) fn ty(&self) -> TensorType {
        match self {
            Source::Host(data) => data.ty(),
            Source::Device(tensor) => *tensor.ty(),
            Source::Cast(source, dtype) => source.ty().with_dtype(*dtype),
            Source::Deferred(ty, _) => *ty,
        }
    }

    pub(crate) fn data(&self) -> Result<Cow<'_, TensorData>, kiln_tensor::Error> {
        match self {
            Source::Host(data) => Ok(Cow::Borrowed(data)),
            Source::Device(tensor) => tensor.to_data().map(Cow::Owned),
            Source::Cast(source, dtype) => Ok(Cow::Owned(source.data()?.into_owned().convert(*dtype))),
            Source::Deferred(ty, read) => {
                let data = read()?;
                match data.ty() == *ty {
                    true => Ok(Cow::Owned(data)),
                    false => Err(kiln_tensor::Error::value("read", format!("{} instead of {ty}", data.ty()))),
                }
            }
        }
    }
}

pub(crate) fn write_tensors(
    path: &Path,
    tensors: NamedSources,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    write_file(path, tensor_writer(path, &tensors, metadata)?)
}

/// Writes the contents of a safetensors file. `path` is for messages.
pub(crate) fn tensor_writer<'a>(
    path: &Path,
    tensors: &'a NamedSources,
    metadata: &BTreeMap<String, String>,
) -> Result<impl FnOnce(&mut dyn Write) -> Result<()> + use<'a>> {
    check_names(path, tensors)?;
    let mut tensors: Vec<&(String, Source)> = tensors.iter().collect();
    // Wide elements first, so that every tensor is aligned to its elements.
    tensors.sort_by(|&(left, a), &(right, b)| {
        let (a, b) = (a.ty().dtype, b.ty().dtype);
        b.size().cmp(&a.size()).then(a.cmp(&b)).then(left.cmp(right))
    });
    let header = Header::print(tensors.iter().map(|(name, source)| (name.as_str(), source.ty())), metadata);
    if header.len() as u64 > MAX_HEADER_BYTES {
        let problem = format!("the header would be longer than the {MAX_HEADER_BYTES} bytes allowed");
        return Err(StoreError::malformed(path, 0, problem));
    }
    let path = path.to_owned();
    Ok(move |writer: &mut dyn Write| {
        let failed = |source| StoreError::io(&path, "write", source);
        writer.write_all(&(header.len() as u64).to_le_bytes()).map_err(failed)?;
        writer.write_all(header.as_bytes()).map_err(failed)?;
        for (name, source) in tensors {
            let failed_read = |source| StoreError::Tensor { file: path.clone(), name: name.clone(), source };
            let data = source.data().map_err(failed_read)?;
            write_elements(writer, &data).map_err(failed)?;
        }
        Ok(())
    })
}

/// Checks that no two tensors have the same name.
pub(crate) fn check_names(path: &Path, tensors: &[(String, Source)]) -> Result<()> {
    let mut names: Vec<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(StoreError::Duplicate { file: path.to_owned(), name: pair[0].to_owned() }),
        None => Ok(()),
    }
}

pub(crate) fn write_elements(writer: &mut dyn Write, data: &TensorData) -> io::Result<()> {
    if cfg!(target_endian = "little") {
        return writer.write_all(data.bytes());
    }
    let mut bytes = data.bytes().to_vec();
    reverse_elements(&mut bytes, data.dtype());
    writer.write_all(&bytes)
}

/// The bytes of elements for which every bit pattern is valid; `None` for `bool`.
fn bytes_mut(elements: &mut Elements) -> Option<&mut [u8]> {
    Some(match elements {
        Elements::F64(v) => bytemuck::cast_slice_mut(v),
        Elements::F32(v) => bytemuck::cast_slice_mut(v),
        Elements::F16(v) => bytemuck::cast_slice_mut(v),
        Elements::BF16(v) => bytemuck::cast_slice_mut(v),
        Elements::I64(v) => bytemuck::cast_slice_mut(v),
        Elements::I32(v) => bytemuck::cast_slice_mut(v),
        Elements::I16(v) => bytemuck::cast_slice_mut(v),
        Elements::I8(v) => bytemuck::cast_slice_mut(v),
        Elements::U64(v) => bytemuck::cast_slice_mut(v),
        Elements::U32(v) => bytemuck::cast_slice_mut(v),
        Elements::U16(v) => bytemuck::cast_slice_mut(v),
        Elements::U8(v) => v,
        Elements::Bool(_) => return None,
    })
}

/// Converts between the byte order of files, little-endian, and that of the machine.
pub(crate) fn reverse_elements(bytes: &mut [u8], dtype: DType) {
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
}
