//! GGUF, the file format of llama.cpp: metadata and tensors, plain or in quantised blocks.
//!
//! ```
//! use kiln_store::gguf::{self, GgufFile, Metadata};
//! use kiln_store::TensorSource;
//! use kiln_tensor::TensorData;
//!
//! let mut metadata = Metadata::new();
//! metadata.insert("general.architecture", "llama");
//! let weight = TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]);
//! let bytes = gguf::to_bytes(&metadata, [("output.weight".to_owned(), weight.into())])?;
//!
//! let file = GgufFile::from_bytes(bytes)?;
//! assert_eq!(file.metadata().str("general.architecture"), Some("llama"));
//! assert_eq!(file.contents("output.weight")?.into_data()?.to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`GgufFile`] reads versions 2 and 3 and both byte orders. Large files are memory-mapped.
//! * [`save`] writes version 3.
//! * [`config`] returns the configuration of the model as in Hugging Face's `config.json`;
//!   [`metadata_from_config`] and [`tokenizer_metadata`] return the metadata of a GGUF file from Hugging Face's files.
//! * [`hugging_face_name`] and [`gguf_name`] translate names of tensors. [`HuggingFaceGguf`] is a file under the names
//!   and in the layout of Hugging Face, and [`export`] is the inverse.
//!
//! # Shapes
//! The shapes here are row-major, as everywhere in Kiln and PyTorch: a weight is `[outputs, inputs]`. llama.cpp and the
//! file list the same dimensions in reverse.
//!
//! # Types
//!
//! | in the file | here |
//! |---|---|
//! | `F64` `F32` `F16` `BF16` `I64` `I32` `I16` `I8` | the dtypes of these names |
//! | `Q4_0` `Q4_1` `Q5_0` `Q5_1` `Q8_0` `Q2_K` to `Q6_K` `Q8_K` `IQ4_NL` `IQ4_XS` | [`BlockFormat`]; contents are `u8` `[.., row bytes]` |
//! | all others, such as `IQ2_XXS` | listed, without a dtype; reading them is an error |

mod config;
mod config_metadata;
mod element;
mod header;
mod hugging_face;
mod layout;
mod metadata;
mod metadata_type;
mod names;
mod rope;
mod tokenizer;
mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

#[cfg(doc)]
use kiln_tensor::BlockFormat;
use kiln_tensor::{DType, Shape, TensorData, TensorType};

use crate::bytes::FileBytes;
use crate::error::{Result, StoreError};
use crate::names::closest;
use crate::source::{TensorContents, TensorInfo, TensorSource, WeightFormat};
use crate::stand_in;
use element::StoredType;
use header::{Entry, Header};

pub use config::config;
pub use config_metadata::metadata_from_config;
pub use element::ElementType;
pub use hugging_face::{HuggingFaceGguf, export, export_type};
pub use layout::{Conversion, conversion, permute_rows, unpermute_rows};
pub use metadata::Metadata;
pub use metadata_type::{MetadataArray, MetadataValue};
pub use names::{architecture_of, gguf_name, hugging_face_name};
pub use rope::rope_factors;
pub use tokenizer::{PreTokenizer, tokenizer_metadata};
pub use write::{GgufTensor, save, to_bytes};

/// The number of files of a split model, and the index of this one.
const SPLIT_COUNT: &str = "split.count";
const SPLIT_INDEX: &str = "split.no";
/// The number of tensors in all files of a split model.
const SPLIT_TENSORS: &str = "split.tensors.count";

/// A GGUF file that is open for reading.
///
/// Opening checks the header: every tensor is within the file, and none overlap. Files of at least 1 MiB are
/// memory-mapped where the system supports it, with the consequences of [`TensorFile`](crate::TensorFile).
///
/// A model that is split over several files (`NAME-00001-of-00003.gguf`) opens by its first file; the others must be in
/// the same folder.
pub struct GgufFile {
    parts: Vec<Part>,
    metadata: Metadata,
    tensors: Vec<Stored>,
    /// Index into `tensors` of each name.
    places: BTreeMap<String, usize>,
}

/// A file of a model.
struct Part {
    bytes: FileBytes,
    big_endian: bool,
}

/// A tensor and the part that contains it.
struct Stored {
    entry: Entry,
    part: usize,
}

impl GgufFile {
    /// Opens a file, or all files of a split model by the first one.
    ///
    /// # Errors
    /// When a file cannot be read, is not GGUF of version 2 or 3, or is damaged: the error names the byte. When a file of
    /// a split model is missing or belongs to another model.
    pub fn open(path: impl AsRef<Path>) -> Result<GgufFile> {
        let path = path.as_ref();
        let mut file = GgufFile::new(FileBytes::open(path)?)?;
        let Some(split) = file.take_split()? else { return Ok(file) };
        if split.index != 0 {
            let hint = match split_path(path, 0, split.count) {
                Some(first) => format!("open `{}`", first.display()),
                None => "open the first file".to_owned(),
            };
            let problem =
                format!("file {} of {} of a split model\n  hint: {hint}", split.index + 1, split.count);
            return Err(StoreError::malformed(path, 0, problem));
        }
        for index in 1..split.count {
            file.append(path, index, &split)?;
        }
        if split.tensors.is_some_and(|tensors| tensors != file.tensors.len() as u64) {
            let problem = format!(
                "`{SPLIT_TENSORS}` is {}, but the {} files contain {} tensors",
                split.tensors.unwrap_or_default(),
                split.count,
                file.tensors.len()
            );
            return Err(StoreError::malformed(path, 0, problem));
        }
        Ok(file)
    }

    /// Opens a file from bytes in memory.
    ///
    /// # Errors
    /// See [`open`](GgufFile::open). Also when the model is split over several files.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<GgufFile> {
        let mut file = GgufFile::new(FileBytes::from_vec(bytes))?;
        if let Some(split) = file.take_split()? {
            let problem = format!(
                "file {} of {} of a split model\n  hint: `GgufFile::open` reads all of them by path",
                split.index + 1,
                split.count
            );
            return Err(StoreError::malformed(file.path(), 0, problem));
        }
        Ok(file)
    }

    /// Reads a file to its end and opens it.
    ///
    /// # Errors
    /// See [`from_bytes`](GgufFile::from_bytes). Also when the reader fails.
    pub fn from_reader(mut reader: impl Read) -> Result<GgufFile> {
        let mut bytes = Vec::new();
        let failed = |source| StoreError::io(Path::new("GGUF reader"), "read", source);
        reader.read_to_end(&mut bytes).map_err(failed)?;
        GgufFile::from_bytes(bytes)
    }

    fn new(bytes: FileBytes) -> Result<GgufFile> {
        stand_in::refuse(bytes.path(), bytes.all())?;
        let Header { metadata, tensors, big_endian } = Header::parse(&bytes)?;
        let mut file = GgufFile {
            parts: vec![Part { bytes, big_endian }],
            metadata,
            tensors: Vec::with_capacity(tensors.len()),
            places: BTreeMap::new(),
        };
        file.add(tensors, 0)?;
        Ok(file)
    }

    /// Removes the description of a split from the metadata: it is one of files, and not of the model. `None` if there is
    /// one file.
    fn take_split(&mut self) -> Result<Option<Split>> {
        let [count, index, tensors] =
            [SPLIT_COUNT, SPLIT_INDEX, SPLIT_TENSORS].map(|key| self.metadata.remove(key));
        let Some(count) = count.and_then(|count| count.as_u64()) else { return Ok(None) };
        let index = index.and_then(|index| index.as_u64()).unwrap_or(0);
        let tensors = tensors.and_then(|tensors| tensors.as_u64());
        if count <= 1 && index == 0 {
            return Ok(None);
        }
        if index >= count || count > u64::from(u16::MAX) {
            let problem = format!("`{SPLIT_INDEX}` is {index} and `{SPLIT_COUNT}` is {count}");
            return Err(StoreError::malformed(self.path(), 0, problem));
        }
        Ok(Some(Split { index, count, tensors }))
    }

    /// Adds another file of a split model.
    fn append(&mut self, first: &Path, index: u64, split: &Split) -> Result<()> {
        let Some(path) = split_path(first, index, split.count) else {
            let problem = format!(
                "one of {} files of a split model, but its name does not end in `-00001-of-{:05}.gguf`\n  hint: restore \
                 the original file names",
                split.count, split.count
            );
            return Err(StoreError::malformed(first, 0, problem));
        };
        let mut other = GgufFile::new(FileBytes::open(&path)?)?;
        let found = other.take_split()?;
        if found.as_ref().map(|found| (found.index, found.count)) != Some((index, split.count)) {
            let problem = format!(
                "is not file {} of {}\n  hint: the files belong to different models",
                index + 1,
                split.count
            );
            return Err(StoreError::malformed(&path, 0, problem));
        }
        let part = self.parts.len();
        self.parts.append(&mut other.parts);
        self.add(other.tensors.into_iter().map(|tensor| tensor.entry), part)
    }

    fn add(&mut self, entries: impl IntoIterator<Item = Entry>, part: usize) -> Result<()> {
        for entry in entries {
            if self.places.insert(entry.name.clone(), self.tensors.len()).is_some() {
                let file = self.parts[part].bytes.path().to_owned();
                return Err(StoreError::Duplicate { file, name: entry.name });
            }
            self.tensors.push(Stored { entry, part });
        }
        Ok(())
    }

    /// Returns the path of the first file; `bytes in memory` for a file in memory.
    pub fn path(&self) -> &Path {
        self.parts[0].bytes.path()
    }

    /// Returns the metadata of the model. The keys of a split (`split.count` and so on) are left out.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the name of the architecture in llama.cpp, such as `llama`; `None` if the file does not name it.
    pub fn architecture(&self) -> Option<&str> {
        self.metadata.str("general.architecture")
    }

    /// Iterates over the names of the tensors, in the order of the file.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.iter().map(|tensor| tensor.entry.name.as_str())
    }

    /// Returns the number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Returns whether the file contains no tensors.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Returns shape and dtype of a tensor; `None` if there is no tensor of that name.
    pub fn info(&self, name: &str) -> Option<TensorInfo> {
        let entry = &self.tensors[*self.places.get(name)?].entry;
        let element = self.element(entry);
        Some(TensorInfo {
            shape: entry.shape,
            dtype: element.map(ElementType::dtype),
            dtype_name: entry.stored.to_string(),
            blocks: element.and_then(ElementType::blocks),
        })
    }

    fn element(&self, entry: &Entry) -> Option<ElementType> {
        match entry.stored {
            StoredType::Supported(element) => Some(element),
            StoredType::Unsupported(_) | StoredType::Unknown(_) => None,
        }
    }

    /// Returns the elements of a tensor, which share the memory of the file. Of quantised blocks, these are the bytes, as
    /// `u8` of shape `[.., row bytes]`. Plain elements of the other byte order are copied.
    ///
    /// # Errors
    /// When there is no tensor of that name, its type is not supported, or it consists of blocks in a big-endian file.
    pub fn contents(&self, name: &str) -> Result<TensorContents> {
        let Stored { entry, part } = self.find(name)?;
        let Part { bytes, big_endian } = &self.parts[*part];
        let unsupported = |dtype: String| StoreError::UnsupportedDType {
            file: bytes.path().to_owned(),
            name: name.to_owned(),
            dtype,
        };
        let element = self.element(entry).ok_or_else(|| unsupported(entry.stored.to_string()))?;
        let ty = contents_type(element, &entry.shape);
        let shared = bytes.shared(entry.begin..entry.end, name)?;
        if element.blocks().is_some() && *big_endian {
            return Err(unsupported(format!(
                "{element} in big-endian byte order\n  hint: `gguf_convert_endian.py` of llama.cpp converts the file"
            )));
        }
        let little_endian = !big_endian && cfg!(target_endian = "little");
        if little_endian || ty.dtype.size() == 1 {
            return Ok(TensorContents::Shared(shared, ty));
        }
        let mut elements = shared.as_slice().to_vec();
        if *big_endian != cfg!(target_endian = "big") {
            elements.chunks_exact_mut(ty.dtype.size()).for_each(<[u8]>::reverse);
        }
        let data = TensorData::from_bytes(&elements, ty).map_err(|error| {
            StoreError::malformed(bytes.path(), entry.begin, format!("tensor `{name}`: {error}"))
        })?;
        Ok(TensorContents::Host(data))
    }

    fn find(&self, name: &str) -> Result<&Stored> {
        match self.places.get(name) {
            Some(&place) => Ok(&self.tensors[place]),
            None => Err(StoreError::NotFound {
                file: self.path().to_owned(),
                name: name.to_owned(),
                suggestion: closest(name, self.names()).map(str::to_owned),
            }),
        }
    }

    /// Returns whether all files are memory-mapped, so that tensors on the CPU share their pages.
    pub fn is_mapped(&self) -> bool {
        self.parts.iter().all(|part| part.bytes.is_mapped())
    }
}

/// The type of the contents: that of the elements, or the bytes of blocks.
fn contents_type(element: ElementType, shape: &Shape) -> TensorType {
    match element {
        ElementType::Plain(dtype) => TensorType { shape: *shape, dtype },
        ElementType::Blocks(format) => {
            let last = shape.rank().saturating_sub(1);
            // The length of rows was checked when the file was opened.
            let bytes = shape.last().and_then(|&row| format.row_bytes(row)).unwrap_or(0);
            TensorType { shape: shape.with(last, bytes), dtype: DType::U8 }
        }
    }
}

impl fmt::Debug for GgufFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GgufFile")
            .field("path", &self.path())
            .field("architecture", &self.architecture())
            .field("tensors", &self.len())
            .finish_non_exhaustive()
    }
}

impl TensorSource for GgufFile {
    fn path(&self) -> &Path {
        GgufFile::path(self)
    }

    fn format(&self) -> WeightFormat {
        WeightFormat::Gguf
    }

    fn names(&self) -> Vec<&str> {
        GgufFile::names(self).collect()
    }

    fn info(&self, name: &str) -> Option<TensorInfo> {
        GgufFile::info(self, name)
    }

    fn contents(&self, name: &str) -> Result<TensorContents> {
        GgufFile::contents(self, name)
    }

    /// Returns the metadata as text. Arrays of more than 16 elements are abbreviated: `[49152 strings]`.
    fn metadata(&self) -> BTreeMap<String, String> {
        self.metadata.iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect()
    }
}

/// The position of a file in a split model.
struct Split {
    index: u64,
    count: u64,
    tensors: Option<u64>,
}

/// The path of another file of a split model; `None` unless `path` ends in `-NNNNN-of-NNNNN.gguf`.
fn split_path(path: &Path, index: u64, count: u64) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(&format!("-of-{count:05}.gguf"))?;
    let (prefix, digits) = stem.rsplit_once('-')?;
    if digits.len() != 5 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    Some(path.with_file_name(format!("{prefix}-{:05}-of-{count:05}.gguf", index + 1)))
}
