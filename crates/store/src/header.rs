//! The header of a safetensors file.
//!
//! A file contains the length of the header (8 bytes, little-endian), the header (JSON), and the elements of all
//! tensors without gaps, little-endian. Source: <https://huggingface.co/docs/safetensors/index#format>.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use kiln_tensor::{DType, MAX_RANK, Shape, TensorType};
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::error::{Result, StoreError};
use crate::float8::Float8;

/// Size of the header's length field in bytes.
pub(crate) const LENGTH_BYTES: u64 = 8;

/// Limit on the length of a header in bytes, as in the `safetensors` library.
pub(crate) const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The key of the metadata, which no tensor may have as its name.
pub(crate) const METADATA: &str = "__metadata__";

/// A parsed header.
#[derive(Debug, Default)]
pub(crate) struct Header {
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) tensors: BTreeMap<String, Entry>,
}

/// The position and type of a tensor.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The name of the dtype in the file, which Kiln may not support.
    pub(crate) dtype: String,
    pub(crate) shape: Shape,
    /// Offset in bytes from the end of the header.
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

impl Entry {
    /// The dtype after reading: 8-bit floats are decoded to `f32`.
    pub(crate) fn known_dtype(&self) -> Option<DType> {
        let plain = DType::ALL.into_iter().find(|&dtype| dtype_name(dtype) == self.dtype);
        plain.or_else(|| self.float8().map(|_| DType::F32))
    }

    pub(crate) fn float8(&self) -> Option<Float8> {
        Float8::from_name(&self.dtype)
    }
}

impl Header {
    /// Parses and checks a header. `data_bytes` is the number of bytes after it.
    pub(crate) fn parse(file: &Path, text: &[u8], data_bytes: u64) -> Result<Header> {
        let header: Header = serde_json::from_slice(text).map_err(|error| not_json(file, text, &error))?;
        header.check(file, LENGTH_BYTES + text.len() as u64, data_bytes)?;
        Ok(header)
    }

    /// Returns the header of these tensors, whose elements follow in that order. It is padded so that the elements are
    /// aligned.
    pub(crate) fn print<'a>(
        tensors: impl Iterator<Item = (&'a str, TensorType)>,
        metadata: &BTreeMap<String, String>,
    ) -> String {
        let mut fields = Vec::new();
        if !metadata.is_empty() {
            let pairs = metadata.iter().map(|(key, text)| format!("{}:{}", quoted(key), quoted(text)));
            fields.push(format!("{}:{{{}}}", quoted(METADATA), pairs.collect::<Vec<_>>().join(",")));
        }
        let mut begin = 0;
        for (name, ty) in tensors {
            let end = begin + ty.num_bytes();
            let lengths: Vec<String> = ty.shape.iter().map(usize::to_string).collect();
            fields.push(format!(
                r#"{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{begin},{end}]}}"#,
                quoted(name),
                dtype_name(ty.dtype),
                lengths.join(","),
            ));
            begin = end;
        }
        let mut text = format!("{{{}}}", fields.join(","));
        let padding = text.len().next_multiple_of(LENGTH_BYTES as usize) - text.len();
        text.extend(std::iter::repeat_n(' ', padding));
        text
    }

    /// Checks that the tensors cover the data without gaps and overlaps, with the size that each dtype and shape
    /// require.
    fn check(&self, file: &Path, data_start: u64, data_bytes: u64) -> Result<()> {
        let mut ordered: Vec<(&String, &Entry)> = self.tensors.iter().collect();
        ordered.sort_by_key(|(_, entry)| (entry.begin, entry.end));
        let mut filled = 0;
        for (name, entry) in ordered {
            let at = data_start.saturating_add(entry.begin);
            if entry.begin != filled || entry.end < entry.begin {
                let problem = format!(
                    "tensor `{name}` has bytes {}..{} of the data, expected to start at {filled}",
                    entry.begin, entry.end
                );
                return Err(StoreError::malformed(file, at, problem));
            }
            check_size(file, name, entry, at)?;
            filled = entry.end;
        }
        if filled != data_bytes {
            let (found, expected) = (data_start + data_bytes, data_start.saturating_add(filled));
            return Err(StoreError::Length { file: file.to_owned(), found, expected });
        }
        Ok(())
    }
}

fn check_size(file: &Path, name: &str, entry: &Entry, at: u64) -> Result<()> {
    let Some(dtype) = entry.known_dtype() else { return Ok(()) };
    let size = if entry.float8().is_some() { 1 } else { dtype.size() };
    let bytes = entry.shape.checked_num_elements().and_then(|n| n.checked_mul(size));
    if bytes.map(|bytes| bytes as u64) == Some(entry.end - entry.begin) {
        return Ok(());
    }
    let shown = if size == dtype.size() { dtype.to_string() } else { entry.dtype.clone() };
    let problem =
        format!("tensor `{name}` is {shown}{} but has {} bytes", entry.shape, entry.end - entry.begin);
    Err(StoreError::malformed(file, at, problem))
}

/// The name of a dtype in safetensors files.
pub(crate) fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "F64",
        DType::F32 => "F32",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::I64 => "I64",
        DType::I32 => "I32",
        DType::I16 => "I16",
        DType::I8 => "I8",
        DType::U64 => "U64",
        DType::U32 => "U32",
        DType::U16 => "U16",
        DType::U8 => "U8",
        DType::Bool => "BOOL",
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the byte offset of an error in a text.
pub(crate) fn error_offset(text: &[u8], error: &serde_json::Error) -> u64 {
    let lines = text.split(|&byte| byte == b'\n').take(error.line().saturating_sub(1));
    let before: usize = lines.map(|line| line.len() + 1).sum();
    (before + error.column().saturating_sub(1)).min(text.len()) as u64
}

fn not_json(file: &Path, text: &[u8], error: &serde_json::Error) -> StoreError {
    let place = error_offset(text, error);
    let problem = error.to_string();
    // Removes line and column within the header: the byte offset is more precise.
    let problem = problem.rsplit_once(" at line ").map_or(problem.as_str(), |(problem, _)| problem);
    StoreError::malformed(file, LENGTH_BYTES + place, format!("the header is invalid: {problem}"))
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let (mut header, mut has_metadata) = (Header::default(), false);
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                if std::mem::replace(&mut has_metadata, true) {
                    return Err(A::Error::custom(format_args!("duplicate key `{METADATA}`")));
                }
                header.metadata = map.next_value::<Texts>()?.0;
                continue;
            }
            let EntryText { dtype, shape, data_offsets: (begin, end) } = map.next_value()?;
            let entry = Entry { dtype, shape: shape.0, begin, end };
            if header.tensors.insert(name.clone(), entry).is_some() {
                return Err(A::Error::custom(format_args!("duplicate tensor name `{name}`")));
            }
        }
        Ok(header)
    }
}

/// Strings by key, without duplicate keys.
struct Texts(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Texts, D::Error> {
        deserializer.deserialize_map(TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
        let mut texts = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if texts.insert(key.clone(), map.next_value()?).is_some() {
                return Err(A::Error::custom(format_args!("duplicate key `{key}` in `{METADATA}`")));
            }
        }
        Ok(Texts(texts))
    }
}

#[derive(Deserialize)]
struct EntryText {
    dtype: String,
    shape: BoundedShape,
    data_offsets: (u64, u64),
}

/// A shape that stops parsing at the maximum rank of a tensor.
struct BoundedShape(Shape);

impl<'de> Deserialize<'de> for BoundedShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BoundedShape, D::Error> {
        deserializer.deserialize_seq(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = BoundedShape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX_RANK} lengths")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut lengths: A) -> Result<BoundedShape, A::Error> {
        let mut shape = [0; MAX_RANK];
        let mut rank = 0;
        while let Some(length) = lengths.next_element::<usize>()? {
            if rank == MAX_RANK {
                return Err(A::Error::custom(format_args!("a tensor has more than {MAX_RANK} dimensions")));
            }
            shape[rank] = length;
            rank += 1;
        }
        Ok(BoundedShape(Shape::new(&shape[..rank])))
    }
}
