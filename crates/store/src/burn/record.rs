//! Records of Burn in named MessagePack: `{metadata: {float, int, format, version, settings}, item}`.
//!
//! The item is a tree of modules: a map of fields, an array of modules, or `{Variant: module}` for an enum. A parameter
//! is `{id, param}`, and a tensor is one of these:
//!
//! | Burn | tensor |
//! |---|---|
//! | since 0.15 | `{bytes, shape, dtype}` with binary data |
//! | 0.14 | `{bytes or value, shape, dtype}` with an array of bytes |
//! | to 0.13 | `{value, shape}` with an array of numbers; the dtype is that of the metadata |
//!
//! Source: <https://docs.rs/burn-core/latest/burn_core/record/index.html>.

use std::io::Read;

use flate2::read::GzDecoder;
use half::{bf16, f16};
use kiln_tensor::{DType, Element, Shape, TensorData};

use super::{dtype_name, dtype_of};
use crate::bytes::FileBytes;
use crate::error::{Result, StoreError};
use crate::file::reverse_elements;
use crate::msgpack::{Number, Numbers, Value};
use crate::source::WeightFormat;
use crate::tensor_spans::{SpanFile, TensorSpans, span_source};

/// The first bytes of a compressed file.
pub(crate) const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

/// Limit on the length of decompressed bytes: the larger of this, and this many times the length of the file. Weights
/// compress by a factor of 2 or less; gzip reaches 1000.
const MAX_EXPANDED: u64 = 64 << 20;
const MAX_EXPANSION: u64 = 100;

/// A record of Burn that is open for reading.
///
/// [`contents`](crate::TensorSource::contents) of a compressed record are copies in memory.
#[derive(Debug)]
pub struct BurnRecordFile(SpanFile);

span_source!(BurnRecordFile);

/// Whether a file, which need not be complete, starts as a record does.
pub(crate) fn is_record(start: &[u8]) -> bool {
    // A map of 2 or 3 entries whose first key is `metadata`.
    matches!(start.first(), Some(0x82 | 0x83)) && start[1..].starts_with(b"\xa8metadata")
}

impl BurnRecordFile {
    pub(crate) fn parse(bytes: FileBytes) -> Result<BurnRecordFile> {
        let bytes = if bytes.all().starts_with(GZIP_MAGIC) { expanded(&bytes)? } else { bytes };
        let root = Value::parse(bytes.path(), bytes.all(), 0..bytes.all().len() as u64)?;
        let (Some(Value::Map(metadata)), Some(item)) = (root.get("metadata"), root.get("item")) else {
            let problem = "the file has no `metadata` and `item`, as a record of Burn has";
            return Err(StoreError::malformed(bytes.path(), 0, problem));
        };
        let text = |(key, value): &(String, Value)| Some((key.clone(), value.text()?.to_owned()));
        let mut file = SpanFile::new(bytes.clone(), WeightFormat::BurnRecord);
        file.metadata = metadata.iter().filter_map(text).collect();
        let float = Precision::of(file.metadata.get("float").map_or("", String::as_str));
        let mut walk = Walk { bytes, file, float };
        walk.value("", item)?;
        Ok(BurnRecordFile(walk.file))
    }
}

/// Decompresses a file.
fn expanded(bytes: &FileBytes) -> Result<FileBytes> {
    let limit = MAX_EXPANDED.max(MAX_EXPANSION.saturating_mul(bytes.all().len() as u64));
    let mut expanded = Vec::new();
    let read = GzDecoder::new(bytes.all()).take(limit + 1).read_to_end(&mut expanded);
    read.map_err(|error| {
        let problem = format!("the compressed data are damaged after {} bytes: {error}", expanded.len());
        StoreError::malformed(bytes.path(), 0, problem)
    })?;
    if expanded.len() as u64 > limit {
        let problem = format!("the compressed data expand to more than {limit} bytes");
        return Err(StoreError::malformed(bytes.path(), 0, problem));
    }
    Ok(FileBytes::named(bytes.path(), expanded))
}

/// The precision of numbers in records of Burn 0.13 and earlier.
#[derive(Clone, Copy)]
enum Precision {
    F16,
    BF16,
    F32,
    F64,
}

impl Precision {
    /// Parses the name of the type in the metadata, such as `half::binary16::f16`.
    fn of(name: &str) -> Precision {
        match name.rsplit("::").next() {
            Some("f16") => Precision::F16,
            Some("bf16") => Precision::BF16,
            Some("f64") => Precision::F64,
            Some(_) | None => Precision::F32,
        }
    }
}

/// A pass over the tree that collects the tensors.
struct Walk {
    bytes: FileBytes,
    file: SpanFile,
    float: Precision,
}

impl Walk {
    fn value(&mut self, name: &str, value: &Value) -> Result<()> {
        let child = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
        let text = match value {
            Value::Map(entries) => {
                let is_parameter = value.get("id").is_some_and(|id| id.text().is_some());
                let data = if is_parameter { value.get("param") } else { Some(value) };
                if let Some(tensor) = data.map(|data| self.tensor(name, data)).transpose()?.flatten() {
                    return self.file.insert(name, tensor);
                }
                return entries.iter().try_for_each(|(key, value)| self.value(&child(key), value));
            }
            Value::Array(values) => {
                let mut values = values.iter().enumerate();
                return values.try_for_each(|(i, value)| self.value(&child(&i.to_string()), value));
            }
            Value::Nil => return Ok(()),
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text.clone(),
            Value::Numbers(numbers) if numbers.count == 0 => return Ok(()),
            Value::Numbers(numbers) => format!("{} numbers", numbers.count),
            Value::Binary(range) | Value::Extension(_, range) => format!("{} bytes", range.end - range.start),
        };
        self.file.metadata.insert(format!("item.{name}"), text);
        Ok(())
    }

    /// The tensor of a map; `None` if the map is a module.
    fn tensor(&self, name: &str, map: &Value) -> Result<Option<TensorSpans>> {
        let data = map.get("bytes").or_else(|| map.get("value"));
        let (Some(Value::Numbers(shape)), Some(data)) = (map.get("shape"), data) else { return Ok(None) };
        let (path, all) = (self.bytes.path(), self.bytes.all());
        let (at, shape) = (shape.offset(), shape.shape(path, all)?);
        let dtype = map.get("dtype").map(|dtype| {
            variant(dtype)
                .ok_or_else(|| StoreError::malformed(path, at, format!("the dtype of `{name}` is invalid")))
        });
        match (data, dtype.transpose()?) {
            (Value::Binary(range), Some((variant, inner))) => {
                let ty = (shape, dtype_of(variant, inner), dtype_name(variant, inner));
                TensorSpans::new(path, name, ty, vec![range.clone()]).map(Some)
            }
            (Value::Numbers(numbers), Some((variant, inner))) => {
                let dtype = dtype_of(variant, inner);
                let data = dtype.map(|dtype| self.decode_bytes(name, numbers, shape, dtype)).transpose()?;
                let name_in_file = dtype_name(variant, inner);
                match data {
                    Some(data) => Ok(Some(TensorSpans::decoded(data, name_in_file))),
                    None => TensorSpans::new(path, name, (shape, None, name_in_file), Vec::new()).map(Some),
                }
            }
            (Value::Numbers(numbers), None) => {
                let data = self.decode_numbers(name, numbers, shape)?;
                let name_in_file = data.dtype().to_string();
                Ok(Some(TensorSpans::decoded(data, name_in_file)))
            }
            (
                Value::Binary(_)
                | Value::Nil
                | Value::Number(_)
                | Value::Text(_)
                | Value::Extension(..)
                | Value::Array(_)
                | Value::Map(_),
                _,
            ) => Err(StoreError::malformed(path, at, format!("the elements of `{name}` are invalid"))),
        }
    }

    /// The tensor whose bytes are an array of numbers.
    fn decode_bytes(&self, name: &str, numbers: &Numbers, shape: Shape, dtype: DType) -> Result<TensorData> {
        let invalid = |problem: String| {
            StoreError::malformed(self.bytes.path(), numbers.offset(), format!("tensor `{name}`: {problem}"))
        };
        let bytes = numbers.read(self.bytes.path(), self.bytes.all())?.into_iter().map(|number| {
            let byte = number.length().and_then(|byte| u8::try_from(byte).ok());
            byte.ok_or_else(|| invalid(format!("{number} is not a byte")))
        });
        let mut bytes = bytes.collect::<Result<Vec<u8>>>()?;
        if bytes.len().is_multiple_of(dtype.size()) {
            reverse_elements(&mut bytes, dtype);
        }
        TensorData::from_bytes(&bytes, kiln_tensor::TensorType { shape, dtype })
            .map_err(|error| invalid(error.to_string()))
    }

    /// The tensor whose elements are numbers. Elements of 16 bits are integers with their bits.
    fn decode_numbers(&self, name: &str, numbers: &Numbers, shape: Shape) -> Result<TensorData> {
        let path = self.bytes.path();
        let read = numbers.read(path, self.bytes.all())?;
        let problem = |problem: &str| {
            StoreError::malformed(path, numbers.offset(), format!("tensor `{name}`: {problem}"))
        };
        let data = match (self.float, kind(&read).ok_or_else(|| problem("its numbers differ in kind"))?) {
            (_, Kind::Bool) => elements(&read, shape, |number| Some(number == Number::Bool(true))),
            (Precision::F64, Kind::Float) => elements(&read, shape, float),
            (_, Kind::Float) => elements(&read, shape, |number| float(number).map(|value| value as f32)),
            (Precision::F16, Kind::Integer) => {
                elements(&read, shape, |number| bits(number).map(f16::from_bits))
            }
            (Precision::BF16, Kind::Integer) => {
                elements(&read, shape, |number| bits(number).map(bf16::from_bits))
            }
            (Precision::F32 | Precision::F64, Kind::Integer) => elements(&read, shape, integer),
        };
        data.ok_or_else(|| problem("its numbers do not fill its shape, or are out of range"))
    }
}

/// The kind of the numbers of a tensor.
enum Kind {
    Bool,
    Integer,
    Float,
}

/// The kind of all numbers; `None` if they differ. A tensor without elements is of floats.
fn kind(numbers: &[Number]) -> Option<Kind> {
    let floats = numbers.iter().filter(|number| matches!(number, Number::Float(_))).count();
    let flags = numbers.iter().filter(|number| matches!(number, Number::Bool(_))).count();
    match numbers.len() {
        count if floats == count => Some(Kind::Float),
        count if flags == count => Some(Kind::Bool),
        _ if floats + flags == 0 => Some(Kind::Integer),
        _ => None,
    }
}

fn elements<E: Element>(
    numbers: &[Number],
    shape: Shape,
    element: impl Fn(Number) -> Option<E>,
) -> Option<TensorData> {
    let elements: Option<Vec<E>> = numbers.iter().map(|&number| element(number)).collect();
    TensorData::new(elements?, shape).ok()
}

fn float(number: Number) -> Option<f64> {
    match number {
        Number::Float(value) => Some(value),
        Number::Bool(_) | Number::Signed(_) | Number::Unsigned(_) => None,
    }
}

fn integer(number: Number) -> Option<i64> {
    match number {
        Number::Signed(value) => Some(value),
        Number::Unsigned(value) => i64::try_from(value).ok(),
        Number::Bool(_) | Number::Float(_) => None,
    }
}

fn bits(number: Number) -> Option<u16> {
    number.length().and_then(|bits| u16::try_from(bits).ok())
}

/// The variant of an enum, and the variant inside it: a text, or a map of one entry.
fn variant(value: &Value) -> Option<(&str, Option<&str>)> {
    match value {
        Value::Text(name) => Some((name, None)),
        Value::Map(entries) => match entries.as_slice() {
            [(name, inner)] => Some((name, Some(inner.text().unwrap_or("..")))),
            _ => None,
        },
        Value::Nil
        | Value::Number(_)
        | Value::Binary(_)
        | Value::Extension(..)
        | Value::Numbers(_)
        | Value::Array(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_small_file_that_expands_without_end_is_refused() {
        use std::io::Write;
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        writer.write_all(&vec![0u8; (MAX_EXPANDED + 1) as usize]).unwrap();
        let bytes = writer.finish().unwrap();
        let error = expanded(&FileBytes::named(Path::new("bomb.mpk.gz"), bytes)).unwrap_err();
        assert!(error.to_string().contains("expand to more than"), "{error}");
    }
}
