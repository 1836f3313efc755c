//! Files of `torch.save` before PyTorch 1.6: pickles and storages that follow each other.
//!
//! The pickles are a magic number, a protocol version, a description of the system, the values, and the keys of the
//! storages. Then each storage follows: the number of its elements (8 bytes), and its little-endian elements. Source:
//! <https://github.com/pytorch/pytorch/blob/v2.6.0/torch/serialization.py> (`_legacy_save`).

use std::collections::HashMap;

use super::objects::Declared;
use super::pickle::{self, Id, Node, Origin, Pickle};
use super::storage::{Storage, Storages};
use super::{Contents, PyTorchOptions, Root};
use crate::bytes::FileBytes;
use crate::error::{Result, StoreError};
use crate::source::WeightFormat;

/// 0x1950a86a20f9469cfc6c, as a pickle has it: little-endian.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// The version of the layout.
const PROTOCOL: i64 = 1001;

/// Bytes of the number of elements before each storage.
const COUNT_BYTES: u64 = 8;

/// Returns whether bytes start with the magic number as a pickle of protocol 2 or newer.
pub(super) fn is_legacy(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x80) && bytes.windows(MAGIC.len()).take(16).any(|window| window == MAGIC)
}

/// Reads a legacy file, or a plain pickle.
pub(super) fn read(file: FileBytes, options: &PyTorchOptions) -> Result<Contents> {
    let mut reader = Reader { file: &file, options, at: 0 };
    let first = reader.pickle()?;
    let is_magic = matches!(first.node(first.root), Node::LargeInt(span) if first.slice(*span) == MAGIC);
    let (values, storages) = if is_magic {
        let version = reader.pickle()?;
        if version.int(version.root) != Some(PROTOCOL) {
            return Err(version.malformed(version.root, format!("the version of the file is not {PROTOCOL}")));
        }
        reader.pickle()?;
        let values = reader.pickle()?;
        let storages = reader.storages(&values)?;
        (values, storages)
    } else if reader.at == file.all().len() as u64 {
        // A plain pickle, with arrays of NumPy.
        (first, Storages::default())
    } else {
        let problem = "is not a file of `torch.save`: it does not start with its magic number";
        return Err(StoreError::malformed(file.path(), 0, problem));
    };
    let roots = vec![Root { pickle: values, folder: "" }];
    Ok(Contents { format: WeightFormat::PyTorchLegacy, roots, storages, verifies: options.verifies, file })
}

struct Reader<'a> {
    file: &'a FileBytes,
    options: &'a PyTorchOptions,
    at: u64,
}

impl Reader<'_> {
    /// Reads the pickle at the current offset.
    fn pickle(&mut self) -> Result<Pickle> {
        let bytes = self.file.shared(self.at..self.file.all().len() as u64, "a pickle")?;
        let pickle = pickle::read(bytes, Origin::file(self.file.path(), self.at), &self.options.allowed)?;
        self.at += pickle.length;
        Ok(pickle)
    }

    fn storages(&mut self, values: &Pickle) -> Result<Storages> {
        let declared = declared(values)?;
        let keys = self.pickle()?;
        let Some(elements) = keys.elements(keys.root) else {
            return Err(keys.malformed(keys.root, "the keys of the storages are not a list"));
        };
        let mut storages = Storages::default();
        for &element in elements {
            let key = keys.int(element).map(|number| number.to_string());
            let Some(key) = key.or_else(|| keys.text(element).map(str::to_owned)) else {
                return Err(keys.malformed(element, "the key of a storage is not a string"));
            };
            let Some(&size) = declared.get(&key) else {
                let problem = format!("no value uses the storage `{}`", key.escape_debug());
                return Err(keys.malformed(element, problem));
            };
            let (start, bytes) = counted(self.file, self.at, size, &key)?;
            self.at = start + bytes;
            let storage = Storage {
                key: key.clone(),
                element: None,
                start,
                bytes,
                big_endian: false,
                compressed: None,
                checksum: None,
            };
            if storages.add(storage).is_none() {
                return Err(
                    keys.malformed(element, format!("there are two storages `{}`", key.escape_debug()))
                );
            }
        }
        Ok(storages)
    }
}

/// Returns the element size in bytes of each storage that the values use.
fn declared(values: &Pickle) -> Result<HashMap<String, u64>> {
    let mut sizes = HashMap::new();
    let is_storage = |id: &Id| matches!(values.node(*id), Node::Persistent(_));
    for id in values.ids().filter(is_storage) {
        let Some(declared) = Declared::of(values, id) else {
            return Err(values.malformed(id, "the reference to a storage is damaged"));
        };
        let size = declared.element.map_or(1, |element| element.bytes);
        if *sizes.entry(declared.key).or_insert(size) != size {
            return Err(values.malformed(id, "a storage has elements of two sizes"));
        }
    }
    Ok(sizes)
}

/// Reads the number of elements at `at`, and returns the offset and number of the bytes of the elements.
pub(super) fn counted(file: &FileBytes, at: u64, size: u64, key: &str) -> Result<(u64, u64)> {
    let what = format!("storage `{}`", key.escape_debug());
    let start = at.saturating_add(COUNT_BYTES);
    let mut count = [0; COUNT_BYTES as usize];
    count.copy_from_slice(file.slice(at..start, &format!("the length of {what}"))?);
    let bytes = u64::try_from(i64::from_le_bytes(count)).ok().and_then(|count| count.checked_mul(size));
    let Some(bytes) = bytes else {
        let problem = format!("{what} has an impossible number of elements: {}", i64::from_le_bytes(count));
        return Err(StoreError::malformed(file.path(), at, problem));
    };
    file.slice(start..start.saturating_add(bytes), &what)?;
    Ok((start, bytes))
}
