//! Burnpack: a header, metadata in CBOR, and the elements of all tensors.
//!
//! | bytes | contents |
//! |---|---|
//! | 4 | `NRUB` |
//! | 2 | the version, little-endian: 1 |
//! | 4 | the length of the metadata, little-endian |
//! | | the metadata: `{tensors: {name: {dtype, shape, data_offsets, param_id}}, metadata: {key: text}}` |
//! | | padding to a multiple of 256 bytes; Burn 0.19 writes none |
//! | | the elements, little-endian; offsets count from here |
//!
//! Source: <https://docs.rs/burn-pack>.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use ciborium::Value;
use kiln_tensor::{MAX_RANK, Shape};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{dtype_name, dtype_of};
use crate::bytes::FileBytes;
use crate::error::{Result, StoreError};
use crate::source::WeightFormat;
use crate::tensor_spans::{SpanFile, TensorSpans, span_source};

/// The first bytes of a file.
pub(crate) const MAGIC: &[u8] = b"NRUB";

/// The version that this reader knows.
const VERSION: u16 = 1;

/// The length of magic, version and length of the metadata in bytes.
const HEADER: u64 = 10;

/// The alignment of the elements in bytes, since Burn 0.20.
const ALIGNMENT: u64 = 256;

/// Limit on the nesting of the metadata. A Burnpack needs 5 levels.
const MAX_DEPTH: usize = 32;

/// A Burnpack file that is open for reading.
#[derive(Debug)]
pub struct BurnpackFile(SpanFile);

span_source!(BurnpackFile);

#[derive(Deserialize)]
struct Metadata {
    tensors: Entries,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    scalars: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Descriptor {
    dtype: Value,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl BurnpackFile {
    pub(crate) fn parse(bytes: FileBytes) -> Result<BurnpackFile> {
        let (metadata, end) = metadata(&bytes)?;
        let path = bytes.path().to_owned();
        let start = data_start(&bytes, end, &metadata.tensors)?;
        check_overlaps(&path, start, &metadata.tensors)?;
        let mut file = SpanFile::new(bytes, WeightFormat::Burnpack);
        for (name, descriptor) in &metadata.tensors.0 {
            file.insert(name, descriptor.spans(&path, name, start)?)?;
        }
        file.metadata = metadata.metadata;
        file.metadata
            .extend(metadata.scalars.iter().map(|(name, scalar)| (name.clone(), scalar_text(scalar))));
        Ok(BurnpackFile(file))
    }
}

/// Reads the metadata, and returns the offset of its end.
fn metadata(bytes: &FileBytes) -> Result<(Metadata, u64)> {
    let path = bytes.path();
    let header = bytes.slice(0..HEADER, "the header")?;
    if !header.starts_with(MAGIC) {
        return Err(StoreError::malformed(path, 0, "the file does not start with `NRUB`"));
    }
    let version = u16::from_le_bytes([header[4], header[5]]);
    if version != VERSION {
        let problem = format!("the file has version {version}; supported: {VERSION}");
        return Err(StoreError::malformed(path, 4, problem));
    }
    let length = u32::from_le_bytes([header[6], header[7], header[8], header[9]]);
    let end = HEADER + u64::from(length);
    let text = bytes.slice(HEADER..end, "the metadata")?;
    let metadata = ciborium::de::from_reader_with_recursion_limit(text, MAX_DEPTH).map_err(|error| {
        let at = match error {
            ciborium::de::Error::Syntax(at) => at as u64,
            ciborium::de::Error::Semantic(at, _) => at.unwrap_or(0) as u64,
            ciborium::de::Error::Io(_) => u64::from(length),
            ciborium::de::Error::RecursionLimitExceeded => 0,
        };
        StoreError::malformed(path, HEADER + at, format!("the metadata is invalid: {error}"))
    })?;
    Ok((metadata, end))
}

/// The offset of the elements, with or without padding before them.
///
/// A padded file that is cut off may be as long as one without padding. It is told apart by its offsets, which are
/// multiples of the alignment, and by its padding, which is 0.
fn data_start(bytes: &FileBytes, metadata_end: u64, tensors: &Entries) -> Result<u64> {
    let (path, length) = (bytes.path(), bytes.all().len() as u64);
    let offsets = || tensors.0.iter().map(|(_, descriptor)| descriptor.data_offsets);
    let data = offsets().map(|(_, end)| end).max().unwrap_or(0);
    let aligned = metadata_end.next_multiple_of(ALIGNMENT);
    let fits = |start: u64| start.checked_add(data) == Some(length);
    let padding = bytes.slice(metadata_end..aligned.min(length), "the padding")?;
    let is_unpadded =
        offsets().any(|(begin, _)| !begin.is_multiple_of(ALIGNMENT)) || padding.iter().any(|&byte| byte != 0);
    if fits(aligned) {
        return Ok(aligned);
    }
    if fits(metadata_end) && is_unpadded {
        return Ok(metadata_end);
    }
    let problem = format!("the file has {length} bytes, but its metadata declare {data} from byte {aligned}");
    Err(StoreError::malformed(path, metadata_end, problem))
}

/// Checks that no two tensors share bytes.
fn check_overlaps(path: &Path, start: u64, tensors: &Entries) -> Result<()> {
    let mut ordered: Vec<(u64, u64, &str)> = Vec::new();
    for (name, Descriptor { data_offsets: (begin, end), .. }) in &tensors.0 {
        if begin > end {
            let problem = format!("tensor `{name}` has bytes {begin}..{end} of the data");
            return Err(StoreError::malformed(path, start, problem));
        }
        ordered.push((*begin, *end, name));
    }
    ordered.sort_unstable();
    match ordered.windows(2).find(|pair| pair[0].1 > pair[1].0 && pair[1].0 < pair[1].1) {
        Some(pair) => {
            let problem = format!("tensors `{}` and `{}` overlap", pair[0].2, pair[1].2);
            Err(StoreError::malformed(path, start + pair[1].0, problem))
        }
        None => Ok(()),
    }
}

impl Descriptor {
    fn spans(&self, path: &Path, name: &str, start: u64) -> Result<TensorSpans> {
        let (begin, end) = self.data_offsets;
        let lengths = self.shape.iter().map(|&length| usize::try_from(length).ok());
        let lengths: Option<Vec<usize>> = lengths.collect();
        let Some(lengths) = lengths.filter(|lengths| lengths.len() <= MAX_RANK) else {
            let problem = format!("tensor `{name}` has the shape {:?}, which is not supported", self.shape);
            return Err(StoreError::malformed(path, start + begin, problem));
        };
        let (variant, inner) = variant(&self.dtype).ok_or_else(|| {
            StoreError::malformed(path, start + begin, format!("the dtype of tensor `{name}` is invalid"))
        })?;
        let ty = (Shape::new(&lengths), dtype_of(variant, inner), dtype_name(variant, inner));
        TensorSpans::new(path, name, ty, std::iter::once(start + begin..start + end).collect())
    }
}

/// The variant of an enum, and the variant inside it: a text, or a map of one entry.
fn variant(value: &Value) -> Option<(&str, Option<&str>)> {
    if let Some(name) = value.as_text() {
        return Some((name, None));
    }
    let [(name, inner)] = value.as_map()?.as_slice() else { return None };
    Some((name.as_text()?, Some(inner.as_text().unwrap_or("..")))).filter(|(name, _)| !name.is_empty())
}

/// A scalar of the metadata as text: an enum with one number.
fn scalar_text(scalar: &Value) -> String {
    let number = scalar.as_map().and_then(|map| map.first()).map_or(scalar, |(_, number)| number);
    if let Some(integer) = number.as_integer() {
        return i128::from(integer).to_string();
    }
    match (number.as_float(), number.as_bool()) {
        (Some(float), _) => float.to_string(),
        (None, Some(flag)) => flag.to_string(),
        (None, None) => format!("{number:?}"),
    }
}

/// The tensors in the order of the file.
struct Entries(Vec<(String, Descriptor)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}
