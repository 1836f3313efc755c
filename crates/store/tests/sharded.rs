//! Checkpoints of several files: reading those of Hugging Face, and writing the same.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kiln_backends::Flex;
use kiln_nn::{Linear, LinearConfig};
use kiln_store::numpy::{self, Archive, Compression};
use kiln_store::{
    SaveOptions, ShardedFile, StoreError, TensorFile, TensorSource, WeightFormat, load_module,
    save_module_sharded, save_sharded, save_sharded_with,
};
use kiln_tensor::{DType, TensorData, TensorType};

fn fixture() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/sharded"))
}

/// The tensors of the fixture, in the order in which PyTorch wrote them.
fn tensors() -> Vec<(String, TensorData)> {
    let matrix = |start: f32| TensorData::from([[start, start + 1.0], [start + 2.0, start + 3.0]]);
    let embedding: Vec<f32> = (0..12).map(|i| i as f32).collect();
    [
        ("embedding.weight", TensorData::new(embedding, [3, 4]).unwrap()),
        ("layers.0.weight", matrix(100.0)),
        ("layers.0.bias", TensorData::from([0.5f32, -0.5])),
        ("layers.1.weight", matrix(200.0)),
        ("layers.1.bias", TensorData::from([1.5f32, -1.5])),
        ("counter", TensorData::scalar(7i64)),
    ]
    .map(|(name, data)| (name.to_owned(), data))
    .into()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn check(file: &ShardedFile) {
    let expected: BTreeMap<String, TensorData> = tensors().into_iter().collect();
    assert_eq!(file.names(), expected.keys().collect::<Vec<_>>());
    for (name, data) in &expected {
        let info = file.info(name).unwrap();
        assert_eq!((info.shape, info.dtype), (*data.shape(), Some(data.dtype())), "{name}");
        assert_eq!(&file.contents(name).unwrap().into_data().unwrap(), data, "{name}");
    }
}

#[test]
fn checkpoints_of_hugging_face_open_by_folder_and_by_index() {
    let index = fixture().join("model.safetensors.index.json");
    for path in [fixture(), index.clone()] {
        let file = ShardedFile::open(path).unwrap();
        check(&file);
        assert_eq!((file.num_shards(), file.format()), (3, WeightFormat::ShardedSafetensors));
        assert_eq!(file.path(), index);
        let metadata = TensorSource::metadata(&file);
        assert_eq!((metadata["format"].as_str(), metadata["total_size"].as_str()), ("pt", "104"));
    }
    let file = ShardedFile::open(fixture()).unwrap();
    let error = file.contents("layers.0.wait").unwrap_err().to_string();
    assert!(error.contains("no tensor `layers.0.wait` (there is `layers.0.weight`)"), "{error}");
}

#[test]
fn written_checkpoints_equal_those_of_hugging_face() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("new");
    let files = save_sharded(&folder, tensors(), &SaveOptions::new().max_shard_bytes(40)).unwrap();
    assert_eq!(files.len(), 3);
    let original = names(&fixture()).into_iter().filter(|name| name != "generate.py");
    assert_eq!(names(&folder), original.collect::<Vec<_>>());
    let index = |folder: &Path| -> serde_json::Value {
        serde_json::from_slice(&fs::read(folder.join("model.safetensors.index.json")).unwrap()).unwrap()
    };
    let (found, expected) = (index(&folder), index(&fixture()));
    assert_eq!(found["weight_map"], expected["weight_map"]);
    assert_eq!(found["metadata"]["total_size"], expected["metadata"]["total_size"]);
    check(&ShardedFile::open(&folder).unwrap());
}

#[test]
fn one_shard_is_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let files = save_sharded(folder.path(), tensors(), &SaveOptions::new()).unwrap();
    assert_eq!(files, [folder.path().join("model.safetensors")]);
    assert_eq!(names(folder.path()), ["model.safetensors"]);
    let file = ShardedFile::open(folder.path()).unwrap();
    check(&file);
    assert_eq!((file.num_shards(), file.format()), (1, WeightFormat::Safetensors));
    save_sharded(folder.path().join("empty"), [], &SaveOptions::new()).unwrap();
    assert!(ShardedFile::open(folder.path().join("empty")).unwrap().names().is_empty());
}

#[test]
fn an_earlier_checkpoint_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("config.json"), "{}").unwrap();
    fs::write(folder.join("model-card.safetensors"), "mine").unwrap();
    let save = |bytes| save_sharded(folder, tensors(), &SaveOptions::new().max_shard_bytes(bytes)).unwrap();
    for (bytes, shards) in [(1, 6), (40, 3), (40, 3), (1000, 1), (64, 2), (1000, 1)] {
        assert_eq!(save(bytes).len(), shards);
        check(&ShardedFile::open(folder).unwrap());
        let files = if shards == 1 { 1 } else { shards + 1 };
        assert_eq!(names(folder).len(), files + 2, "{:?}", names(folder));
    }
    assert_eq!(fs::read(folder.join("model-card.safetensors")).unwrap(), b"mine");
}

#[test]
fn a_failing_save_leaves_the_earlier_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let options = SaveOptions::new().max_shard_bytes(40);
    save_sharded(folder, tensors(), &options).unwrap();
    let before = names(folder);
    let types = tensors().into_iter().map(|(name, data)| (name, data.ty()));
    let mut read = |name: &str| match name {
        "layers.1.bias" => Err(StoreError::InvalidArgument { argument: name.into(), problem: "gone".into() }),
        _ => Ok(TensorData::zeros(tensors().into_iter().find(|(other, _)| other == name).unwrap().1.ty())),
    };
    let error = save_sharded_with(folder, types, &mut read, &options).unwrap_err();
    assert_eq!(error.to_string(), "layers.1.bias: gone");
    assert_eq!(names(folder), before);
    check(&ShardedFile::open(folder).unwrap());
    let other = [("x".to_owned(), TensorType::new([2], DType::F32))];
    let error = save_sharded_with(folder, other, |_| Ok(TensorData::from([1i32, 2])), &options).unwrap_err();
    assert!(error.to_string().contains("was announced as f32[2], but is i32[2]"), "{error}");
}

#[test]
fn floats_are_cast() {
    let folder = tempfile::tempdir().unwrap();
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        let options = SaveOptions::new().dtype(dtype).metadata("made-by", "a test");
        save_sharded(folder.path(), tensors(), &options).unwrap();
        let file = TensorFile::open(folder.path().join("model.safetensors")).unwrap();
        assert_eq!(file.metadata()["made-by"], "a test");
        for (name, data) in tensors() {
            let expected = if data.dtype().is_float() { dtype } else { DType::I64 };
            assert_eq!(file.read(&name).unwrap(), data.convert(expected), "{name}");
        }
    }
    // Elements of two bytes fill half as many shards.
    let options = SaveOptions::new().dtype(DType::F16).max_shard_bytes(24);
    assert_eq!(save_sharded(folder.path(), tensors(), &options).unwrap().len(), 3);
    let error = save_sharded(folder.path(), tensors(), &SaveOptions::new().dtype(DType::I8)).unwrap_err();
    assert!(
        error.to_string().contains("dtype = i8: weights can be cast to f64, f32, f16 or bf16"),
        "{error}"
    );
    let twice = [("x".to_owned(), TensorData::from([1.0f32])), ("x".to_owned(), TensorData::from([1.0f32]))];
    assert!(matches!(
        save_sharded(folder.path(), twice, &SaveOptions::new()),
        Err(StoreError::Duplicate { .. })
    ));
}

#[test]
fn modules_are_written_in_shards() {
    let folder = tempfile::tempdir().unwrap();
    let model: Linear<Flex> = LinearConfig::new(8, 8).init(&Default::default());
    let options = SaveOptions::new().max_shard_bytes(100);
    assert_eq!(save_module_sharded(&model, folder.path(), &options).unwrap().len(), 2);
    let file = ShardedFile::open(folder.path()).unwrap();
    let weight = file.contents("weight").unwrap().into_data().unwrap();
    assert_eq!(weight.to_vec::<f32>(), model.weight.to_vec::<f32>());
    save_module_sharded(&model, folder.path(), &SaveOptions::new()).unwrap();
    let other: Linear<Flex> = LinearConfig::new(8, 8).init(&Default::default());
    let other = load_module(other, folder.path().join("model.safetensors")).unwrap();
    assert_eq!(other.weight.to_vec::<f32>(), model.weight.to_vec::<f32>());
}

/// A folder with an index of this text and one shard, `part.safetensors`, with the tensor `x`.
fn with_index(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let part = folder.path().join("part.safetensors");
    kiln_store::save_tensors(&part, [("x".to_owned(), TensorData::from([1.0f32]))], &BTreeMap::new())
        .unwrap();
    fs::write(folder.path().join("model.safetensors.index.json"), text).unwrap();
    match ShardedFile::open(folder.path()) {
        Ok(file) => format!("{:?}", file.names()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn damaged_indices_are_errors() {
    assert_eq!(with_index(r#"{"weight_map": {"x": "part.safetensors"}}"#), r#"["x"]"#);
    for (text, expected) in [
        (
            r#"{"weight_map": {"x": "lost.safetensors", "y": "lost.safetensors"}}"#,
            "the shard `lost.safetensors` is missing; it contains `x` and 1 other tensors",
        ),
        (
            r#"{"weight_map": {"x": "part.safetensors", "y": "part.safetensors"}}"#,
            "part.safetensors: at byte 0: no tensor `y`, which `model.safetensors.index.json` lists",
        ),
        (
            r#"{"weight_map": {"x": "part.safetensors", "x": "part.safetensors"}}"#,
            "duplicate tensor name `x`",
        ),
        (
            r#"{"weight_map": {"x": "../part.safetensors"}}"#,
            "the shard `../part.safetensors` is not a file in the folder of the index",
        ),
        (r#"{"weight_map": {"x": "/etc/passwd"}}"#, "the shard `/etc/passwd` is not a file in the folder"),
        (r#"{"weight_map": {"x": "a/../../part.safetensors"}}"#, "is not a file in the folder"),
        (r#"{"weight_map": {"x": ""}}"#, "the shard `` is not a file in the folder"),
        (r#"{"weight_map": {"x": "."}}"#, "is not a file in the folder"),
        (r#"{"weight_map": {"x": 1}}"#, "the index is invalid: invalid type: integer `1`"),
        (r#"{"metadata": {}}"#, "missing field `weight_map`"),
        ("{", "at byte 0: the index is invalid: EOF"),
        ("", "is empty"),
    ] {
        let error = with_index(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
    let many: Vec<String> = (0..1_000_000).map(|i| format!(r#""{i}":"part.safetensors""#)).collect();
    let error = with_index(&format!(r#"{{"weight_map":{{{}}}}}"#, many.join(",")));
    assert!(error.contains("part.safetensors: at byte 0: no tensor `0`"), "{error}");
    let deep = "[".repeat(100_000);
    assert!(with_index(&format!(r#"{{"metadata": {{"a": {deep}"#)).contains("recursion limit exceeded"));
}

#[test]
fn indices_truncated_or_changed_at_every_byte_never_panic() {
    let text = r#"{"metadata": {"total_size": 4}, "weight_map": {"x": "part.safetensors"}}"#;
    for end in 1..text.len() {
        assert!(with_index(&text[..end]).contains("the index is invalid"), "{end} bytes");
    }
    for at in 0..text.len() {
        for byte in [b'"', b'}', b'0', b'\\'] {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = byte;
            with_index(std::str::from_utf8(&bytes).unwrap());
        }
    }
}

#[test]
fn folders_without_a_checkpoint_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let open = || ShardedFile::open(folder.path()).map(|file| file.names().len());
    let error = open().unwrap_err().to_string();
    assert!(
        error.contains("contains no `model.safetensors` and no `model.safetensors.index.json`"),
        "{error}"
    );
    for name in ["diffusion.safetensors", "other.safetensors"] {
        kiln_store::save_tensors(folder.path().join(name), tensors(), &BTreeMap::new()).unwrap();
        let found = open();
        if name == "diffusion.safetensors" {
            assert_eq!(found.unwrap(), 6);
        } else {
            let error = found.unwrap_err().to_string();
            assert!(error.contains("`diffusion.safetensors`, `other.safetensors`"), "{error}");
        }
    }
}

#[test]
fn shards_of_other_formats_open_by_a_function() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        let path = folder.path().join(format!("{name}.npz"));
        let named = [(name.to_owned(), TensorData::from([1.0f32]))];
        numpy::write_archive(path, named, Compression::Deflated).unwrap();
    }
    let index = folder.path().join("pytorch_model.bin.index.json");
    fs::write(&index, r#"{"weight_map": {"a": "a.npz", "b": "b.npz"}}"#).unwrap();
    let opened = std::cell::RefCell::new(Vec::new());
    let open = |path: &Path| -> Result<Box<dyn TensorSource>, StoreError> {
        opened.borrow_mut().push(path.file_name().unwrap().to_owned());
        Ok(Box::new(Archive::open(path)?))
    };
    let file = ShardedFile::open_with(&index, WeightFormat::ShardedPyTorch, open).unwrap();
    assert_eq!(file.format(), WeightFormat::ShardedPyTorch);
    assert_eq!(file.contents("b").unwrap().into_data().unwrap(), TensorData::from([1.0f32]));
    assert_eq!(opened.into_inner(), ["a.npz", "b.npz"]);
}

#[test]
fn archives_of_numpy_are_sources() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/numpy/arrays.npz");
    let archive = Archive::open(path).unwrap();
    let source: &dyn TensorSource = &archive;
    assert_eq!(source.format(), WeightFormat::Npz);
    assert!(!source.names().is_empty());
    let mut complex = 0;
    for name in source.names() {
        let info = source.info(name).unwrap();
        match info.dtype {
            Some(dtype) => {
                let data = source.contents(name).unwrap().into_data().unwrap();
                assert_eq!(data.ty(), TensorType { shape: info.shape, dtype }, "{name}");
            }
            None => {
                assert!(info.dtype_name.starts_with("complex"), "{name}: {}", info.dtype_name);
                assert!(source.contents(name).is_err());
                complex += 1;
            }
        }
    }
    assert!(complex > 0);
    assert_eq!(source.info("absent"), None);
}
