//! Named tensors of a file, in any format.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use kiln_tensor::{AnyTensor, BlockFormat, DType, Shape, SharedBytes, Stack, TensorData, TensorType};

use crate::error::Result;
use crate::float8::Float8;

/// A file of named tensors. Each format implements this trait; [`Weights`](crate::Weights) opens them all.
pub trait TensorSource: fmt::Debug + Send + Sync {
    /// Returns the path of the file, for messages.
    fn path(&self) -> &Path;

    /// Returns the format of the file.
    fn format(&self) -> WeightFormat;

    /// Returns the names of the tensors, in the order of the file.
    fn names(&self) -> Vec<&str>;

    /// Returns shape and dtype of a tensor; `None` if there is no tensor of that name.
    fn info(&self, name: &str) -> Option<TensorInfo>;

    /// Returns the elements of a tensor: a range of the file if possible, otherwise a copy. Of a tensor of quantised
    /// blocks, these are the bytes of its blocks, as `u8` of shape `[.., bytes]`.
    ///
    /// # Errors
    /// When there is no tensor of that name, its dtype is not supported, or its bytes are invalid.
    fn contents(&self, name: &str) -> Result<TensorContents>;

    /// Returns the metadata of the file as text, by key.
    fn metadata(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

/// The tied tensors of a file, which contains each once: the name of the tensor by each of its other names.
///
/// These are the pairs of the metadata that `safetensors.torch.save_model` writes: the key is no tensor of the file, and
/// the value is one.
pub(crate) fn tied_names(source: &dyn TensorSource) -> BTreeMap<String, String> {
    if !matches!(source.format(), WeightFormat::Safetensors | WeightFormat::ShardedSafetensors) {
        return BTreeMap::new();
    }
    let mut pairs = source.metadata();
    pairs.retain(|other, name| source.info(other).is_none() && source.info(name).is_some());
    pairs
}

/// The format of a file of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightFormat {
    /// One safetensors file.
    Safetensors,
    /// Several safetensors files with an index.
    ShardedSafetensors,
    /// A zip archive of `torch.save`.
    PyTorch,
    /// A file of `torch.save` before PyTorch 1.6.
    PyTorchLegacy,
    /// A tar archive of `torch.save` before PyTorch 0.1.10.
    PyTorchTar,
    /// A TorchScript archive of `torch.jit.save`.
    TorchScript,
    /// Several files of `torch.save` with an index.
    ShardedPyTorch,
    /// GGUF, of llama.cpp.
    Gguf,
    /// A NumPy archive.
    Npz,
    /// MessagePack of Flax.
    Flax,
    /// A Burnpack file of Burn.
    Burnpack,
    /// A MessagePack record of Burn.
    BurnRecord,
}

/// The shape and dtype of a tensor in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// The shape, in elements.
    pub shape: Shape,
    /// The dtype; `None` if Kiln does not support it. Of quantised blocks and 8-bit floats, it is the dtype after
    /// reading, `f32`.
    pub dtype: Option<DType>,
    /// The name of the dtype in the file: `F32`, `BF16`, `F8_E4M3`, `Q4_K` and so on.
    pub dtype_name: String,
    /// The format of quantised blocks; `None` for plain elements.
    pub blocks: Option<BlockFormat>,
}

impl TensorInfo {
    /// Returns the size of the elements in the file, in bytes; `None` if the dtype is unknown or the size overflows.
    pub fn num_bytes(&self) -> Option<u64> {
        let elements = self.shape.checked_num_elements()?;
        let bytes = match self.blocks {
            Some(format) => format.row_bytes(elements),
            None if self.float8().is_some() => Some(elements),
            None => elements.checked_mul(self.dtype?.size()),
        };
        bytes.map(|bytes| bytes as u64)
    }

    pub(crate) fn float8(&self) -> Option<Float8> {
        Float8::from_name(&self.dtype_name)
    }
}

/// The elements of a tensor that was read from a file.
#[derive(Debug)]
pub enum TensorContents {
    /// A range of the file, which is mapped or in memory: little-endian elements without gaps.
    Shared(SharedBytes, TensorType),
    /// A copy.
    Host(TensorData),
}

impl TensorContents {
    /// Returns the type of the elements.
    pub fn ty(&self) -> TensorType {
        match self {
            TensorContents::Shared(_, ty) => *ty,
            TensorContents::Host(data) => data.ty(),
        }
    }

    /// Whether both have one type and the same bytes.
    pub(crate) fn is_same(&self, other: &TensorContents) -> bool {
        if self.ty() != other.ty() {
            return false;
        }
        match (self, other) {
            (TensorContents::Shared(a, _), TensorContents::Shared(b, _)) => a.as_slice() == b.as_slice(),
            (TensorContents::Host(a), TensorContents::Host(b)) => a.bytes() == b.bytes(),
            // The bytes of a file are little-endian, those in memory of the machine.
            (TensorContents::Shared(bytes, ty), TensorContents::Host(data))
            | (TensorContents::Host(data), TensorContents::Shared(bytes, ty)) => {
                TensorData::from_bytes(bytes.as_slice(), *ty).is_ok_and(|own| own.bytes() == data.bytes())
            }
        }
    }

    /// Returns a tensor on a device. Tensors on the CPU share the memory of the file if its alignment allows.
    pub fn into_tensor(self, device: &impl AsRef<Stack>) -> AnyTensor {
        match self {
            TensorContents::Shared(bytes, ty) => AnyTensor::from_shared(bytes, ty, device),
            TensorContents::Host(data) => AnyTensor::from_data(data, device),
        }
    }

    /// Returns the elements in host memory.
    ///
    /// # Errors
    /// When the bytes of a shared range do not fit the type.
    pub fn into_data(self) -> Result<TensorData, kiln_tensor::Error> {
        match self {
            TensorContents::Shared(bytes, ty) => TensorData::from_bytes(bytes.as_slice(), ty),
            TensorContents::Host(data) => Ok(data),
        }
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WeightFormat::Safetensors => "safetensors",
            WeightFormat::ShardedSafetensors => "sharded safetensors",
            WeightFormat::PyTorch => "PyTorch",
            WeightFormat::PyTorchLegacy => "PyTorch (legacy)",
            WeightFormat::PyTorchTar => "PyTorch (tar)",
            WeightFormat::TorchScript => "TorchScript",
            WeightFormat::ShardedPyTorch => "sharded PyTorch",
            WeightFormat::Gguf => "GGUF",
            WeightFormat::Npz => "NumPy",
            WeightFormat::Flax => "Flax",
            WeightFormat::Burnpack => "Burnpack",
            WeightFormat::BurnRecord => "Burn record",
        })
    }
}
