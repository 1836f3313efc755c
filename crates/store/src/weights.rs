//! Weights from a file or folder of any supported format.

mod detect;
mod quantize;
mod save;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use kiln_tensor::{AnyTensor, BlockFormat, Stack, TensorData};

use crate::error::{Result, StoreError};
use crate::mapping::{MappedSource, Mapping};
use crate::names::closest;
use crate::source::{TensorContents, TensorInfo, TensorSource, WeightFormat};
use detect::{Access, Input};

/// A file of weights, or several files with an index, in any supported format.
///
/// [`open`](Weights::open) detects the format by the first bytes of the file. Opening reads only names and types;
/// tensors are read one at a time. Large files are memory-mapped where the format allows: tensors on the CPU then share
/// the pages of the file.
///
/// | format | files |
/// |---|---|
/// | safetensors | `.safetensors`, or several with `model.safetensors.index.json` |
/// | PyTorch | `.pt`, `.pth`, `.bin`, `.ckpt` of `torch.save`, TorchScript archives, or several with an index |
/// | GGUF | `.gguf` |
/// | NumPy | `.npz` |
/// | Flax | `.msgpack` of `flax.serialization` |
/// | Burn | Burnpack (`.bpk`) and named MessagePack records (`.mpk`, `.mpk.gz`) |
///
/// ```
/// use kiln_store::{Weights, save_tensors};
/// use kiln_tensor::TensorData;
///
/// # let folder = std::env::temp_dir().join(format!("kiln-weights-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("model.safetensors");
/// # save_tensors(&path, [("fc.weight".to_owned(), TensorData::from([[1.0f32, 2.0]]))], &Default::default())?;
/// let weights = Weights::open(&path)?;
/// for name in weights.names() {
///     println!("{name}: {}", weights.info(name).unwrap().shape);
/// }
/// assert_eq!(weights.read("fc.weight")?.to_vec::<f32>(), [1.0, 2.0]);
/// // A folder is opened by the file inside.
/// assert_eq!(Weights::open(&folder)?.names(), ["fc.weight"]);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Weights(Arc<dyn TensorSource>);

impl Weights {
    /// Opens a file or a folder.
    ///
    /// A folder is opened by the first of these files: `model.safetensors.index.json`, `model.safetensors`,
    /// `pytorch_model.bin.index.json`, `pytorch_model.bin`, `flax_model.msgpack`, `model.bpk`; otherwise by its only
    /// `.safetensors` or `.gguf` file.
    ///
    /// Files of at least 1 MiB are memory-mapped where the system supports it. Such a file must not be written in place
    /// or truncated while its tensors are in use; see [`TensorFile`](crate::TensorFile).
    ///
    /// # Errors
    /// When the file cannot be read, is of no known format (the error lists them), or violates its format.
    pub fn open(path: impl AsRef<Path>) -> Result<Weights> {
        detect::open(path.as_ref(), Access::Mapped).map(Weights)
    }

    /// Opens a file or a folder for a caller that copies all tensors. Formats that can be read without memory-mapping
    /// are.
    ///
    /// # Errors
    /// See [`open`](Weights::open).
    pub(crate) fn open_unmapped(path: impl AsRef<Path>) -> Result<Weights> {
        detect::open(path.as_ref(), Access::Copied).map(Weights)
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    /// When the bytes are of no known format, or violate it.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Weights> {
        detect::parse(Input::Bytes(bytes)).map(Weights)
    }

    /// Reads to the end of a reader, then all tensors are in memory.
    ///
    /// # Errors
    /// When reading fails; otherwise see [`from_bytes`](Weights::from_bytes).
    pub fn from_reader(mut reader: impl Read) -> Result<Weights> {
        let mut bytes = Vec::new();
        let read = reader.read_to_end(&mut bytes);
        read.map_err(|source| StoreError::io(Path::new("reader"), "read", source))?;
        Weights::from_bytes(bytes)
    }

    /// Wraps a file that is already open.
    pub fn from_source(source: impl TensorSource + 'static) -> Weights {
        Weights(Arc::new(source))
    }

    /// Returns the weights under the names of a mapping. Tensors are rearranged when they are read.
    ///
    /// Rules that depend on the parameters of a module have no effect here; [`Mapping`] lists them.
    ///
    /// # Errors
    /// When two tensors get the same name, or a rule does not fit a tensor's shape.
    pub fn mapped(&self, mapping: &Mapping) -> Result<Weights> {
        Ok(Weights(Arc::new(MappedSource::new(self.0.clone(), mapping)?)))
    }

    /// Returns the path of the file, for messages.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the format of the file.
    pub fn format(&self) -> WeightFormat {
        self.0.format()
    }

    /// Returns the metadata of the file as text, by key.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        self.0.metadata()
    }

    /// Returns the names of the tensors, in the order of the file.
    pub fn names(&self) -> Vec<&str> {
        self.0.names()
    }

    /// Returns the number of tensors.
    pub fn len(&self) -> usize {
        self.0.names().len()
    }

    /// Returns whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.0.names().is_empty()
    }

    /// Returns shape and dtype of a tensor; `None` if there is no tensor of that name.
    pub fn info(&self, name: &str) -> Option<TensorInfo> {
        self.0.info(name)
    }

    /// Reads a tensor to host memory. Quantised blocks are dequantised to `f32`.
    ///
    /// # Errors
    /// When there is no tensor of that name, its dtype is not supported, or its bytes are invalid.
    pub fn read(&self, name: &str) -> Result<TensorData> {
        let info = self.known(name)?;
        host_data(self.0.as_ref(), name, self.0.contents(name)?, &info)
    }

    /// Loads a tensor to a device. Quantised blocks are dequantised to `f32`. Other tensors on the CPU share the memory
    /// of the file if it is mapped and its alignment allows.
    ///
    /// # Errors
    /// See [`read`](Weights::read).
    pub fn load(&self, name: &str, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        match self.known(name)?.blocks {
            Some(_) => Ok(AnyTensor::from_data(self.read(name)?, device)),
            None => Ok(self.0.contents(name)?.into_tensor(device)),
        }
    }

    /// Loads the blocks of a quantised tensor as they are: `u8` of shape `[.., bytes of a row]`. `None` if the tensor is
    /// not quantised.
    ///
    /// # Errors
    /// See [`read`](Weights::read).
    pub fn blocks(&self, name: &str, device: &impl AsRef<Stack>) -> Result<Option<(AnyTensor, BlockFormat)>> {
        let Some(format) = self.known(name)?.blocks else { return Ok(None) };
        Ok(Some((self.0.contents(name)?.into_tensor(device), format)))
    }

    /// Returns the reader of the format.
    pub fn source(&self) -> &dyn TensorSource {
        self.0.as_ref()
    }

    fn known(&self, name: &str) -> Result<TensorInfo> {
        info_of(self.0.as_ref(), name)
    }
}

/// The shape and dtype of a tensor.
///
/// # Errors
/// When there is no tensor of that name.
pub(crate) fn info_of(source: &dyn TensorSource, name: &str) -> Result<TensorInfo> {
    source.info(name).ok_or_else(|| StoreError::NotFound {
        file: source.path().to_owned(),
        name: name.to_owned(),
        suggestion: closest(name, source.names()).map(str::to_owned),
    })
}

/// The contents of a tensor in host memory, dequantised.
pub(crate) fn host_data(
    source: &dyn TensorSource,
    name: &str,
    contents: TensorContents,
    info: &TensorInfo,
) -> Result<TensorData> {
    let invalid =
        |problem: String| StoreError::malformed(source.path(), 0, format!("tensor `{name}`: {problem}"));
    let Some(format) = info.blocks else {
        return contents.into_data().map_err(|error| invalid(error.to_string()));
    };
    let bytes = match &contents {
        TensorContents::Shared(bytes, _) => bytes.as_slice(),
        TensorContents::Host(data) => data.bytes(),
    };
    let elements =
        info.shape.checked_num_elements().filter(|&count| format.row_bytes(count) == Some(bytes.len()));
    let Some(elements) = elements else {
        return Err(invalid(format!(
            "{} bytes are not blocks of {} of shape {}",
            bytes.len(),
            format.name(),
            info.shape
        )));
    };
    let mut values = vec![0.0f32; elements];
    format.decode(bytes, &mut values);
    TensorData::new(values, info.shape).map_err(|error| invalid(error.to_string()))
}
