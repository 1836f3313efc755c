//! Files of PyTorch: reading files that PyTorch wrote, writing files that PyTorch reads, and damaged files.

mod damage;
mod hostile;
mod interoperability;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use kiln_store::pytorch::{self, PickleValue, PyTorchFile, PyTorchOptions};
use kiln_store::{StoreError, TensorContents, TensorFile, TensorSource, WeightFormat};
use kiln_tensor::{DType, Shape, TensorData};

/// Files by `generate.py`, each with a safetensors file of the same tensors.
const FILES: [(&str, WeightFormat); 22] = [
    ("views", WeightFormat::PyTorch),
    ("dtypes", WeightFormat::PyTorch),
    ("checkpoint", WeightFormat::PyTorch),
    ("parameters", WeightFormat::PyTorch),
    ("tensor", WeightFormat::PyTorch),
    ("module", WeightFormat::PyTorch),
    ("legacy", WeightFormat::PyTorchLegacy),
    ("legacy-views", WeightFormat::PyTorchLegacy),
    ("protocol-1", WeightFormat::PyTorch),
    ("protocol-3", WeightFormat::PyTorch),
    ("protocol-4", WeightFormat::PyTorch),
    ("protocol-5", WeightFormat::PyTorch),
    ("script", WeightFormat::TorchScript),
    ("big-endian", WeightFormat::PyTorch),
    ("deflated", WeightFormat::PyTorch),
    ("tar", WeightFormat::PyTorchTar),
    ("negated", WeightFormat::PyTorch),
    ("negated-script", WeightFormat::TorchScript),
    ("casts", WeightFormat::PyTorch),
    ("numpy-2", WeightFormat::PyTorchLegacy),
    ("numpy-4", WeightFormat::PyTorchLegacy),
    ("numpy-5", WeightFormat::PyTorchLegacy),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pytorch")
}

fn fixture(name: &str) -> PathBuf {
    folder().join(format!("{name}.pt"))
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(fixture(name)).unwrap()
}

fn open(name: &str) -> PyTorchFile {
    PyTorchFile::open(fixture(name)).unwrap()
}

/// The message of an error without the name of the file.
fn problem(bytes: Vec<u8>) -> String {
    let error = PyTorchFile::from_bytes(bytes).map(drop).unwrap_err().to_string();
    error.strip_prefix("bytes in memory: ").unwrap_or_else(|| panic!("{error}")).to_owned()
}

#[test]
fn tensors_are_those_that_pytorch_saved() {
    for (name, format) in FILES {
        let file = open(name);
        assert_eq!(file.format(), format, "{name}");
        let expected = TensorFile::open(folder().join(format!("{name}.safetensors"))).unwrap();
        let (found, known): (BTreeSet<&str>, BTreeSet<&str>) =
            (file.names().collect(), expected.names().collect());
        assert_eq!(found, known, "{name}");
        for tensor in found {
            let (data, known) = (file.read(tensor).unwrap(), expected.read(tensor).unwrap());
            assert_eq!(data.ty(), known.ty(), "{name}: {tensor}");
            assert_eq!(data.bytes(), known.bytes(), "{name}: {tensor}");
            let (info, known) = (file.info(tensor).unwrap(), expected.info(tensor).unwrap());
            assert_eq!(info, known, "{name}: {tensor}");
        }
        file.verify().unwrap();
        assert!(PyTorchFile::is_pytorch(&bytes(name)) || name.starts_with("numpy"), "{name}");
    }
    let npz = kiln_store::numpy::archive_to_bytes([], Default::default()).unwrap();
    assert!(!PyTorchFile::is_pytorch(&npz));
    assert!(!PyTorchFile::is_pytorch(b""));
}

#[test]
fn values_that_are_not_tensors() {
    for name in ["checkpoint", "legacy"] {
        let file = open(name);
        let value = |key: &str| file.value(key).unwrap().unwrap_or_else(|| panic!("{name} has no {key}"));
        assert_eq!(value("epoch"), PickleValue::Int(3));
        assert_eq!(value("name").as_str(), Some("tiny"));
        assert_eq!(value("best").as_f64(), Some(0.125));
        assert_eq!(value("done").as_bool(), Some(false));
        assert_eq!(value("nothing"), PickleValue::None);
        assert_eq!(value("loss").as_f64(), Some(1.5));
        assert_eq!(value("count").as_i64(), Some(-7));
        assert_eq!(value("optimizer.param_groups.0.lr").as_f64(), Some(0.25));
        let args = value("args");
        assert_eq!(args.get("lr").and_then(PickleValue::as_f64), Some(0.1));
        let layers: Vec<i64> =
            args.get("layers").unwrap().as_list().unwrap().iter().filter_map(PickleValue::as_i64).collect();
        assert_eq!(layers, [1, 2, 3]);
        assert_eq!(
            args.get("size"),
            Some(&PickleValue::List(vec![PickleValue::Int(2), PickleValue::Int(3)]))
        );
        assert!(matches!(args, PickleValue::Object { class, .. } if class == "argparse.Namespace"));
        assert_eq!(value("tags"), PickleValue::List(vec![PickleValue::Text("a".to_owned())]));
        assert_eq!(value("dtype"), PickleValue::Other("torch.float16".to_owned()));
        assert_eq!(value("defaults.x").as_list().unwrap()[0].as_f64(), Some(1.5));
        assert_eq!(value("mean"), PickleValue::Other("tensor".to_owned()));
        assert_eq!(file.value("missing").unwrap(), None);
        let metadata = TensorSource::metadata(&file);
        assert_eq!(metadata["epoch"], "3");
        assert_eq!(metadata["name"], "tiny");
        assert!(!metadata.contains_key("args"));
    }
    assert_eq!(open("checkpoint").value("raw").unwrap(), Some(PickleValue::Bytes(vec![0xFF, 0])));
}

#[test]
fn parts_of_a_checkpoint() {
    let file = open("checkpoint");
    let keys = file.keys().unwrap();
    assert_eq!(&keys[..3], ["epoch", "name", "best"]);
    assert_eq!(keys.last().unwrap(), "5");
    let weights = file.under("state_dict").unwrap();
    let names: Vec<&str> = weights.names().collect();
    assert_eq!(
        names,
        [
            "conv.weight",
            "conv.bias",
            "norm.weight",
            "norm.bias",
            "norm.running_mean",
            "norm.running_var",
            "norm.num_batches_tracked"
        ]
    );
    assert_eq!(weights.read("conv.bias").unwrap(), file.read("state_dict.conv.bias").unwrap());
    let moments = file.under("optimizer.state.0").unwrap();
    assert_eq!(moments.names().collect::<Vec<_>>(), ["step", "exp_avg", "exp_avg_sq"]);
    // The outermost dict has tensors of its own, such as `mean`, which is an array of NumPy.
    assert_eq!(file.state_dict().unwrap().len(), file.len());
    let error = file.under("stat_dict").unwrap_err().to_string();
    assert!(error.ends_with("no tensor `stat_dict` (there is `state_dict`)"), "{error}");
    assert!(matches!(file.read("conv.bias"), Err(StoreError::NotFound { .. })));
}

/// A legacy file of nested dicts, in the opcodes of protocol 2.
fn nested(keys: &[&str]) -> Vec<u8> {
    let mut pickle = b"\x80\x02}(".to_vec();
    for key in keys {
        pickle.extend([b'X', key.len() as u8, 0, 0, 0]);
        pickle.extend(key.bytes());
        // An array of NumPy with one element.
        pickle.extend(
            b"}X\x01\0\0\0wcnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\x01b\x87R",
        );
        pickle.extend(b"(K\x01K\x01\x85cnumpy\ndtype\nU\x02u1K\0K\x01\x87R(K\x03U\x01|NNNJ\xFF\xFF\xFF\xFFJ\xFF\xFF\xFF\xFFK\0tb");
        pickle.extend(b"\x89U\x01\x07tbs");
    }
    pickle.extend(b"u.");
    pickle
}

#[test]
fn the_state_dict_of_a_checkpoint() {
    let file = PyTorchFile::from_bytes(nested(&["model_state_dict", "optimizer"])).unwrap();
    assert_eq!(file.names().collect::<Vec<_>>(), ["model_state_dict.w", "optimizer.w"]);
    let weights = file.state_dict().unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["w"]);
    assert_eq!(weights.read("w").unwrap(), TensorData::from([7u8]));
    let error =
        PyTorchFile::from_bytes(nested(&["model", "ema"])).unwrap().state_dict().unwrap_err().to_string();
    assert_eq!(
        error,
        "state dict of bytes in memory: several keys contain weights: `model`, `ema`\n  hint: select one with \
         `PyTorchFile::under`"
    );
    let error =
        PyTorchFile::from_bytes(nested(&["x", "optimizer"])).unwrap().state_dict().unwrap_err().to_string();
    assert!(error.contains("the keys are `x`, `optimizer`"), "{error}");
    assert_eq!(open("parameters").state_dict().unwrap().len(), 2);
    assert_eq!(open("module").state_dict().unwrap().len(), 7);
    assert_eq!(open("script").state_dict().unwrap().len(), open("script").len());
}

#[test]
fn constants_of_torch_script() {
    assert_eq!(open("checkpoint").constants().unwrap().map(|file| file.len()), None);
    assert!(open("script").constants().unwrap().unwrap().is_empty());
    let frozen = open("frozen").constants().unwrap().unwrap();
    let shapes: BTreeSet<Vec<usize>> =
        frozen.names().map(|name| frozen.info(name).unwrap().shape.to_vec()).collect();
    assert_eq!(shapes, BTreeSet::from([vec![3], vec![3, 2]]));
}

#[test]
fn dtypes_without_a_counterpart_are_listed() {
    let file = open("unsupported");
    let expected = [
        ("complex", "C64", Shape::new([3])),
        ("quantised", "QINT8", Shape::new([4])),
        ("sparse", "sparse", Shape::new([5, 6])),
    ];
    for (name, dtype, shape) in expected {
        let info = file.info(name).unwrap();
        assert_eq!((info.dtype, info.dtype_name.as_str(), info.shape), (None, dtype, shape));
        let error = file.read(name).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("tensor `{name}` is of type {dtype}, which is not supported")),
            "{error}"
        );
    }
    assert_eq!(file.read("fine").unwrap(), TensorData::from([1.0f32, 1.0]));
    assert_eq!(file.read("float8").unwrap(), TensorData::from([[1.0f32; 2]; 2]));
    // Metadata of another device, as of tensors in the private layouts of an NPU.
    let file = open("metadata");
    let dtypes = [("other", "F32 with the metadata `npu_format`"), ("conj", "C64")];
    for (name, dtype) in dtypes {
        let error = file.read(name).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("tensor `{name}` is of type {dtype}, which is not supported")),
            "{error}"
        );
    }
}

#[test]
fn all_bits_of_8_bit_floats() {
    let file = open("float8");
    let expected = TensorFile::open(folder().join("../float8.safetensors")).unwrap();
    let formats = [
        ("float8_e4m3fn", "F8_E4M3"),
        ("float8_e5m2", "F8_E5M2"),
        ("float8_e4m3fnuz", "F8_E4M3FNUZ"),
        ("float8_e5m2fnuz", "F8_E5M2FNUZ"),
        ("float8_e8m0fnu", "F8_E8M0"),
    ];
    for (name, dtype) in formats {
        let values = expected.read(&format!("{dtype}.values")).unwrap().to_vec::<f32>();
        let (own, other) = (file.read(name).unwrap(), expected.read(dtype).unwrap());
        assert_eq!(file.info(name).unwrap(), expected.info(dtype).unwrap());
        assert_eq!(file.info(name).unwrap().num_bytes(), Some(256));
        for data in [own, other] {
            for (bits, (own, expected)) in data.to_vec::<f32>().into_iter().zip(&values).enumerate() {
                match expected.is_nan() {
                    true => assert!(own.is_nan(), "{name} {bits:#x}: {own}"),
                    false => assert_eq!(own.to_bits(), expected.to_bits(), "{name} {bits:#x}: {own}"),
                }
            }
        }
    }
    // Rows 2 and 3 of the transposed bits.
    let bits: Vec<u8> = (2..4).flat_map(|row| (0..16).map(move |column| 16 * column + row)).collect();
    let values = expected.read("F8_E4M3.values").unwrap().to_vec::<f32>();
    let strided = file.read("strided").unwrap();
    assert_eq!(strided.shape().to_vec(), [2, 16]);
    assert!(strided.to_vec::<f32>().iter().zip(&bits).all(|(own, &bits)| *own == values[usize::from(bits)]));
}

#[test]
fn contiguous_tensors_share_the_file() {
    let file = open("views");
    for (name, is_shared) in [("base", true), ("part", true), ("transposed", false), ("expanded", false)] {
        let contents = TensorSource::contents(&file, name).unwrap();
        assert_eq!(matches!(contents, TensorContents::Shared(..)), is_shared, "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.pt");
    let large = TensorData::from(vec![0.5f32; 1 << 19]);
    pytorch::save(&path, [("x".to_owned(), large.clone())]).unwrap();
    let file = PyTorchFile::open(&path).unwrap();
    assert_eq!(file.is_mapped(), cfg!(not(windows)));
    assert_eq!(file.read("x").unwrap(), large);
    let TensorContents::Shared(bytes, _) = TensorSource::contents(&file, "x").unwrap() else {
        panic!("a copy")
    };
    assert_eq!(bytes.as_slice().as_ptr() as usize % 64, 0);
}

/// Tensors of all dtypes and of several ranks.
fn tensors() -> BTreeMap<String, TensorData> {
    let mut tensors: BTreeMap<String, TensorData> = DType::ALL
        .into_iter()
        .map(|dtype| (format!("dtype.{dtype}"), TensorData::from([[0i64, 1, 1], [1, 0, 1]]).convert(dtype)))
        .collect();
    let more = [
        ("scalar", TensorData::scalar(-2.5f64)),
        ("empty", TensorData::new(Vec::<f32>::new(), [0, 3]).unwrap()),
        ("deep", TensorData::new((0..120).collect::<Vec<i32>>(), [2, 3, 4, 5]).unwrap()),
        ("long name é", TensorData::from(vec![7u8; 300])),
        ("many", TensorData::from((0..70_000).collect::<Vec<i64>>())),
    ];
    tensors.extend(more.map(|(name, data)| (name.to_owned(), data)));
    tensors
}

#[test]
fn written_files_are_read_back() {
    let tensors = tensors();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.pt");
    pytorch::save(&path, tensors.clone()).unwrap();
    let file = PyTorchFile::open(&path).unwrap();
    assert_eq!(file.format(), WeightFormat::PyTorch);
    assert_eq!(file.names().collect::<Vec<_>>(), tensors.keys().map(String::as_str).collect::<Vec<_>>());
    for (name, data) in &tensors {
        assert_eq!(&file.read(name).unwrap(), data, "{name}");
    }
    file.verify().unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(pytorch::to_bytes(tensors).unwrap(), bytes);
    let file = PyTorchFile::from_reader(bytes.as_slice()).unwrap();
    assert_eq!(file.path(), Path::new("bytes in memory"));
    let twice = [("x".to_owned(), TensorData::from([1u8])), ("x".to_owned(), TensorData::from([2u8]))];
    assert!(matches!(pytorch::to_bytes(twice), Err(StoreError::Duplicate { .. })));
}

#[test]
fn a_class_can_be_allowed() {
    // An instance of `__main__.Net` with the attribute `w`, a list.
    let pickle = b"\x80\x02c__main__\nNet\n)\x81}(U\x01w]K\x05au\x62.".to_vec();
    let message = problem(pickle.clone());
    assert!(message.starts_with("at byte 2: pickle: the global `__main__.Net` is not allowed"), "{message}");
    // All classes at once, each once, though an opcode that follows is damaged.
    let several = b"\x80\x02c__main__\nNet\n)\x81}(U\x01wcmy.data\nVocabulary\n)\x81U\x01vc__main__\nNet\n)\x81u\x62\xFF";
    let message = problem(several.to_vec());
    assert!(
        message.starts_with(
            "at byte 2: pickle: the globals `__main__.Net`, `my.data.Vocabulary` are not allowed"
        ),
        "{message}"
    );
    let many: Vec<u8> = (0..100).flat_map(|class| format!("c__main__\nC{class}\n").into_bytes()).collect();
    let message = problem([&b"\x80\x02"[..], &many, b"."].concat());
    assert!(message.contains("`__main__.C31` and others are not allowed"), "{message}");
    assert!(!message.contains("C32"), "{message}");
    let file = PyTorchFile::from_bytes_with(pickle, &PyTorchOptions::new().allow("__main__.Net")).unwrap();
    assert_eq!(file.keys().unwrap(), ["w"]);
    assert_eq!(file.value("w.0").unwrap(), Some(PickleValue::Int(5)));
}
