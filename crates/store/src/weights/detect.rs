//! The formats that [`Weights`](super::Weights) opens: one line each in [`FORMATS`].

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::burn::{BURNPACK_MAGIC, BurnRecordFile, BurnpackFile, GZIP_MAGIC, is_record};
use crate::bytes::{FileBytes, MEMORY};
use crate::error::{Result, StoreError};
use crate::file::TensorFile;
use crate::flax::FlaxFile;
use crate::gguf::GgufFile;
use crate::header::MAX_HEADER_BYTES;
use crate::numpy::Archive;
use crate::pytorch::PyTorchFile;
use crate::sharded::ShardedFile;
use crate::source::{TensorSource, WeightFormat};
use crate::stand_in;

/// The number of bytes at the start of a file that decide its format. The header of a tar archive is the longest.
const START: usize = 512;

/// The formats in the order of detection.
const FORMATS: &[Format] = &[
    Format { name: "safetensors", extensions: &["safetensors"], detect: is_safetensors, open: safetensors },
    Format { name: "sharded safetensors or PyTorch", extensions: &["json"], detect: is_json, open: sharded },
    Format { name: "GGUF", extensions: &["gguf"], detect: is_gguf, open: gguf },
    Format { name: "NumPy archive", extensions: &["npz"], detect: is_npz, open: npz },
    Format { name: "PyTorch", extensions: PYTORCH_EXTENSIONS, detect: is_pytorch, open: pytorch },
    Format { name: "Burnpack", extensions: &["bpk"], detect: is_burnpack, open: burnpack },
    Format { name: "Burn record", extensions: &["mpk", "gz"], detect: is_burn_record, open: burn_record },
    Format { name: "Flax", extensions: &["msgpack"], detect: is_map, open: flax },
];

/// The extensions of PyTorch files.
const PYTORCH_EXTENSIONS: &[&str] = &["pt", "pth", "bin", "ckpt"];

/// The files that open a folder, by preference.
const MODEL_FILES: &[&str] = &[
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "flax_model.msgpack",
    "model.bpk",
];

/// The extensions of files that open a folder if there is only one.
const SINGLE_EXTENSIONS: &[&str] = &["safetensors", "gguf"];

/// A format.
struct Format {
    name: &'static str,
    /// The extensions of file names, which decide if the contents do not: of damaged files.
    extensions: &'static [&'static str],
    /// Whether a file may be of this format, by its first bytes.
    detect: fn(&[u8]) -> bool,
    open: fn(Input<'_>) -> Result<Arc<dyn TensorSource>>,
}

/// A file on disk or in memory.
pub(super) enum Input<'a> {
    File(&'a Path, Access),
    Bytes(Vec<u8>),
}

/// Whether large files are memory-mapped, or the caller copies all tensors.
#[derive(Clone, Copy)]
pub(super) enum Access {
    Mapped,
    Copied,
}

/// Opens a file or a folder.
pub(super) fn open(path: &Path, access: Access) -> Result<Arc<dyn TensorSource>> {
    match path.is_dir() {
        true => parse(Input::File(&model_file(path)?, access)),
        false => parse(Input::File(path, access)),
    }
}

/// Opens a file by its contents.
pub(super) fn parse(input: Input<'_>) -> Result<Arc<dyn TensorSource>> {
    let (path, start) = match &input {
        Input::File(path, _) => (*path, start_of(path)?),
        Input::Bytes(bytes) => (Path::new(MEMORY), bytes[..bytes.len().min(START)].to_vec()),
    };
    stand_in::refuse(path, &start)?;
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    let by_contents = FORMATS.iter().find(|format| (format.detect)(&start));
    let by_name = || FORMATS.iter().find(|format| format.extensions.contains(&extension.as_str()));
    match by_contents.or_else(by_name) {
        Some(format) => (format.open)(input),
        None => {
            let known: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
            let problem = format!("the format is not known; supported: {}", known.join(", "));
            Err(StoreError::malformed(path, 0, problem))
        }
    }
}

fn start_of(path: &Path) -> Result<Vec<u8>> {
    let failed = |source| StoreError::io(path, "read", source);
    let mut start = Vec::new();
    File::open(path).map_err(failed)?.take(START as u64).read_to_end(&mut start).map_err(failed)?;
    Ok(start)
}

/// The file by which a folder is opened.
fn model_file(folder: &Path) -> Result<PathBuf> {
    if let Some(file) = MODEL_FILES.iter().map(|name| folder.join(name)).find(|file| file.is_file()) {
        return Ok(file);
    }
    let failed = |source| StoreError::io(folder, "read", source);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        files.push(entry.map_err(failed)?.path());
    }
    files.sort();
    for extension in SINGLE_EXTENSIONS {
        let is_model = |file: &&PathBuf| file.extension().is_some_and(|found| found == *extension);
        match files.iter().filter(is_model).collect::<Vec<_>>().as_slice() {
            [] => {}
            [file] => return Ok((*file).clone()),
            several => {
                let names =
                    several.iter().filter_map(|file| file.file_name()).map(|name| name.to_string_lossy());
                let names = names.collect::<Vec<_>>().join(", ");
                let problem =
                    format!("the folder has several models: {names}\n  hint: name one of the files");
                return Err(StoreError::InvalidArgument { argument: folder.display().to_string(), problem });
            }
        }
    }
    let problem = format!(
        "the folder has none of the files {}, and no single .safetensors or .gguf file",
        MODEL_FILES.join(", ")
    );
    Err(StoreError::InvalidArgument { argument: folder.display().to_string(), problem })
}

impl Input<'_> {
    /// The whole file.
    fn bytes(self) -> Result<FileBytes> {
        match self {
            Input::File(path, Access::Mapped) => FileBytes::open(path),
            Input::File(path, Access::Copied) => FileBytes::read(path),
            Input::Bytes(bytes) => Ok(FileBytes::from_vec(bytes)),
        }
    }
}

/// A length of the header, and the start of its JSON.
fn is_safetensors(start: &[u8]) -> bool {
    let length = start.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    length.is_some_and(|length| length <= MAX_HEADER_BYTES) && start.get(8) == Some(&b'{')
}

fn safetensors(input: Input<'_>) -> Result<Arc<dyn TensorSource>> {
    let file = match input {
        Input::File(path, Access::Mapped) => TensorFile::open(path),
        Input::File(path, Access::Copied) => TensorFile::open_unmapped(path),
        Input::Bytes(bytes) => TensorFile::from_bytes(bytes),
    };
    Ok(Arc::new(file?))
}

fn is_json(start: &[u8]) -> bool {
    start.trim_ascii_start().starts_with(b"{")
}

/// The index of several files.
fn sharded(input: Input<'_>) -> Result<Arc<dyn TensorSource>> {
    match input {
        Input::File(path, _) if is_pytorch_index(path) => {
            let open = |shard: &Path| Ok(Box::new(PyTorchFile::open(shard)?) as Box<dyn TensorSource>);
            Ok(Arc::new(ShardedFile::open_with(path, WeightFormat::ShardedPyTorch, open)?))
        }
        Input::File(path, _) => Ok(Arc::new(ShardedFile::open(path)?)),
        Input::Bytes(_) => {
            let problem =
                "an index of several files cannot be opened from memory\n  hint: open it by its path";
            Err(StoreError::malformed(Path::new(MEMORY), 0, problem))
        }
    }
}

/// Whether an index lists PyTorch files, by its name: `pytorch_model.bin.index.json`.
fn is_pytorch_index(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    PYTORCH_EXTENSIONS.iter().any(|extension| name.ends_with(&format!(".{extension}.index.json")))
}

/// A zip or tar archive, or the pickle of the magic number of legacy files.
fn is_pytorch(start: &[u8]) -> bool {
    const MAGIC: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    let is_tar = start.get(257..262) == Some(b"ustar".as_slice());
    let is_legacy = start.first() == Some(&0x80) && start.get(2..14) == Some(MAGIC);
    start.starts_with(b"PK\x03\x04") || is_tar || is_legacy
}

/// Opens the weights of a checkpoint, or the whole file if it is not clear which these are.
fn pytorch(input: Input<'_>) -> Result<Arc<dyn TensorSource>> {
    let file = match input {
        Input::File(path, _) => PyTorchFile::open(path)?,
        Input::Bytes(bytes) => PyTorchFile::from_bytes(bytes)?,
    };
    Ok(Arc::new(file.state_dict().unwrap_or(file)))
}

fn is_gguf(start: &[u8]) -> bool {
    start.starts_with(b"GGUF")
}

fn gguf(input: Input<'_>) -> Result<Arc<dyn TensorSource>> {
    Ok(Arc::new(match input {
        Input::File(path, _) => GgufFile::open(path)?,
        Input::Bytes(bytes) => GgufFile::from_bytes(bytes)?,
    }))
}

/// A zip archive whose first file is an array. The name of the file follows the local header of 30 bytes.
fn is_npz(start: &[u8]) -> bool {
    let name = || {
        let length = u16::from_le_bytes([*start.get(26)?, *start.get(27)?]);
        start.get(30..30 + usize::from(length))
    };
    start.starts_with(b"PK\x03\x04") && name().is_some_and(|name| name.ends_with(b".npy"))
}

fn npz(input: Input<'_>) -> Result<Arc<dyn TensorSource>> {
    Ok(Arc::new(match input {
        Input::File(path, _) => Archive::open(path)?,
        Input::Bytes(bytes) => Archive::from_bytes(bytes)?,
    }))
}

fn is_burnpack(start: &[u8]) -> bool {
    start.starts_with(BURNPACK_MAGIC)
}

fn burnpack(input: Input<'_>) -> Result<Arc<dyn TensorSource>> {
    Ok(Arc::new(BurnpackFile::parse(input.bytes()?)?))
}

fn is_burn_record(start: &[u8]) -> bool {
    start.starts_with(GZIP_MAGIC) || is_record(start)
}

fn burn_record(input: Input<'_>) -> Result<Arc<dyn TensorSource>> {
    Ok(Arc::new(BurnRecordFile::parse(input.bytes()?)?))
}

/// A map of MessagePack whose first key is a text.
fn is_map(start: &[u8]) -> bool {
    let key = match start.first() {
        Some(0x80..=0x8f) => start.get(1),
        Some(0xde) => start.get(3),
        Some(0xdf) => start.get(5),
        Some(_) | None => None,
    };
    matches!(key, Some(0xa0..=0xbf | 0xd9..=0xdb))
}

fn flax(input: Input<'_>) -> Result<Arc<dyn TensorSource>> {
    Ok(Arc::new(FlaxFile::parse(input.bytes()?)?))
}
