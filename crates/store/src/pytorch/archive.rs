//! Zip archives: of `torch.save` since PyTorch 1.6, and TorchScript archives.
//!
//! The entries are in one folder: `data.pkl`, which refers to the storages `data/0`, `data/1` and so on, `byteorder` and
//! `version`. TorchScript archives also have `constants.pkl`, the tensors `constants/0`, and `code/`. Source:
//! <https://github.com/pytorch/pytorch/blob/v2.6.0/caffe2/serialize/inline_container.h>.

use std::io::Cursor;

use kiln_tensor::SharedBytes;

use super::pickle::{self, Origin, Pickle};
use super::storage::{Checksum, Storage, Storages, check, inflate, owned};
use super::{Contents, PyTorchOptions, Root};
use crate::bytes::FileBytes;
use crate::error::{Result, StoreError};
use crate::source::WeightFormat;
use crate::zip::{Directory, Entry};

/// The values of the file.
const DATA: &str = "data.pkl";
/// The constants of a TorchScript archive.
const CONSTANTS: &str = "constants.pkl";

/// Limit on the length of a pickle that is compressed, in bytes.
const MAX_INFLATED: u64 = 64 << 20;

/// The folders of storages.
const STORAGES: [&str; 2] = ["data/", "constants/"];

/// Returns whether an archive is a file of PyTorch.
pub(super) fn is_archive(bytes: &[u8]) -> bool {
    let directory = Directory::read("".as_ref(), &mut Cursor::new(bytes), bytes.len() as u64);
    directory.is_ok_and(|directory| folder(&directory, DATA).is_some())
}

/// Reads an archive.
pub(super) fn read(file: FileBytes, options: &PyTorchOptions) -> Result<Contents> {
    let path = file.path();
    let directory = Directory::read(path, &mut Cursor::new(file.all()), file.all().len() as u64)?;
    let Some(folder) = folder(&directory, DATA) else { return Err(no_data(&file, &directory)) };
    let archive = Archive { file: &file, directory: &directory, folder: &folder };
    let big_endian = archive.is_big_endian()?;
    let storages = archive.storages(big_endian)?;
    let is_script = archive.entry(CONSTANTS).is_some();
    let mut roots = vec![Root { pickle: archive.pickle(DATA, options)?, folder: STORAGES[0] }];
    if is_script {
        roots.push(Root { pickle: archive.pickle(CONSTANTS, options)?, folder: STORAGES[1] });
    }
    let format = if is_script { WeightFormat::TorchScript } else { WeightFormat::PyTorch };
    Ok(Contents { format, roots, storages, verifies: options.verifies, file })
}

/// Returns the outermost folder that contains an entry, with a slash; empty if there is no folder.
fn folder(directory: &Directory, name: &str) -> Option<String> {
    let folders = directory.entries.iter().filter_map(|entry| entry.name.strip_suffix(name));
    let folders = folders.filter(|folder| folder.is_empty() || folder.ends_with('/'));
    folders.min_by_key(|folder| folder.matches('/').count()).map(str::to_owned)
}

fn no_data(file: &FileBytes, directory: &Directory) -> StoreError {
    let problem = if folder(directory, "model.json").is_some() {
        "is a TorchScript archive of PyTorch before 1.4, which is not supported\n  hint: load and save it with a newer \
         PyTorch"
    } else {
        "the zip archive has no entry `data.pkl`, as `torch.save` writes it"
    };
    StoreError::malformed(file.path(), 0, problem)
}

struct Archive<'a> {
    file: &'a FileBytes,
    directory: &'a Directory,
    folder: &'a str,
}

/// The bytes of an entry in the file.
#[derive(Clone, Copy)]
struct Held<'a> {
    entry: &'a Entry,
    /// File offset of the bytes.
    start: u64,
}

impl Archive<'_> {
    fn entry(&self, name: &str) -> Option<&Entry> {
        let mut entries = self.directory.entries.iter();
        entries.find(|entry| entry.name.strip_prefix(self.folder) == Some(name))
    }

    fn held<'a>(&self, entry: &'a Entry) -> Result<Held<'a>> {
        let start = self.directory.data_start(self.file.path(), &mut Cursor::new(self.file.all()), entry)?;
        Ok(Held { entry, start })
    }

    /// Returns the bytes of an entry, decompressed, and verifies their checksum.
    fn bytes(&self, held: &Held<'_>) -> Result<SharedBytes> {
        let (path, Held { entry, start }) = (self.file.path(), *held);
        let range = start..start.saturating_add(entry.compressed);
        let what = format!("entry `{}`", entry.name.escape_debug());
        let bytes = if entry.deflated {
            if entry.size > MAX_INFLATED {
                let problem =
                    format!("{what}: declares {} bytes, more than the {MAX_INFLATED} allowed", entry.size);
                return Err(StoreError::malformed(path, start, problem));
            }
            owned(inflate(path, start, self.file.slice(range, &what)?, entry.size, &what)?)
        } else {
            self.file.shared(range, &what)?
        };
        // `torch.serialization.set_crc32_options(False)` writes 0.
        if entry.crc != 0 {
            check(path, start, bytes.as_slice(), entry.crc, &what)?;
        }
        Ok(bytes)
    }

    fn pickle(&self, name: &str, options: &PyTorchOptions) -> Result<Pickle> {
        let Some(entry) = self.entry(name) else {
            let problem = format!("the archive has no entry `{name}`");
            return Err(StoreError::malformed(self.file.path(), 0, problem));
        };
        let held = self.held(entry)?;
        let origin = Origin::entry(self.file.path(), held.start, &entry.name, entry.deflated);
        pickle::read(self.bytes(&held)?, origin, &options.allowed)
    }

    /// Returns the byte order of the storages: little-endian unless the entry `byteorder` says otherwise.
    fn is_big_endian(&self) -> Result<bool> {
        let Some(entry) = self.entry("byteorder") else { return Ok(false) };
        let held = self.held(entry)?;
        match self.bytes(&held)?.as_slice() {
            b"little" => Ok(false),
            b"big" => Ok(true),
            _ => {
                let problem = "entry `byteorder` is neither `little` nor `big`";
                Err(StoreError::malformed(self.file.path(), held.start, problem))
            }
        }
    }

    /// Lists the entries that are storages.
    fn storages(&self, big_endian: bool) -> Result<Storages> {
        let mut storages = Storages::default();
        for entry in &self.directory.entries {
            let Some(key) = entry.name.strip_prefix(self.folder) else { continue };
            if !STORAGES.iter().any(|folder| key.starts_with(folder)) {
                continue;
            }
            let Held { entry, start } = self.held(entry)?;
            let storage = Storage {
                key: key.to_owned(),
                element: None,
                start,
                bytes: entry.size,
                big_endian,
                compressed: entry.deflated.then_some(entry.compressed),
                checksum: (entry.crc != 0).then(|| Checksum::new(entry.crc)),
            };
            if storages.add(storage).is_none() {
                return Err(StoreError::Duplicate {
                    file: self.file.path().to_owned(),
                    name: entry.name.clone(),
                });
            }
        }
        Ok(storages)
    }
}
