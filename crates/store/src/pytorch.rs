//! PyTorch files: `.pt`, `.pth`, `.bin` and `.ckpt` of `torch.save`, and TorchScript archives of `torch.jit.save`.
//!
//! ```
//! use kiln_store::pytorch::{self, PyTorchFile};
//! use kiln_tensor::TensorData;
//!
//! let weight = TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]);
//! let bytes = pytorch::to_bytes([("fc.weight".to_owned(), weight.clone())])?;
//!
//! let file = PyTorchFile::from_bytes(bytes)?;
//! assert_eq!(file.names().collect::<Vec<_>>(), ["fc.weight"]);
//! assert_eq!(file.read("fc.weight")?, weight);
//! # Ok::<(), kiln_store::StoreError>(())
//! ```
//!
//! Nested dicts, lists and objects have dotted names: the checkpoint `{"epoch": 3, "state_dict": {"fc.weight": ...}}`
//! has the tensor `state_dict.fc.weight`. [`PyTorchFile::under`] selects a part of a checkpoint,
//! [`PyTorchFile::state_dict`] the weights, and [`PyTorchFile::value`] reads numbers and strings.
//!
//! | form | written by |
//! |---|---|
//! | zip archive | `torch.save` since PyTorch 1.6, [`save`] |
//! | TorchScript archive | `torch.jit.save` since PyTorch 1.4 |
//! | legacy | `torch.save` since PyTorch 0.1.10 |
//! | tar archive | `torch.save` before |
//!
//! The values are pickled, and unpickling in Python can run any code. Here nothing runs: the pickle machine knows the
//! functions that rebuild tensors, and a few classes of plain data. Any other function or class is an error that names
//! it and the byte. Strided views are copied in row-major order. Contiguous tensors are ranges of the mapped file.
//! 8-bit floats are decoded to `f32`. Quantised, sparse and complex tensors are listed, but cannot be read.

mod archive;
mod element;
mod legacy;
mod objects;
mod pickle;
mod storage;
mod tar;
mod tree;
mod value;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use kiln_tensor::{AnyTensor, Stack, TensorData, TensorType};

use crate::bytes::FileBytes;
use crate::error::{Result, StoreError};
use crate::names::closest;
use crate::source::{TensorContents, TensorInfo, TensorSource, WeightFormat};
use crate::stand_in;
use objects::{Object, Objects};
use pickle::{Id, Pickle};
use storage::Storages;
use tree::Entry;

pub use value::PickleValue;
pub use write::{save, to_bytes};

pub(crate) use write::write;

/// The keys of weights in checkpoints, which [`PyTorchFile::state_dict`] looks for.
const STATE_DICTS: [&str; 12] = [
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "module",
    "net",
    "network",
    "weights",
    "params",
    "ema",
    "model_ema",
    "state_dict_ema",
];

/// Options of reading PyTorch files.
#[derive(Clone, Debug)]
pub struct PyTorchOptions {
    allowed: BTreeSet<String>,
    verifies: bool,
}

impl Default for PyTorchOptions {
    fn default() -> PyTorchOptions {
        PyTorchOptions::new()
    }
}

impl PyTorchOptions {
    /// No further classes, and checksums are verified.
    pub fn new() -> PyTorchOptions {
        PyTorchOptions { allowed: BTreeSet::new(), verifies: true }
    }

    /// Allows a class or function by its full name, such as `__main__.Net`. It is plain data: its attributes are read,
    /// and nothing runs. Tensors among the attributes are listed.
    #[must_use]
    pub fn allow(mut self, global: impl Into<String>) -> PyTorchOptions {
        self.allowed.insert(global.into());
        self
    }

    /// Sets whether the checksum of each storage is verified when its first tensor is read. Default: `true`. It reads
    /// all pages of the storage. Checksums of pickles are always verified, and legacy files have none.
    #[must_use]
    pub fn verify_checksums(mut self, verifies: bool) -> PyTorchOptions {
        self.verifies = verifies;
        self
    }
}

/// A PyTorch file that is open for reading, or a part of one.
///
/// Opening reads the names, shapes and dtypes; elements are read for one tensor at a time. Files of at least 1 MiB are
/// memory-mapped where the system supports it; see [`TensorFile`](crate::TensorFile) for the consequences.
#[derive(Clone)]
pub struct PyTorchFile {
    contents: Arc<Contents>,
    /// Index of the pickle, and the value whose tensors are listed.
    root: (usize, Id),
    entries: Vec<Entry>,
    index: HashMap<String, usize>,
}

/// A file of any form.
struct Contents {
    format: WeightFormat,
    /// The values; in TorchScript archives also the constants.
    roots: Vec<Root>,
    storages: Storages,
    verifies: bool,
    file: FileBytes,
}

/// A pickle, and the prefix of the keys of its storages.
struct Root {
    pickle: Pickle,
    folder: &'static str,
}

impl PyTorchFile {
    /// Opens a file.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, contains a global that is not allowed, or two tensors have the same
    /// name.
    pub fn open(path: impl AsRef<Path>) -> Result<PyTorchFile> {
        PyTorchFile::open_with(path, &PyTorchOptions::new())
    }

    /// Opens a file with options.
    ///
    /// # Errors
    /// See [`open`](PyTorchFile::open).
    pub fn open_with(path: impl AsRef<Path>, options: &PyTorchOptions) -> Result<PyTorchFile> {
        PyTorchFile::of(FileBytes::open(path.as_ref())?, options)
    }

    /// Reads a file from bytes in memory.
    ///
    /// # Errors
    /// See [`open`](PyTorchFile::open).
    pub fn from_bytes(bytes: Vec<u8>) -> Result<PyTorchFile> {
        PyTorchFile::from_bytes_with(bytes, &PyTorchOptions::new())
    }

    /// Reads a file from bytes in memory with options.
    ///
    /// # Errors
    /// See [`open`](PyTorchFile::open).
    pub fn from_bytes_with(bytes: Vec<u8>, options: &PyTorchOptions) -> Result<PyTorchFile> {
        PyTorchFile::of(FileBytes::from_vec(bytes), options)
    }

    /// Reads a file from a reader, to its end.
    ///
    /// # Errors
    /// When the reader fails, and the errors of [`open`](PyTorchFile::open).
    pub fn from_reader(mut reader: impl Read) -> Result<PyTorchFile> {
        let mut bytes = Vec::new();
        let read = reader.read_to_end(&mut bytes);
        read.map_err(|source| StoreError::io(FileBytes::from_vec(Vec::new()).path(), "read", source))?;
        PyTorchFile::from_bytes(bytes)
    }

    /// Returns whether bytes are a PyTorch file: a zip archive with an entry `data.pkl`, the magic number of legacy
    /// files, or a tar archive. `bytes` is the whole file.
    pub fn is_pytorch(bytes: &[u8]) -> bool {
        legacy::is_legacy(bytes)
            || tar::is_tar(bytes)
            || (bytes.starts_with(b"PK") && archive::is_archive(bytes))
    }

    fn of(file: FileBytes, options: &PyTorchOptions) -> Result<PyTorchFile> {
        let start = file.all();
        stand_in::refuse(file.path(), start)?;
        let contents = if start.starts_with(b"PK") {
            archive::read(file, options)?
        } else if tar::is_tar(start) {
            tar::read(file, options)?
        } else if start.first() == Some(&0x80) {
            legacy::read(file, options)?
        } else {
            let problem = "is not a PyTorch file: neither a zip or tar archive nor a pickle of protocol 2 or newer\n  \
                           hint: `torch.save` writes such files";
            return Err(StoreError::malformed(file.path(), 0, problem));
        };
        let root = contents.roots[0].pickle.root;
        PyTorchFile::at(Arc::new(contents), (0, root))
    }

    fn at(contents: Arc<Contents>, root: (usize, Id)) -> Result<PyTorchFile> {
        let entries = tree::tensors(contents.objects(root.0), root.1)?;
        let index = tree::index(contents.file.path(), &entries)?;
        Ok(PyTorchFile { contents, root, entries, index })
    }

    /// Returns the file's path; `bytes in memory` for bytes.
    pub fn path(&self) -> &Path {
        self.contents.file.path()
    }

    /// Returns the form of the file.
    pub fn format(&self) -> WeightFormat {
        self.contents.format
    }

    /// Returns whether the file is memory-mapped.
    pub fn is_mapped(&self) -> bool {
        self.contents.file.is_mapped()
    }

    /// Iterates over the names of the tensors, in the order of the file. A file that is a single tensor names it
    /// `tensor`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Returns the number of tensors.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the keys of the outermost dict, or the names of the attributes of the outermost object, in the order of
    /// the file. The indices of a list are keys too.
    ///
    /// # Errors
    /// When the keys are too long in total.
    pub fn keys(&self) -> Result<Vec<String>> {
        let keys = tree::keys(self.objects(), self.root.1)?;
        Ok(keys.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns the part of the file below a dotted key; the names of its tensors are relative to it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such key.
    pub fn under(&self, key: &str) -> Result<PyTorchFile> {
        match tree::find(self.objects(), self.root.1, key)? {
            Some(id) => PyTorchFile::at(self.contents.clone(), (self.root.0, id)),
            None => {
                let keys = self.keys()?;
                Err(self.not_found(key, keys.iter().map(String::as_str)))
            }
        }
    }

    /// Returns the weights of a checkpoint. A file whose outermost dict contains tensors is its own state dict.
    /// Otherwise it must have exactly one of the usual keys: `state_dict`, `model_state_dict`, `model_state`, `model`,
    /// `module`, `net`, `network`, `weights`, `params`, `ema`, `model_ema` or `state_dict_ema`.
    ///
    /// # Errors
    /// [`StoreError::InvalidArgument`] when no usual key or several contain tensors; it lists them.
    pub fn state_dict(&self) -> Result<PyTorchFile> {
        let objects = self.objects();
        let keys = tree::keys(objects, self.root.1)?;
        let is_state_dict = keys.iter().any(|(_, value)| tree::is_tensor(&objects, *value));
        if is_state_dict || keys.is_empty() || self.contents.format == WeightFormat::TorchScript {
            return Ok(self.clone());
        }
        let mut parts = Vec::new();
        for (key, value) in keys.iter().filter(|(key, _)| STATE_DICTS.contains(&key.as_str())) {
            let part = PyTorchFile::at(self.contents.clone(), (self.root.0, *value))?;
            if !part.is_empty() {
                parts.push((key, part));
            }
        }
        match parts.as_slice() {
            [(_, part)] => Ok(part.clone()),
            // A list of tensors, or a module as a whole.
            [] if !self.is_empty() && !keys.iter().any(|(key, _)| key == "optimizer") => Ok(self.clone()),
            parts => Err(self.ambiguous(parts, &keys)),
        }
    }

    fn ambiguous(&self, parts: &[(&String, PyTorchFile)], keys: &[(String, Id)]) -> StoreError {
        let list = |names: Vec<&str>| names.join("`, `");
        let problem = if parts.is_empty() {
            let names = keys.iter().take(20).map(|(name, _)| name.as_str()).collect();
            format!("no usual key of a state dict contains tensors; the keys are `{}`", list(names))
        } else {
            let names = parts.iter().map(|(name, _)| name.as_str()).collect();
            format!("several keys contain weights: `{}`", list(names))
        };
        StoreError::InvalidArgument {
            argument: format!("state dict of {}", self.path().display()),
            problem: format!("{problem}\n  hint: select one with `PyTorchFile::under`"),
        }
    }

    /// Returns the constants of a TorchScript archive, as tensors `0`, `1` and so on; `None` for other files. In frozen
    /// modules, the weights are constants.
    ///
    /// # Errors
    /// When the constants are damaged.
    pub fn constants(&self) -> Result<Option<PyTorchFile>> {
        let Some(constants) = self.contents.roots.get(1) else { return Ok(None) };
        PyTorchFile::at(self.contents.clone(), (1, constants.pickle.root)).map(Some)
    }

    /// Reads a value that is not a tensor, by its dotted key; `None` if there is no such key. Tensors in a dict or list
    /// are [`PickleValue::Other`].
    ///
    /// # Errors
    /// When the value is nested too deeply, or is too large because it shares parts.
    pub fn value(&self, key: &str) -> Result<Option<PickleValue>> {
        let id = tree::find(self.objects(), self.root.1, key)?;
        id.map(|id| tree::value(self.objects(), id)).transpose()
    }

    /// Returns shape and dtype of a tensor; `None` if there is no tensor of that name.
    pub fn info(&self, name: &str) -> Option<TensorInfo> {
        Some(match &self.entries[*self.index.get(name)?].object {
            Object::Tensor(layout) => TensorInfo {
                shape: layout.shape,
                dtype: layout.dtype(),
                dtype_name: layout.dtype_name().to_owned(),
                blocks: None,
            },
            Object::Unsupported { kind, shape } => {
                TensorInfo { shape: *shape, dtype: None, dtype_name: kind.clone(), blocks: None }
            }
        })
    }

    /// Reads a tensor to host memory.
    ///
    /// # Errors
    /// When there is no tensor of that name, its dtype is not supported, or its bytes are damaged.
    pub fn read(&self, name: &str) -> Result<TensorData> {
        let malformed = |error: kiln_tensor::Error| StoreError::malformed(self.path(), 0, error.to_string());
        self.elements(name)?.into_data().map_err(malformed)
    }

    /// Loads a tensor to a device. On the CPU, contiguous tensors share the memory of the file if its alignment allows.
    ///
    /// # Errors
    /// See [`read`](PyTorchFile::read).
    pub fn load(&self, name: &str, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        Ok(self.elements(name)?.into_tensor(device))
    }

    /// Verifies the checksums of all storages. Legacy files have none.
    ///
    /// # Errors
    /// When a storage differs from its checksum.
    pub fn verify(&self) -> Result<()> {
        self.contents.storages.verify(&self.contents.file)
    }

    fn elements(&self, name: &str) -> Result<TensorContents> {
        let Some(&index) = self.index.get(name) else { return Err(self.not_found(name, self.names())) };
        let unsupported = |dtype: &str| StoreError::UnsupportedDType {
            file: self.path().to_owned(),
            name: name.to_owned(),
            dtype: dtype.to_owned(),
        };
        let layout = match &self.entries[index].object {
            Object::Tensor(layout) => layout,
            Object::Unsupported { kind, .. } => return Err(unsupported(kind)),
        };
        let (Some(dtype), Some(read)) = (layout.dtype(), layout.element.read_as()) else {
            return Err(unsupported(layout.dtype_name()));
        };
        let contents = &*self.contents;
        let ty = TensorType { shape: layout.shape, dtype: read };
        let pickle = &contents.roots[self.root.0].pickle;
        let elements = contents.storages.contents(&contents.file, pickle, layout, ty, contents.verifies)?;
        if dtype == read {
            return Ok(elements);
        }
        let malformed =
            |error: kiln_tensor::Error| StoreError::malformed(self.path(), layout.at, error.to_string());
        Ok(TensorContents::Host(elements.into_data().map_err(malformed)?.convert(dtype)))
    }

    fn objects(&self) -> Objects<'_> {
        self.contents.objects(self.root.0)
    }

    fn not_found<'a>(&self, name: &str, names: impl Iterator<Item = &'a str>) -> StoreError {
        StoreError::NotFound {
            file: self.path().to_owned(),
            name: name.to_owned(),
            suggestion: closest(name, names).map(str::to_owned),
        }
    }
}

impl Contents {
    fn objects(&self, root: usize) -> Objects<'_> {
        let Root { pickle, folder } = &self.roots[root];
        Objects { pickle, storages: &self.storages, folder }
    }
}

impl TensorSource for PyTorchFile {
    fn path(&self) -> &Path {
        PyTorchFile::path(self)
    }

    fn format(&self) -> WeightFormat {
        PyTorchFile::format(self)
    }

    fn names(&self) -> Vec<&str> {
        PyTorchFile::names(self).collect()
    }

    fn info(&self, name: &str) -> Option<TensorInfo> {
        PyTorchFile::info(self, name)
    }

    fn contents(&self, name: &str) -> Result<TensorContents> {
        self.elements(name)
    }

    /// Numbers, strings and bools of the outermost dict.
    fn metadata(&self) -> BTreeMap<String, String> {
        let Ok(keys) = tree::keys(self.objects(), self.root.1) else { return BTreeMap::new() };
        let text = |id| tree::plain(&self.objects(), id).and_then(PickleValue::into_text);
        keys.into_iter().filter_map(|(name, id)| Some((name, text(id)?))).collect()
    }
}

impl fmt::Debug for PyTorchFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PyTorchFile")
            .field("path", &self.path())
            .field("format", &self.format())
            .field("tensors", &self.len())
            .finish()
    }
}
