//! Flax files: the MessagePack of `flax.serialization.to_bytes`.
//!
//! A file is a tree of maps whose leaves are arrays. Names are the keys joined by dots: `params.Dense_0.kernel`. Flax
//! keeps the weights of dense layers as `[in, out]` and those of convolutions as `[height, width, in, out]`;
//! [`Mapping::transpose`](crate::Mapping::transpose) reorders matrices.
//!
//! | leaf | in Kiln |
//! |---|---|
//! | extension type 1, an array, and 3, a NumPy scalar | a tensor |
//! | a map with `__msgpack_chunked_array__`: an array above 1 GiB in parts | a tensor |
//! | Python numbers, texts, complex numbers and bytes | text in the metadata |
//!
//! An array is the MessagePack of its shape, the name of its dtype, and its bytes in C order, little-endian. Source:
//! <https://flax.readthedocs.io/en/latest/api_reference/flax.serialization.html>.

use std::ops::Range;

use kiln_tensor::{DType, MAX_RANK, Shape};

use crate::bytes::FileBytes;
use crate::error::{Result, StoreError};
use crate::msgpack::{Number, Value};
use crate::source::WeightFormat;
use crate::tensor_spans::{SpanFile, TensorSpans, span_source};

/// The key that marks an array in parts.
const CHUNKED: &str = "__msgpack_chunked_array__";

/// The extension types.
const ARRAY: i8 = 1;
const COMPLEX: i8 = 2;
const SCALAR: i8 = 3;

/// A Flax file that is open for reading.
///
/// ```
/// use kiln_store::{TensorSource, flax::FlaxFile};
///
/// // `flax.serialization.to_bytes({"bias": numpy.ones(1, "float32")})`
/// let bytes = b"\x81\xa4bias\xc7\x11\x01\x93\x91\x01\xa7float32\xc4\x04\x00\x00\x80\x3f";
/// let file = FlaxFile::from_bytes(bytes.to_vec())?;
/// assert_eq!(file.names(), ["bias"]);
/// assert_eq!(file.contents("bias")?.into_data()?.to_vec::<f32>(), [1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FlaxFile(SpanFile);

span_source!(FlaxFile);

impl FlaxFile {
    pub(crate) fn parse(bytes: FileBytes) -> Result<FlaxFile> {
        let root = Value::parse(bytes.path(), bytes.all(), 0..bytes.all().len() as u64)?;
        if !matches!(root, Value::Map(_)) {
            let problem = "the file is not a map of arrays, as `flax.serialization.to_bytes` writes it";
            return Err(StoreError::malformed(bytes.path(), 0, problem));
        }
        let mut walk = Walk { bytes: bytes.clone(), file: SpanFile::new(bytes, WeightFormat::Flax) };
        walk.value("", &root)?;
        Ok(FlaxFile(walk.file))
    }
}

/// A pass over the tree that collects the tensors.
struct Walk {
    bytes: FileBytes,
    file: SpanFile,
}

impl Walk {
    fn value(&mut self, name: &str, value: &Value) -> Result<()> {
        let text = match value {
            Value::Map(_) if value.get(CHUNKED).is_some() => {
                let tensor = self.chunked(name, value)?;
                return self.file.insert(name, tensor);
            }
            Value::Map(entries) => {
                return entries.iter().try_for_each(|(key, value)| self.value(&joined(name, key), value));
            }
            Value::Array(values) => {
                let mut entries = values.iter().enumerate();
                return entries.try_for_each(|(i, value)| self.value(&joined(name, &i.to_string()), value));
            }
            Value::Extension(ARRAY | SCALAR, range) => {
                let tensor = self.array(name, range)?;
                return self.file.insert(name, tensor);
            }
            Value::Extension(COMPLEX, range) => self.complex(range)?,
            Value::Extension(kind, range) => {
                let problem = format!("`{name}` is of the extension type {kind}; Flax has the types 1 to 3");
                return Err(StoreError::malformed(self.bytes.path(), range.start, problem));
            }
            Value::Nil => return Ok(()),
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text.clone(),
            Value::Binary(range) => format!("{} bytes", range.end - range.start),
            Value::Numbers(numbers) => format!("{} numbers", numbers.count),
        };
        self.file.metadata.insert(name.to_owned(), text);
        Ok(())
    }

    /// The array in the data of an extension type: shape, name of the dtype, and bytes.
    fn array(&self, name: &str, range: &Range<u64>) -> Result<TensorSpans> {
        let (path, all) = (self.bytes.path(), self.bytes.all());
        let parsed = Value::parse(path, all, range.clone())?;
        let malformed = || {
            let problem = format!("`{name}` is not an array of a shape, a dtype and bytes");
            StoreError::malformed(path, range.start, problem)
        };
        let Value::Array(parts) = parsed else { return Err(malformed()) };
        let [Value::Numbers(shape), Value::Text(dtype), Value::Binary(elements)] = parts.as_slice() else {
            return Err(malformed());
        };
        let ty = (shape.shape(path, all)?, dtype_of(dtype), dtype.clone());
        TensorSpans::new(path, name, ty, vec![elements.clone()])
    }

    /// An array in parts: its shape by axis, and one-dimensional arrays by index.
    fn chunked(&self, name: &str, value: &Value) -> Result<TensorSpans> {
        let malformed = |problem: &str| {
            StoreError::malformed(self.bytes.path(), 0, format!("the parts of `{name}`: {problem}"))
        };
        let shape = numbered(value.get("shape")).ok_or_else(|| malformed("the shape is missing"))?;
        let lengths = shape.into_iter().map(|value| match value {
            Value::Number(number) => number.length(),
            Value::Nil
            | Value::Text(_)
            | Value::Binary(_)
            | Value::Extension(..)
            | Value::Numbers(_)
            | Value::Array(_)
            | Value::Map(_) => None,
        });
        let lengths: Option<Vec<usize>> = lengths.collect();
        let lengths = lengths.filter(|lengths| lengths.len() <= MAX_RANK);
        let lengths = lengths.ok_or_else(|| malformed("the shape is invalid"))?;
        let parts = numbered(value.get("chunks")).ok_or_else(|| malformed("the parts are missing"))?;
        let parts = parts.into_iter().map(|part| match part {
            Value::Extension(ARRAY, range) => self.array(name, range),
            Value::Extension(..)
            | Value::Nil
            | Value::Number(_)
            | Value::Text(_)
            | Value::Binary(_)
            | Value::Numbers(_)
            | Value::Array(_)
            | Value::Map(_) => Err(malformed("one is not an array")),
        });
        let parts = parts.collect::<Result<Vec<TensorSpans>>>()?;
        let Some(first) = parts.first() else { return Err(malformed("there is none")) };
        let dtype = (first.dtype(), first.dtype_name().to_owned());
        if parts.iter().any(|part| part.dtype_name() != dtype.1) {
            return Err(malformed("their dtypes differ"));
        }
        let ranges = parts.iter().flat_map(|part| part.ranges().to_vec()).collect();
        TensorSpans::new(self.bytes.path(), name, (Shape::new(&lengths), dtype.0, dtype.1), ranges)
    }

    fn complex(&self, range: &Range<u64>) -> Result<String> {
        let (path, all) = (self.bytes.path(), self.bytes.all());
        match Value::parse(path, all, range.clone())? {
            Value::Numbers(parts) if parts.count == 2 => {
                let parts: Vec<String> = parts.read(path, all)?.iter().map(Number::to_string).collect();
                Ok(format!("{} + {}i", parts[0], parts[1]))
            }
            Value::Numbers(_)
            | Value::Nil
            | Value::Number(_)
            | Value::Text(_)
            | Value::Binary(_)
            | Value::Extension(..)
            | Value::Array(_)
            | Value::Map(_) => {
                Err(StoreError::malformed(path, range.start, "a complex number is not a pair of numbers"))
            }
        }
    }
}

/// The values of a map with the keys `0`, `1` and so on, in the order of the keys.
fn numbered(map: Option<&Value>) -> Option<Vec<&Value>> {
    let Some(Value::Map(entries)) = map else { return None };
    let mut ordered: Vec<Option<&Value>> = vec![None; entries.len()];
    for (key, value) in entries {
        *ordered.get_mut(key.parse::<usize>().ok()?)? = Some(value);
    }
    ordered.into_iter().collect()
}

fn joined(name: &str, key: &str) -> String {
    if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") }
}

/// The dtype of a NumPy name; `None` of those that Kiln does not support.
fn dtype_of(name: &str) -> Option<DType> {
    Some(match name {
        "float64" => DType::F64,
        "float32" => DType::F32,
        "float16" => DType::F16,
        "bfloat16" => DType::BF16,
        "int64" => DType::I64,
        "int32" => DType::I32,
        "int16" => DType::I16,
        "int8" => DType::I8,
        "uint64" => DType::U64,
        "uint32" => DType::U32,
        "uint16" => DType::U16,
        "uint8" => DType::U8,
        "bool" => DType::Bool,
        _ => return None,
    })
}
