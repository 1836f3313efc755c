//! Opening files and folders of any format.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kiln_backends::Device;
use kiln_store::burn::BurnpackFile;
use kiln_store::flax::FlaxFile;
use kiln_store::gguf::{self, GgufFile, GgufTensor, Metadata};
use kiln_store::numpy::{Archive, Compression, archive_to_bytes};
use kiln_store::pytorch::PyTorchFile;
use kiln_store::{
    SaveOptions, ShardedFile, StoreError, TensorFile, WeightFormat, Weights, save_sharded, save_tensors,
};
use kiln_tensor::{BlockFormat, DType, TensorData};

use crate::weights::{fixture, ramp, weights};

#[test]
fn the_format_is_detected_by_content() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        (fs::read(fixture("module-v0.safetensors")).unwrap(), WeightFormat::Safetensors),
        (fs::read(fixture("flax/net.msgpack")).unwrap(), WeightFormat::Flax),
        (fs::read(fixture("burn/linear.bpk")).unwrap(), WeightFormat::Burnpack),
        (fs::read(fixture("burn/record-15.mpk")).unwrap(), WeightFormat::BurnRecord),
        (fs::read(fixture("burn/record-15-f16.mpk.gz")).unwrap(), WeightFormat::BurnRecord),
        (
            gguf::to_bytes(&Metadata::new(), [("x".to_owned(), ramp(0.0, &[2]).into())]).unwrap(),
            WeightFormat::Gguf,
        ),
        (
            archive_to_bytes([("x".to_owned(), ramp(0.0, &[2]))], Compression::Stored).unwrap(),
            WeightFormat::Npz,
        ),
    ];
    for (bytes, format) in files {
        let path = folder.path().join("model.weights");
        fs::write(&path, &bytes).unwrap();
        for weights in [
            Weights::open(&path).unwrap(),
            Weights::from_bytes(bytes.clone()).unwrap(),
            Weights::from_reader(bytes.as_slice()).unwrap(),
        ] {
            assert_eq!(weights.format(), format);
            assert!(!weights.is_empty() && weights.len() == weights.names().len());
        }
    }
}

/// Files in place of weights, with their bytes, what the message calls them, and its advice.
fn stand_ins() -> [(&'static [u8], &'static str, &'static str); 7] {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
    let lfs = "is a pointer of Git LFS, not the file of 12345 bytes itself";
    [
        (pointer, lfs, "git lfs pull"),
        (
            b"version https://hawser.github.com/spec/v1\nsize x\n",
            "is a pointer of Git LFS, not the file itself",
            "git lfs pull",
        ),
        (b"", "is empty", "get the file again"),
        (b"<!DOCTYPE html>\n<html>", "is an HTML page", "the server answered with a page"),
        (b"\xEF\xBB\xBF \n<HTML lang=\"en\">", "is an HTML page", "the server answered with a page"),
        (b"<html>", "is an HTML page", "the server answered with a page"),
        (
            b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>",
            "is an XML page",
            "the server answered",
        ),
    ]
}

#[test]
fn files_in_place_of_weights_are_named() {
    type Open = fn(&Path) -> Result<(), StoreError>;
    let readers: [Open; 9] = [
        |path| Weights::open(path).map(drop),
        |path| TensorFile::open(path).map(drop),
        |path| PyTorchFile::open(path).map(drop),
        |path| GgufFile::open(path).map(drop),
        |path| FlaxFile::open(path).map(drop),
        |path| BurnpackFile::open(path).map(drop),
        |path| Archive::open(path).map(drop),
        |path| kiln_store::numpy::read(path).map(drop),
        |path| ShardedFile::open(path).map(drop),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (contents, found, hint) in stand_ins() {
        // The name of an index for the reader of several files.
        let path = folder.path().join("model.safetensors.index.json");
        fs::write(&path, contents).unwrap();
        let check = |error: StoreError| {
            let error = error.to_string();
            assert!(error.contains(found) && error.contains(hint), "{error}");
        };
        for open in readers {
            check(open(&path).unwrap_err());
        }
        for bytes in [
            Weights::from_bytes(contents.to_vec()).map(drop),
            TensorFile::from_bytes(contents.to_vec()).map(drop),
            PyTorchFile::from_bytes(contents.to_vec()).map(drop),
            GgufFile::from_bytes(contents.to_vec()).map(drop),
        ] {
            check(bytes.unwrap_err());
        }
    }
}

#[test]
fn an_unknown_format_lists_the_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    fs::write(&path, "some text that is no model").unwrap();
    let error = Weights::open(&path).unwrap_err().to_string();
    for part in ["notes.txt", "safetensors", "GGUF", "NumPy", "Flax", "Burn"] {
        assert!(error.contains(part), "{error}");
    }
    // A damaged file is named by its extension.
    let path = folder.path().join("model.safetensors");
    fs::write(&path, [1, 2, 3]).unwrap();
    let error = Weights::open(&path).unwrap_err().to_string();
    assert!(error.contains("truncated"), "{error}");
    let error = Weights::open(folder.path().join("missing.gguf")).unwrap_err().to_string();
    let expected =
        "missing.gguf: cannot read: there is no such file or folder\n  hint: expected a file of weights";
    assert!(error.contains(expected) && error.contains("contains `model.safetensors`"), "{error}");
}

#[test]
fn folders_are_opened_by_their_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let error = Weights::open(path).unwrap_err().to_string();
    assert!(error.contains("pytorch_model.bin"), "{error}");
    let save = |name: &str| {
        save_tensors(path.join(name), [("x".to_owned(), ramp(0.0, &[2]))], &BTreeMap::new()).unwrap();
    };
    save("a.safetensors");
    assert_eq!(Weights::open(path).unwrap().names(), ["x"]);
    save("b.safetensors");
    let error = Weights::open(path).unwrap_err().to_string();
    assert!(error.contains("a.safetensors, b.safetensors"), "{error}");
    let tensors = ["p", "q"].map(|name| (name.to_owned(), ramp(0.0, &[100])));
    save_sharded(path, tensors, &SaveOptions::new().max_shard_bytes(400)).unwrap();
    let sharded = Weights::open(path).unwrap();
    assert_eq!((sharded.format(), sharded.names()), (WeightFormat::ShardedSafetensors, vec!["p", "q"]));
}

#[test]
fn blocks_are_read_dequantised_or_as_they_are() {
    let values: Vec<f32> = (0..128).map(|i| (i as f32 * 0.37).sin()).collect();
    let format = BlockFormat::Q8_0;
    let mut blocks = vec![0; format.row_bytes(128).unwrap()];
    format.encode(&values, &mut blocks);
    let mut expected = vec![0.0; 128];
    format.decode(&blocks, &mut expected);
    let tensors = [
        ("w".to_owned(), GgufTensor::blocks(blocks.clone(), format, [2, 64])),
        ("b".to_owned(), ramp(0.0, &[2]).into()),
    ];
    let weights = Weights::from_bytes(gguf::to_bytes(&Metadata::new(), tensors).unwrap()).unwrap();
    assert_eq!(weights.info("w").unwrap().blocks, Some(format));
    assert_eq!(weights.read("w").unwrap(), TensorData::new(expected.clone(), [2, 64]).unwrap());
    let device = Device::cpu();
    assert_eq!(weights.load("w", &device).unwrap().to_data().unwrap().to_vec::<f32>(), expected);
    let (loaded, found) = weights.blocks("w", &device).unwrap().unwrap();
    assert_eq!((found, loaded.dtype(), loaded.shape().to_vec()), (format, DType::U8, vec![2, 68]));
    assert_eq!(loaded.to_data().unwrap().to_vec::<u8>(), blocks);
    assert!(weights.blocks("b", &device).unwrap().is_none());
    let error = weights.read("v").unwrap_err().to_string();
    assert!(error.contains("no tensor `v` (there is"), "{error}");
}

#[test]
fn a_file_in_memory_has_all_dtypes() {
    let weights = weights([
        ("flags", TensorData::from([true, false, true])),
        ("half", ramp(1.0, &[3]).convert(DType::F16)),
        ("long", TensorData::from([1i64, -2])),
    ]);
    assert_eq!(weights.read("flags").unwrap(), TensorData::from([true, false, true]));
    assert_eq!(
        weights.load("half", &Device::cpu()).unwrap().to_data().unwrap(),
        ramp(1.0, &[3]).convert(DType::F16)
    );
    assert_eq!(weights.read("long").unwrap(), TensorData::from([1i64, -2]));
}
