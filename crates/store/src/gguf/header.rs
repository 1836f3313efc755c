//! The header of a GGUF file: metadata, then name, shape, type and offset of each tensor.
//!
//! A file contains `GGUF`, the version (`u32`), the numbers of tensors and of metadata entries (`u64`), the entries, the
//! descriptions of the tensors, and, from the next multiple of the alignment, the elements. Strings and arrays start with
//! their length (`u64`). Source: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::collections::BTreeSet;

use kiln_tensor::{MAX_RANK, Shape};

use super::element::StoredType;
use super::metadata::Metadata;
use super::metadata_type::{MetadataArray, MetadataType, MetadataValue};
use crate::bytes::FileBytes;
use crate::error::{Result, StoreError};

pub(super) const MAGIC: &[u8; 4] = b"GGUF";

/// The version that is written.
pub(super) const VERSION: u32 = 3;

pub(super) const ALIGNMENT: &str = "general.alignment";

/// The alignment of files without the key [`ALIGNMENT`], in bytes.
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;

/// Limit on the nesting of arrays.
const MAX_DEPTH: usize = 8;

/// Minimum size of a metadata entry in bytes: length of the key, type, value.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 1;

/// Minimum size of a tensor's description in bytes: length of the name, rank, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

/// A parsed header.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) metadata: Metadata,
    /// In the order of the file.
    pub(super) tensors: Vec<Entry>,
    pub(super) big_endian: bool,
}

/// The position and type of a tensor.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Row-major: the last dimension is contiguous, the reverse of the order in the file.
    pub(super) shape: Shape,
    pub(super) stored: StoredType,
    /// Offset in the file. Of unknown types, the range is empty.
    pub(super) begin: u64,
    pub(super) end: u64,
}

impl Header {
    /// Parses and checks the header of a file.
    pub(super) fn parse(bytes: &FileBytes) -> Result<Header> {
        let mut reader = Reader { bytes, at: 0, big_endian: false };
        reader.start()?;
        let tensors = reader.u64("the number of tensors")?;
        let entries = reader.u64("the number of metadata entries")?;
        // Tensors follow the metadata, so both counts fit the rest of the file together.
        reader.check_count(tensors, MIN_TENSOR_BYTES, "tensors", reader.at - 16)?;
        reader.check_count(entries, MIN_ENTRY_BYTES, "metadata entries", reader.at - 8)?;
        let metadata = reader.metadata(entries)?;
        let alignment = reader.alignment(&metadata)?;
        let mut tensors = reader.tensors(tensors)?;
        let data_start = reader.at.next_multiple_of(alignment);
        for tensor in &mut tensors {
            reader.place(tensor, data_start, alignment)?;
        }
        let tensors: Vec<Entry> = tensors.into_iter().map(|tensor| tensor.entry).collect();
        check_overlaps(bytes, &tensors)?;
        Ok(Header { metadata, tensors, big_endian: reader.big_endian })
    }
}

/// A tensor whose range is not yet computed.
struct Described {
    entry: Entry,
    /// Position of the description.
    at: u64,
    /// Offset from the start of the elements.
    offset: u64,
}

/// A position in a file.
pub(super) struct Reader<'a> {
    bytes: &'a FileBytes,
    at: u64,
    big_endian: bool,
}

impl<'a> Reader<'a> {
    /// Reads the magic bytes and the version, and detects the byte order.
    fn start(&mut self) -> Result<()> {
        let all = self.bytes.all();
        let start = &all[..all.len().min(MAGIC.len())];
        if start != MAGIC {
            return Err(self.malformed(0, wrong_start(start)));
        }
        self.at = MAGIC.len() as u64;
        let version = self.u32("the version")?;
        // Versions are small: one with zeros in its low bytes has the other byte order.
        self.big_endian = version != 0 && version & 0xffff == 0;
        match if self.big_endian { version.swap_bytes() } else { version } {
            2 | 3 => Ok(()),
            version => {
                let hint = if version == 1 {
                    "version 1 was replaced in August 2023: get a newer file, or convert the original model again"
                } else {
                    "the file is damaged, or its format is newer than Kiln"
                };
                let problem =
                    format!("unsupported GGUF version {version}; supported: 2 and 3\n  hint: {hint}");
                Err(self.malformed(4, problem))
            }
        }
    }

    fn metadata(&mut self, count: u64) -> Result<Metadata> {
        let mut metadata = Metadata::new();
        for _ in 0..count {
            let at = self.at;
            let key = self.string("a metadata key")?;
            let code = self.u32("the type of a metadata value")?;
            let value = MetadataValue::read(self, code, &key)?;
            let value = value.ok_or_else(|| self.unknown_type(code, &key))?;
            if metadata.contains(&key) {
                return Err(self.malformed(at, format!("duplicate metadata key `{}`", key.escape_debug())));
            }
            metadata.insert(key, value);
        }
        Ok(metadata)
    }

    /// Reads an array. `depth` counts the arrays around it, and itself.
    pub(super) fn array(&mut self, key: &str, depth: usize) -> Result<MetadataArray> {
        if depth > MAX_DEPTH {
            let problem =
                format!("`{}` has arrays nested deeper than {MAX_DEPTH} levels", key.escape_debug());
            return Err(self.malformed(self.at, problem));
        }
        let code = self.u32(key)?;
        let count = self.u64(key)?;
        let array = MetadataArray::read_elements(self, (code, count), key, depth + 1)?;
        array.ok_or_else(|| self.unknown_type(code, key))
    }

    /// Reads `count` elements. `depth` is that of elements that are arrays.
    pub(super) fn many<T: MetadataType>(&mut self, count: u64, key: &str, depth: usize) -> Result<Vec<T>> {
        let what = format!("elements of `{}`", key.escape_debug());
        self.check_count(count, T::MIN_BYTES, &what, self.at - 8)?;
        // At most the length of the file.
        let mut elements = Vec::with_capacity(count as usize);
        for _ in 0..count {
            elements.push(T::read(self, key, depth)?);
        }
        Ok(elements)
    }

    fn alignment(&self, metadata: &Metadata) -> Result<u64> {
        let Some(value) = metadata.get(ALIGNMENT) else { return Ok(DEFAULT_ALIGNMENT) };
        let alignment = value.as_u64().filter(|alignment| *alignment <= u64::from(u32::MAX));
        match alignment.filter(|alignment| alignment.is_power_of_two()) {
            Some(alignment) => Ok(alignment),
            None => {
                Err(self.malformed(self.at, format!("`{ALIGNMENT}` is {value}, which is not a power of two")))
            }
        }
    }

    fn tensors(&mut self, count: u64) -> Result<Vec<Described>> {
        self.check_count(count, MIN_TENSOR_BYTES, "tensors", self.at)?;
        let (mut tensors, mut names) = (Vec::new(), BTreeSet::new());
        for _ in 0..count {
            let tensor = self.tensor()?;
            // Checked at once, so that a file of equal names takes no memory for all of them.
            if !names.insert(tensor.entry.name.clone()) {
                let file = self.bytes.path().to_owned();
                return Err(StoreError::Duplicate { file, name: tensor.entry.name });
            }
            tensors.push(tensor);
        }
        Ok(tensors)
    }

    fn tensor(&mut self) -> Result<Described> {
        let at = self.at;
        let name = self.string("the name of a tensor")?;
        let rank_at = self.at;
        let rank = self.u32("the rank of a tensor")? as usize;
        if rank > MAX_RANK {
            let problem = format!(
                "tensor `{}` has {rank} dimensions, more than the {MAX_RANK} allowed",
                name.escape_debug()
            );
            return Err(self.malformed(rank_at, problem));
        }
        let mut lengths = [0; MAX_RANK];
        for length in lengths[..rank].iter_mut().rev() {
            let length_at = self.at;
            let value = self.u64("a dimension of a tensor")?;
            *length = usize::try_from(value).map_err(|_| {
                let problem = format!("tensor `{}` has a dimension of {value}", name.escape_debug());
                self.malformed(length_at, problem)
            })?;
        }
        let stored = StoredType::from_code(self.u32("the type of a tensor")?);
        let offset = self.u64("the offset of a tensor")?;
        let entry = Entry { name, shape: Shape::new(&lengths[..rank]), stored, begin: 0, end: 0 };
        Ok(Described { entry, at, offset })
    }

    /// Computes and checks the range of a tensor in the file.
    fn place(&self, tensor: &mut Described, data_start: u64, alignment: u64) -> Result<()> {
        let Described { entry, at, offset } = tensor;
        let named = |problem: String| {
            self.malformed(*at, format!("tensor `{}`: {problem}", entry.name.escape_debug()))
        };
        let bytes = entry.stored.num_bytes(&entry.shape).map_err(named)?.unwrap_or(0);
        if !offset.is_multiple_of(alignment) {
            let problem = format!("its offset {offset} is not a multiple of the alignment {alignment}");
            return Err(named(problem));
        }
        let held = self.bytes.all().len() as u64;
        let begin = data_start.checked_add(*offset);
        let end = begin.and_then(|begin| begin.checked_add(bytes));
        match begin.zip(end) {
            Some((begin, end)) if end <= held => (entry.begin, entry.end) = (begin, end),
            // An empty tensor may be the last one of a file without padding.
            Some((begin, end)) if begin == end && *offset == 0 => {
                (entry.begin, entry.end) = (held, held);
            }
            Some(_) | None => {
                let problem = format!(
                    "its {bytes} bytes at offset {offset} of the data end after the file, which has {held} bytes\n  hint: \
                     the file is truncated; get it again"
                );
                return Err(named(problem));
            }
        }
        Ok(())
    }

    /// Checks that the rest of the file is long enough for `count` elements, before memory for them is allocated.
    fn check_count(&self, count: u64, min_bytes: u64, what: &str, at: u64) -> Result<()> {
        let rest = (self.bytes.all().len() as u64).saturating_sub(self.at);
        if count.checked_mul(min_bytes).is_some_and(|bytes| bytes <= rest) {
            return Ok(());
        }
        Err(self.malformed(at, format!("{count} {what} do not fit the {rest} bytes that follow")))
    }

    pub(super) fn string(&mut self, what: &str) -> Result<String> {
        let length = self.u64(what)?;
        let at = self.at;
        let bytes = self.bytes.slice(at..at.saturating_add(length), what)?;
        self.at += length;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => {
                let problem = format!("{} is not UTF-8", what.escape_debug());
                Err(self.malformed(at + error.valid_up_to() as u64, problem))
            }
        }
    }

    pub(super) fn boolean(&mut self, what: &str) -> Result<bool> {
        let at = self.at;
        match self.number(what)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [byte] => {
                let problem = format!("`{}` is a boolean of {byte}, not 0 or 1", what.escape_debug());
                Err(self.malformed(at, problem))
            }
        }
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.number(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.number(what)?))
    }

    /// Reads the bytes of a number, as little-endian.
    pub(super) fn number<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let bytes = self.bytes.slice(self.at..self.at + N as u64, what)?;
        let mut number = [0; N];
        number.copy_from_slice(bytes);
        if self.big_endian {
            number.reverse();
        }
        self.at += N as u64;
        Ok(number)
    }

    fn unknown_type(&self, code: u32, key: &str) -> StoreError {
        self.malformed(self.at, format!("`{}` has a value of unknown type {code}", key.escape_debug()))
    }

    fn malformed(&self, at: u64, problem: impl Into<String>) -> StoreError {
        StoreError::malformed(self.bytes.path(), at, problem)
    }
}

/// Checks that no byte belongs to two tensors.
fn check_overlaps(bytes: &FileBytes, tensors: &[Entry]) -> Result<()> {
    let mut ordered: Vec<&Entry> = tensors.iter().filter(|tensor| tensor.begin < tensor.end).collect();
    ordered.sort_by_key(|tensor| (tensor.begin, tensor.end));
    match ordered.windows(2).find(|pair| pair[1].begin < pair[0].end) {
        Some(pair) => {
            let names = [pair[0], pair[1]].map(|tensor| tensor.name.escape_debug());
            let problem = format!("tensors `{}` and `{}` overlap", names[0], names[1]);
            Err(StoreError::malformed(bytes.path(), pair[1].begin, problem))
        }
        None => Ok(()),
    }
}

fn wrong_start(start: &[u8]) -> String {
    let hint = match start {
        b"lmgg" | b"tjgg" | b"fmgg" | b"algg" => {
            "it is a GGML file of before August 2023: get a newer file, or convert the original model again"
        }
        _ if MAGIC.starts_with(start) => "the file is truncated; get it again",
        _ => "`Weights::open` detects the format of a file",
    };
    format!("is not a GGUF file, which starts with `GGUF`\n  hint: {hint}")
}
