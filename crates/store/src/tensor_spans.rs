//! Tensors that lie in a file as plain little-endian elements, for readers.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use kiln_tensor::{DType, Shape, TensorData, TensorType};

use crate::bytes::FileBytes;
use crate::error::{Result, StoreError};
use crate::file::reverse_elements;
use crate::names::closest;
use crate::source::{TensorContents, TensorInfo, WeightFormat};

/// The type of a tensor, and where its elements are.
#[derive(Clone, Debug)]
pub(crate) struct TensorSpans {
    shape: Shape,
    dtype: Option<DType>,
    /// The name of the dtype in the file.
    dtype_name: String,
    elements: Elements,
}

/// The elements of a tensor.
#[derive(Clone, Debug)]
pub(crate) enum Elements {
    /// Ranges of the file, in order: several where the format splits large arrays.
    Ranges(Vec<Range<u64>>),
    /// Values that the reader decoded.
    Decoded(TensorData),
}

impl TensorSpans {
    /// Describes the tensor at these ranges.
    ///
    /// # Errors
    /// When the ranges are not as long as the type requires. The length of an unsupported dtype is not checked.
    pub(crate) fn new(
        path: &Path,
        name: &str,
        (shape, dtype, dtype_name): (Shape, Option<DType>, String),
        ranges: Vec<Range<u64>>,
    ) -> Result<TensorSpans> {
        let held: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let needed = |dtype: DType| shape.checked_num_elements().and_then(|n| n.checked_mul(dtype.size()));
        if let Some(dtype) = dtype
            && needed(dtype).map(|needed| needed as u64) != Some(held)
        {
            let problem = format!("tensor `{name}` is {dtype}{shape} but has {held} bytes");
            let at = ranges.first().map_or(0, |range| range.start);
            return Err(StoreError::malformed(path, at, problem));
        }
        Ok(TensorSpans { shape, dtype, dtype_name, elements: Elements::Ranges(ranges) })
    }

    /// Describes a tensor whose values the reader decoded.
    pub(crate) fn decoded(data: TensorData, dtype_name: String) -> TensorSpans {
        let (shape, dtype) = (*data.shape(), Some(data.dtype()));
        TensorSpans { shape, dtype, dtype_name, elements: Elements::Decoded(data) }
    }

    /// The dtype; `None` if Kiln does not support it.
    pub(crate) fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// The name of the dtype in the file.
    pub(crate) fn dtype_name(&self) -> &str {
        &self.dtype_name
    }

    /// The ranges of the file; none of decoded values.
    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        match &self.elements {
            Elements::Ranges(ranges) => ranges,
            Elements::Decoded(_) => &[],
        }
    }

    fn info(&self) -> TensorInfo {
        TensorInfo { shape: self.shape, dtype: self.dtype, dtype_name: self.dtype_name.clone(), blocks: None }
    }

    fn contents(&self, bytes: &FileBytes, name: &str) -> Result<TensorContents> {
        let Some(dtype) = self.dtype else {
            let (file, name) = (bytes.path().to_owned(), name.to_owned());
            return Err(StoreError::UnsupportedDType { file, name, dtype: self.dtype_name.clone() });
        };
        let ranges = match &self.elements {
            Elements::Ranges(ranges) => ranges,
            Elements::Decoded(data) => return Ok(TensorContents::Host(data.clone())),
        };
        let ty = TensorType { shape: self.shape, dtype };
        let what = format!("tensor `{name}`");
        // Kernels do not validate `bool` elements, so these are copied and checked.
        if let ([range], false) = (ranges.as_slice(), dtype.is_bool())
            && cfg!(target_endian = "little")
        {
            return Ok(TensorContents::Shared(bytes.shared(range.clone(), &what)?, ty));
        }
        let mut joined = Vec::new();
        for range in ranges {
            joined.extend_from_slice(bytes.slice(range.clone(), &what)?);
        }
        reverse_elements(&mut joined, dtype);
        let data = TensorData::from_bytes(&joined, ty).map_err(|error| {
            let at = ranges.first().map_or(0, |range| range.start);
            StoreError::malformed(bytes.path(), at, format!("{what}: {error}"))
        })?;
        Ok(TensorContents::Host(data))
    }
}

/// A file of tensors at spans: the whole of a reader after parsing.
#[derive(Debug)]
pub(crate) struct SpanFile {
    bytes: FileBytes,
    format: WeightFormat,
    /// Names in the order of the file.
    names: Vec<String>,
    tensors: HashMap<String, TensorSpans>,
    /// Text by key.
    pub(crate) metadata: BTreeMap<String, String>,
}

impl SpanFile {
    /// A file without tensors.
    pub(crate) fn new(bytes: FileBytes, format: WeightFormat) -> SpanFile {
        let (names, tensors, metadata) = Default::default();
        SpanFile { bytes, format, names, tensors, metadata }
    }

    /// Adds a tensor.
    ///
    /// # Errors
    /// When there is one of that name.
    pub(crate) fn insert(&mut self, name: &str, tensor: TensorSpans) -> Result<()> {
        if self.tensors.insert(name.to_owned(), tensor).is_some() {
            let (file, name) = (self.bytes.path().to_owned(), name.to_owned());
            return Err(StoreError::Duplicate { file, name });
        }
        self.names.push(name.to_owned());
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        self.bytes.path()
    }

    pub(crate) fn format(&self) -> WeightFormat {
        self.format
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    pub(crate) fn info(&self, name: &str) -> Option<TensorInfo> {
        self.tensors.get(name).map(TensorSpans::info)
    }

    pub(crate) fn contents(&self, name: &str) -> Result<TensorContents> {
        let tensor = self.tensors.get(name).ok_or_else(|| StoreError::NotFound {
            file: self.path().to_owned(),
            name: name.to_owned(),
            suggestion: closest(name, self.names()).map(str::to_owned),
        })?;
        tensor.contents(&self.bytes, name)
    }
}

/// Implements the constructors of a reader and [`TensorSource`](crate::TensorSource) for a struct around a
/// [`SpanFile`]. Its `parse` reads the bytes of a file.
macro_rules! span_source {
    ($reader:ident) => {
        impl $reader {
            /// Opens a file. Files of at least 1 MiB are memory-mapped where the system supports it.
            ///
            /// # Errors
            /// When the file cannot be read, or violates its format.
            pub fn open(path: impl AsRef<std::path::Path>) -> $crate::error::Result<$reader> {
                let bytes = $crate::bytes::FileBytes::open(path.as_ref())?;
                $crate::stand_in::refuse(bytes.path(), bytes.all())?;
                $reader::parse(bytes)
            }

            /// Reads a file that is in memory.
            ///
            /// # Errors
            /// When the bytes violate the format.
            pub fn from_bytes(bytes: Vec<u8>) -> $crate::error::Result<$reader> {
                let bytes = $crate::bytes::FileBytes::from_vec(bytes);
                $crate::stand_in::refuse(bytes.path(), bytes.all())?;
                $reader::parse(bytes)
            }
        }

        impl $crate::source::TensorSource for $reader {
            fn path(&self) -> &std::path::Path {
                self.0.path()
            }

            fn format(&self) -> $crate::source::WeightFormat {
                self.0.format()
            }

            fn names(&self) -> Vec<&str> {
                self.0.names()
            }

            fn info(&self, name: &str) -> Option<$crate::source::TensorInfo> {
                self.0.info(name)
            }

            fn contents(&self, name: &str) -> $crate::error::Result<$crate::source::TensorContents> {
                self.0.contents(name)
            }

            fn metadata(&self) -> std::collections::BTreeMap<String, String> {
                self.0.metadata.clone()
            }
        }
    };
}

pub(crate) use span_source;
