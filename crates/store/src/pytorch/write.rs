//! Writing zip archives that `torch.load` reads.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use flate2::CrcWriter;
use kiln_tensor::{TensorData, TensorType};

use super::element::Element;
use crate::atomic::write_file;
use crate::bytes::FileBytes;
use crate::error::{Result, StoreError};
use crate::file::{NamedSources, Source, check_names, write_elements};
use crate::zip::{Entry, write_directory, write_local};

/// The folder of the entries.
const FOLDER: &str = "archive";

/// Alignment of the storages in bytes, as PyTorch has it.
const ALIGNMENT: u64 = 64;

/// Version of the layout, for PyTorch.
const VERSION: &[u8] = b"3\n";

/// Writes tensors to a zip archive that `torch.load(path, weights_only=True)` reads as an `OrderedDict` of the names. On
/// an error the file does not change.
///
/// Elements start at multiples of 64 bytes. Equal tensors produce equal bytes. Files and tensors may be larger than
/// 4 GiB.
///
/// # Errors
/// When two tensors have the same name, or the file cannot be written.
pub fn save(path: impl AsRef<Path>, tensors: impl IntoIterator<Item = (String, TensorData)>) -> Result<()> {
    write(path.as_ref(), &host(tensors), &BTreeMap::new())
}

/// Returns the bytes of a file with these tensors, like [`save`].
///
/// # Errors
/// When two tensors have the same name.
pub fn to_bytes(tensors: impl IntoIterator<Item = (String, TensorData)>) -> Result<Vec<u8>> {
    let file = FileBytes::from_vec(Vec::new());
    let mut bytes = Vec::new();
    write_archive(file.path(), &mut bytes, &host(tensors), &BTreeMap::new())?;
    Ok(bytes)
}

/// Writes tensors, of which those on devices are read one at a time. `tied` has further names of some, by the name.
pub(crate) fn write(path: &Path, tensors: &NamedSources, tied: &BTreeMap<String, String>) -> Result<()> {
    check_names(path, tensors)?;
    write_file(path, |writer| write_archive(path, writer, tensors, tied))
}

fn host(tensors: impl IntoIterator<Item = (String, TensorData)>) -> NamedSources {
    tensors.into_iter().map(|(name, data)| (name, Source::Host(data))).collect()
}

fn write_archive(
    path: &Path,
    writer: &mut dyn Write,
    tensors: &NamedSources,
    tied: &BTreeMap<String, String>,
) -> Result<()> {
    check_names(path, tensors)?;
    let failed = |source| StoreError::io(path, "write", source);
    let mut archive = ArchiveWriter { writer, entries: Vec::new(), offset: 0 };
    let types = tensors.iter().enumerate();
    let types = types.map(|(index, (name, source))| (name.as_str(), index, source.ty()));
    // PyTorch gives all names of one storage one tensor.
    let tied = tied.iter().filter_map(|(other, name)| {
        let index = tensors.iter().position(|(own, _)| own == name)?;
        Some((other.as_str(), index, tensors[index].1.ty()))
    });
    let types = types.chain(tied);
    archive.entry("data.pkl", &state_dict(types)).map_err(failed)?;
    archive.entry("byteorder", b"little").map_err(failed)?;
    for (index, (name, source)) in tensors.iter().enumerate() {
        let failed_read = |source| StoreError::Tensor { file: path.to_owned(), name: name.clone(), source };
        let data = source.data().map_err(failed_read)?;
        archive.storage(index, &data).map_err(failed)?;
    }
    archive.entry("version", VERSION).map_err(failed)?;
    archive.finish().map_err(failed)
}

struct ArchiveWriter<'a> {
    writer: &'a mut dyn Write,
    entries: Vec<Entry>,
    offset: u64,
}

impl ArchiveWriter<'_> {
    fn entry(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.header(name, bytes.len() as u64, crc32fast::hash(bytes))?;
        self.writer.write_all(bytes)
    }

    fn storage(&mut self, index: usize, data: &TensorData) -> io::Result<()> {
        // The header precedes the elements and contains their checksum.
        let mut sum = CrcWriter::new(io::sink());
        write_elements(&mut sum, data)?;
        self.header(&format!("data/{index}"), data.bytes().len() as u64, sum.crc().sum())?;
        write_elements(self.writer, data)
    }

    fn header(&mut self, name: &str, size: u64, crc: u32) -> io::Result<()> {
        let name = format!("{FOLDER}/{name}");
        let entry = Entry { name, deflated: false, crc, compressed: size, size, offset: self.offset };
        self.offset += write_local(self.writer, &entry, ALIGNMENT)? + size;
        self.entries.push(entry);
        Ok(())
    }

    fn finish(self) -> io::Result<()> {
        write_directory(self.writer, &self.entries, self.offset)
    }
}

/// Returns the pickle of an `OrderedDict` of tensors, each with the index of its storage. Protocol 2, as PyTorch writes
/// it.
fn state_dict<'a>(tensors: impl Iterator<Item = (&'a str, usize, TensorType)>) -> Vec<u8> {
    let mut pickle = PickleWriter { bytes: vec![0x80, 2] };
    pickle.empty_ordered_dict();
    pickle.bytes.push(b'(');
    for (name, index, ty) in tensors {
        pickle.text(name);
        pickle.tensor(index, &ty);
    }
    // SETITEMS and STOP.
    pickle.bytes.extend(b"u.");
    pickle.bytes
}

struct PickleWriter {
    bytes: Vec<u8>,
}

impl PickleWriter {
    /// The call of `_rebuild_tensor_v2`, or of `_rebuild_tensor_v3` for a dtype that has no class of storages.
    fn tensor(&mut self, index: usize, ty: &TensorType) {
        let element = Element::of(ty.dtype);
        let count = ty.num_elements() as u64;
        let function = if element.storage.is_some() { "_rebuild_tensor_v2" } else { "_rebuild_tensor_v3" };
        self.global("torch._utils", function);
        // The arguments, and in them the storage.
        self.bytes.extend(b"((");
        self.text("storage");
        let count = match element.storage {
            Some(storage) => {
                self.global("torch", &format!("{storage}Storage"));
                count
            }
            None => {
                self.global("torch.storage", "UntypedStorage");
                count * element.bytes
            }
        };
        self.text(&index.to_string());
        self.text("cpu");
        self.int(count);
        // The end of the tuple, BINPERSID, the offset.
        self.bytes.extend(b"tQ");
        self.int(0);
        self.ints(ty.shape.iter().map(|&length| length as u64));
        self.ints(ty.shape.row_major_strides()[..ty.rank()].iter().map(|&stride| stride as u64));
        // `requires_grad` is false, and there are no hooks.
        self.bytes.push(0x89);
        self.empty_ordered_dict();
        if element.storage.is_none() {
            self.global("torch", element.torch);
        }
        self.bytes.extend(b"tR");
    }

    fn empty_ordered_dict(&mut self) {
        self.global("collections", "OrderedDict");
        self.bytes.extend(b")R");
    }

    fn global(&mut self, module: &str, name: &str) {
        self.bytes.extend(format!("c{module}\n{name}\n").bytes());
    }

    /// Names are shorter than 4 GiB.
    fn text(&mut self, text: &str) {
        self.bytes.push(b'X');
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.bytes());
    }

    fn ints(&mut self, numbers: impl Iterator<Item = u64>) {
        self.bytes.push(b'(');
        numbers.for_each(|number| self.int(number));
        self.bytes.push(b't');
    }

    fn int(&mut self, number: u64) {
        match (u8::try_from(number), i32::try_from(number)) {
            (Ok(small), _) => self.bytes.extend([b'K', small]),
            (Err(_), Ok(number)) => {
                self.bytes.push(b'J');
                self.bytes.extend(number.to_le_bytes());
            }
            (Err(_), Err(_)) => {
                // LONG1 of 8 bytes; lengths are below 2^63.
                self.bytes.extend([0x8a, 8]);
                self.bytes.extend(number.to_le_bytes());
            }
        }
    }
}
