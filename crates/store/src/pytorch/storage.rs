//! The storages of a file, and reading tensors from them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::read::DeflateDecoder;
use kiln_tensor::{Elements, Shape, SharedBytes, TensorData, TensorType};

use super::element::Element;
use super::objects::{Layout, Place};
use super::pickle::Pickle;
use crate::bytes::FileBytes;
use crate::error::{Result, StoreError};
use crate::source::TensorContents;

/// Limit on the bytes of a tensor that has more elements than its storage, such as an expanded one.
const MAX_EXPANDED_BYTES: u64 = 64 << 20;

/// The storages of a file.
#[derive(Debug, Default)]
pub(super) struct Storages {
    list: Vec<Storage>,
    by_key: HashMap<String, usize>,
    tar_tensors: HashMap<String, TarTensor>,
}

/// The bytes of several tensors.
#[derive(Debug)]
pub(super) struct Storage {
    pub(super) key: String,
    /// The elements, if the file has them beside the storage: in tar form.
    pub(super) element: Option<&'static Element>,
    /// File offset of the bytes.
    pub(super) start: u64,
    /// Number of bytes, after decompression.
    pub(super) bytes: u64,
    pub(super) big_endian: bool,
    /// Number of bytes in the file, if they are compressed.
    pub(super) compressed: Option<u64>,
    /// CRC-32 of the bytes, if the file has one that is not verified yet.
    pub(super) checksum: Option<Checksum>,
}

/// A CRC-32 that is verified once.
#[derive(Debug)]
pub(super) struct Checksum {
    expected: u32,
    is_verified: AtomicBool,
}

/// A tensor of an archive in tar form.
#[derive(Debug)]
pub(super) struct TarTensor {
    pub(super) storage: usize,
    /// Offset in elements.
    pub(super) offset: u64,
    pub(super) shape: Shape,
    pub(super) strides: Vec<u64>,
}

impl Checksum {
    pub(super) fn new(expected: u32) -> Checksum {
        Checksum { expected, is_verified: AtomicBool::new(false) }
    }
}

impl Storages {
    /// Adds a storage; returns `None` if there is one of that key.
    pub(super) fn add(&mut self, storage: Storage) -> Option<usize> {
        let index = self.list.len();
        if self.by_key.contains_key(&storage.key) {
            return None;
        }
        self.by_key.insert(storage.key.clone(), index);
        self.list.push(storage);
        Some(index)
    }

    pub(super) fn add_tar_tensor(&mut self, key: String, tensor: TarTensor) {
        self.tar_tensors.insert(key, tensor);
    }

    pub(super) fn tar_tensor(&self, key: &str) -> Option<&TarTensor> {
        self.tar_tensors.get(key)
    }

    pub(super) fn index(&self, folder: &str, key: &str) -> Option<usize> {
        if folder.is_empty() {
            return self.by_key.get(key).copied();
        }
        self.by_key.get(&format!("{folder}{key}")).copied()
    }

    pub(super) fn get(&self, index: usize) -> &Storage {
        &self.list[index]
    }

    /// Verifies the checksums of all storages that have one.
    pub(super) fn verify(&self, file: &FileBytes) -> Result<()> {
        self.list.iter().try_for_each(|storage| storage.read(file, true).map(drop))
    }

    /// Returns the elements of a tensor: a range of the file if possible, otherwise a copy.
    pub(super) fn contents(
        &self,
        file: &FileBytes,
        pickle: &Pickle,
        layout: &Layout,
        ty: TensorType,
        verifies: bool,
    ) -> Result<TensorContents> {
        let malformed = |problem: String| StoreError::malformed(file.path(), layout.at, problem);
        let is_native = layout.big_endian == cfg!(target_endian = "big");
        let float8 = layout.element.float8();
        let (bytes, limit) = match layout.place {
            Place::Storage(index) => {
                let storage = self.get(index);
                // Kernels do not validate `bool` elements, so these are read and checked.
                let can_share = is_native
                    && cfg!(target_endian = "little")
                    && !ty.dtype.is_bool()
                    && float8.is_none()
                    && !layout.negated;
                if can_share && storage.compressed.is_none() && layout.is_contiguous() {
                    storage.read(file, verifies)?;
                    let start = storage.start + layout.offset;
                    let shared = file.shared(start..start + layout.num_bytes(), "a tensor")?;
                    return Ok(TensorContents::Shared(shared, ty));
                }
                (storage.read(file, verifies)?, storage.bytes)
            }
            Place::Pickle(span) => {
                let bytes = pickle.slice(span);
                (Cow::Borrowed(bytes), bytes.len() as u64)
            }
            Place::Latin1(span) => {
                let bytes = latin1(pickle.slice(span)).ok_or_else(|| {
                    malformed("the bytes of an array are encoded by code points of 256 or more".to_owned())
                })?;
                let count = bytes.len() as u64;
                (Cow::Owned(bytes), count)
            }
        };
        if layout.num_bytes() > limit.max(MAX_EXPANDED_BYTES) {
            return Err(malformed(format!(
                "a tensor of {} expands a storage of {limit} bytes to {}, more than {MAX_EXPANDED_BYTES}\n  hint: save \
                 `tensor.contiguous()`",
                ty,
                layout.num_bytes()
            )));
        }
        let gathered = gather(&bytes, layout);
        let mut elements = gathered.ok_or_else(|| malformed("a tensor ends after its storage".to_owned()))?;
        if !is_native {
            elements.chunks_exact_mut(layout.element.bytes as usize).for_each(<[u8]>::reverse);
        }
        let data = match float8 {
            Some(format) => TensorData::new(format.decode_all(&elements), ty.shape),
            None => TensorData::from_bytes(&elements, ty),
        };
        let mut data = data.map_err(|error| malformed(error.to_string()))?;
        if layout.negated {
            negate(data.elements_mut());
        }
        Ok(TensorContents::Host(data))
    }
}

impl Storage {
    /// Returns the bytes. With `verifies`, checks the checksum unless it was checked before.
    fn read<'a>(&self, file: &'a FileBytes, verifies: bool) -> Result<Cow<'a, [u8]>> {
        let what = format!("storage `{}`", self.key.escape_debug());
        let held =
            file.slice(self.start..self.start.saturating_add(self.compressed.unwrap_or(self.bytes)), &what)?;
        let bytes = match self.compressed {
            Some(_) => Cow::Owned(inflate(file.path(), self.start, held, self.bytes, &what)?),
            None => Cow::Borrowed(held),
        };
        if let Some(checksum) = &self.checksum
            && verifies
            && !checksum.is_verified.load(Ordering::Relaxed)
        {
            check(file.path(), self.start, &bytes, checksum.expected, &what)?;
            checksum.is_verified.store(true, Ordering::Relaxed);
        }
        Ok(bytes)
    }
}

/// Decompresses the bytes of an entry that declares `size` bytes. It allocates no more than the entry contains.
pub(super) fn inflate(path: &Path, start: u64, compressed: &[u8], size: u64, what: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let result = DeflateDecoder::new(compressed).take(size.saturating_add(1)).read_to_end(&mut bytes);
    if let Err(error) = result {
        let problem = format!("{what}: the compressed data is damaged: {error}");
        return Err(StoreError::malformed(path, start, problem));
    }
    if bytes.len() as u64 != size {
        let more = if bytes.len() as u64 > size { "more" } else { "fewer" };
        let problem = format!("{what}: contains {more} than its {size} declared bytes");
        return Err(StoreError::malformed(path, start, problem));
    }
    Ok(bytes)
}

/// Verifies a CRC-32.
pub(super) fn check(path: &Path, start: u64, bytes: &[u8], expected: u32, what: &str) -> Result<()> {
    let found = crc32fast::hash(bytes);
    if found == expected {
        return Ok(());
    }
    let problem = format!(
        "{what}: the checksum is {found:08x}, but should be {expected:08x}\n  hint: the file is damaged; get it again"
    );
    Err(StoreError::malformed(path, start, problem))
}

/// Wraps bytes that are not a range of the file.
pub(super) fn owned(bytes: Vec<u8>) -> SharedBytes {
    let length = bytes.len();
    let owner: std::sync::Arc<dyn AsRef<[u8]> + Send + Sync> = std::sync::Arc::new(bytes);
    SharedBytes::new(owner, 0..length).expect("the range of the whole vector")
}

/// Decodes text to a byte for each code point; `None` if one is above 255.
pub(super) fn latin1(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    text.chars().map(|char| u8::try_from(u32::from(char)).ok()).collect()
}

/// Negates all elements as `torch.neg` does: integers wrap, and the sign of zeros and NaN changes too.
fn negate(elements: &mut Elements) {
    match elements {
        Elements::F64(values) => values.iter_mut().for_each(|value| *value = -*value),
        Elements::F32(values) => values.iter_mut().for_each(|value| *value = -*value),
        Elements::F16(values) => values.iter_mut().for_each(|value| *value = -*value),
        Elements::BF16(values) => values.iter_mut().for_each(|value| *value = -*value),
        Elements::I64(values) => values.iter_mut().for_each(|value| *value = value.wrapping_neg()),
        Elements::I32(values) => values.iter_mut().for_each(|value| *value = value.wrapping_neg()),
        Elements::I16(values) => values.iter_mut().for_each(|value| *value = value.wrapping_neg()),
        Elements::I8(values) => values.iter_mut().for_each(|value| *value = value.wrapping_neg()),
        Elements::U64(values) => values.iter_mut().for_each(|value| *value = value.wrapping_neg()),
        Elements::U32(values) => values.iter_mut().for_each(|value| *value = value.wrapping_neg()),
        Elements::U16(values) => values.iter_mut().for_each(|value| *value = value.wrapping_neg()),
        Elements::U8(values) => values.iter_mut().for_each(|value| *value = value.wrapping_neg()),
        // The reader of the metadata refuses these.
        Elements::Bool(_) => {}
    }
}

/// Copies the elements of a view in row-major order; `None` if they are out of bounds.
fn gather(bytes: &[u8], layout: &Layout) -> Option<Vec<u8>> {
    let (size, offset) = (layout.element.bytes as usize, usize::try_from(layout.offset).ok()?);
    let count = usize::try_from(layout.num_bytes()).ok()?;
    if count == 0 {
        return Some(Vec::new());
    }
    if layout.is_contiguous() {
        return bytes.get(offset..offset.checked_add(count)?).map(<[u8]>::to_vec);
    }
    let shape = &layout.shape;
    let mut strides = Vec::with_capacity(shape.rank());
    for (&length, &stride) in shape.iter().zip(&layout.strides) {
        // The stride of an axis of one element is not used and may be anything.
        let stride = if length == 1 { 0 } else { usize::try_from(stride).ok()?.checked_mul(size)? };
        strides.push(stride);
    }
    // A view that is not contiguous has an axis.
    let (last, outer) = (shape.rank() - 1, &shape[..shape.rank() - 1]);
    let mut position = vec![0; outer.len()];
    let mut elements = Vec::with_capacity(count);
    for _ in 0..outer.iter().product() {
        let mut at =
            position.iter().zip(&strides).map(|(index, stride)| index * stride).sum::<usize>() + offset;
        for _ in 0..shape[last] {
            elements.extend_from_slice(bytes.get(at..at + size)?);
            at += strides[last];
        }
        for axis in (0..outer.len()).rev() {
            position[axis] += 1;
            if position[axis] < outer[axis] {
                break;
            }
            position[axis] = 0;
        }
    }
    Some(elements)
}
