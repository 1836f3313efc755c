//! The readers, and how each reads everything in a file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kiln_store::burn::{BurnRecordFile, BurnpackFile};
use kiln_store::flax::FlaxFile;
use kiln_store::gguf::GgufFile;
use kiln_store::numpy::{self, Archive};
use kiln_store::pytorch::{self, PyTorchFile};
use kiln_store::{TensorFile, TensorSource, Weights, save_tensors};
use kiln_tensor::TensorData;

use crate::harness::Target;

/// The readers under test. A new reader of files adds a row.
pub(crate) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "pytorch",
            folder: "fixtures/pytorch",
            ends: &[".pt"],
            prepare: without_checksums,
            read: pytorch,
        },
        Target {
            name: "pickle",
            folder: "fixtures/pytorch",
            ends: &[".pt"],
            prepare: stored_pickle,
            read: pytorch,
        },
        Target { name: "gguf", folder: "fixtures/gguf", ends: &[".gguf"], prepare: unchanged, read: gguf },
        Target {
            name: "safetensors",
            folder: "fixtures",
            ends: &[".safetensors"],
            prepare: unchanged,
            read: safetensors,
        },
        Target { name: "npz", folder: "numpy", ends: &[".npz"], prepare: unchanged, read: npz },
        Target { name: "flax", folder: "fixtures/flax", ends: &[".msgpack"], prepare: unchanged, read: flax },
        Target {
            name: "burnpack",
            folder: "fixtures/burn",
            ends: &[".bpk"],
            prepare: unchanged,
            read: burnpack,
        },
        Target {
            name: "burn record",
            folder: "fixtures/burn",
            ends: &[".mpk"],
            prepare: unchanged,
            read: record,
        },
        Target {
            name: "index",
            folder: "fixtures/index",
            ends: &[".index.json"],
            prepare: unchanged,
            read: index,
        },
        Target { name: "npy", folder: "numpy", ends: &["plain.npz"], prepare: first_array, read: npy },
    ]
}

fn pytorch(bytes: &[u8]) {
    let Ok(file) = PyTorchFile::from_bytes(bytes.to_vec()) else { return };
    for name in file.names() {
        if let (Some(info), Ok(data)) = (file.info(name), file.read(name)) {
            assert_eq!((info.dtype, info.shape), (Some(data.dtype()), *data.shape()), "{name}");
        }
    }
    for key in file.keys().unwrap_or_default() {
        let _ = file.value(&key);
        let _ = file.under(&key);
    }
    let _ = file.state_dict();
    if let Ok(Some(constants)) = file.constants() {
        constants.names().for_each(|name| drop(constants.read(name)));
    }
    let _ = file.verify();
}

fn gguf(bytes: &[u8]) {
    if let Ok(file) = GgufFile::from_bytes(bytes.to_vec()) {
        read_all(&file);
    }
}

fn safetensors(bytes: &[u8]) {
    if let Ok(file) = TensorFile::from_bytes(bytes.to_vec()) {
        read_all(&file);
    }
}

fn npz(bytes: &[u8]) {
    let Ok(archive) = Archive::from_bytes(bytes.to_vec()) else { return };
    for name in archive.names() {
        let _ = archive.ty(name);
        let _ = archive.read(name);
        let _ = archive.read_complex(name);
    }
}

fn flax(bytes: &[u8]) {
    if let Ok(file) = FlaxFile::from_bytes(bytes.to_vec()) {
        read_all(&file);
    }
}

fn burnpack(bytes: &[u8]) {
    if let Ok(file) = BurnpackFile::from_bytes(bytes.to_vec()) {
        read_all(&file);
    }
}

fn record(bytes: &[u8]) {
    if let Ok(file) = BurnRecordFile::from_bytes(bytes.to_vec()) {
        read_all(&file);
    }
}

/// The tensor in the files beside the folder of shards.
const OUTSIDE: &str = "outside";

/// Opens the bytes as an index of safetensors files and as one of PyTorch files, in a folder with shards of both. No file
/// outside of the folder may be opened.
fn index(bytes: &[u8]) {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(shards);
    for name in ["model.safetensors.index.json", "pytorch_model.bin.index.json"] {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        let Ok(weights) = Weights::open(&path) else { continue };
        assert!(weights.info(OUTSIDE).is_none(), "a file outside of the folder was opened");
        read_all(weights.source());
    }
}

/// Makes a folder with shards of both formats, and beside it files that no index may reach.
fn shards() -> PathBuf {
    let around =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kiln-fuzz-index-{}", std::process::id()));
    let folder = around.join("model");
    fs::create_dir_all(&folder).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let copies = [1, 2, 3].map(|part| {
        let name = format!("model-{part:05}-of-00003.safetensors");
        (format!("sharded/{name}"), name)
    });
    let archives = [("module", 1), ("parameters", 2)];
    let archives = archives
        .map(|(name, part)| (format!("pytorch/{name}.pt"), format!("pytorch_model-{part:05}-of-00002.bin")));
    for (from, to) in copies.into_iter().chain(archives) {
        fs::copy(fixtures.join(from), folder.join(to)).unwrap();
    }
    let outside = || [(OUTSIDE.to_owned(), TensorData::from([1.0f32]))];
    save_tensors(around.join("outside.safetensors"), outside(), &Default::default()).unwrap();
    pytorch::save(around.join("outside.bin"), outside()).unwrap();
    folder
}

fn read_all(file: &dyn TensorSource) {
    for name in file.names() {
        if let (Some(info), Ok(contents)) = (file.info(name), file.contents(name)) {
            let ty = contents.ty();
            // The contents of blocks are bytes.
            if info.blocks.is_none() {
                assert_eq!((info.dtype, info.shape), (Some(ty.dtype), ty.shape), "{name}");
            }
            let _ = contents.into_data();
        }
    }
}

fn npy(bytes: &[u8]) {
    let _ = numpy::from_bytes(bytes);
    let _ = numpy::complex_from_bytes(bytes);
}

fn unchanged(bytes: Vec<u8>) -> Vec<u8> {
    bytes
}

/// Sets the checksums in the central directory of a zip archive to 0, as PyTorch writes it without checksums.
fn without_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    for at in 0..bytes.len().saturating_sub(20) {
        if bytes[at..].starts_with(b"PK\x01\x02") {
            bytes[at + 16..at + 20].fill(0);
        }
    }
    bytes
}

/// The pickle in a zip archive, as a file of its own; other files stay as they are.
fn stored_pickle(bytes: Vec<u8>) -> Vec<u8> {
    let is_start = |&at: &usize| bytes.starts_with(b"PK") && bytes[at..].starts_with(b"\x80\x02");
    let Some(start) = (0..bytes.len()).find(is_start) else { return bytes };
    let header = bytes[start..].windows(4).position(|four| four == b"PK\x03\x04" || four == b"PK\x07\x08");
    bytes[start..header.map_or(bytes.len(), |length| start + length)].to_vec()
}

/// The first array of an archive without compression.
fn first_array(bytes: Vec<u8>) -> Vec<u8> {
    let mut starts = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(b"\x93NUMPY"));
    let Some(start) = starts.next() else { return bytes };
    let end = bytes[start..].windows(4).position(|four| four == b"PK\x03\x04" || four == b"PK\x01\x02");
    bytes[start..end.map_or(bytes.len(), |length| start + length)].to_vec()
}
