//! The file format: compatibility with the safetensors crate, and damaged files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use kiln_store::{StoreError, TensorFile, save_tensors};
use kiln_tensor::{DType, TensorData, TensorType};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tempfile::TempDir;

/// One tensor of every dtype, of several ranks, some empty.
fn every_dtype() -> Vec<(String, TensorData)> {
    let mut tensors: Vec<(String, TensorData)> = DType::ALL
        .into_iter()
        .map(|dtype| (format!("all.{dtype}"), TensorData::from([[0i64, 1, 2], [1, 0, 77]]).convert(dtype)))
        .collect();
    tensors.push(("halves".into(), TensorData::from([f16::from_f32(1.5), f16::NAN])));
    tensors.push(("brains".into(), TensorData::from([bf16::from_f32(-2.0), bf16::INFINITY])));
    tensors.push(("scalar".into(), TensorData::scalar(-0.0f64)));
    tensors.push(("empty".into(), TensorData::zeros(TensorType::new([0, 3], DType::U8))));
    tensors.push(("none \"quoted\" \u{e9}".into(), TensorData::zeros(TensorType::new([2, 0], DType::F32))));
    tensors
}

fn written(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("all.safetensors");
    let metadata = BTreeMap::from([("key".to_owned(), "value".to_owned())]);
    save_tensors(&path, every_dtype(), &metadata).unwrap();
    path
}

fn file_of(folder: &TempDir, header: &str, data: &[u8]) -> PathBuf {
    let path = folder.path().join("made.safetensors");
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn every_dtype_round_trips() {
    let folder = tempfile::tempdir().unwrap();
    let file = TensorFile::open(written(&folder)).unwrap();
    assert_eq!(file.len(), every_dtype().len());
    for (name, data) in every_dtype() {
        let read = file.read(&name).unwrap();
        assert_eq!(read.ty(), data.ty(), "{name}");
        assert_eq!(read.bytes(), data.bytes(), "{name}");
        assert_eq!(file.info(&name).unwrap().dtype, Some(data.dtype()));
    }
    assert!(file.info("absent").is_none());
}

#[test]
fn the_safetensors_crate_reads_our_files() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = fs::read(written(&folder)).unwrap();
    let library = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(library.len(), every_dtype().len());
    for (name, data) in every_dtype() {
        let view = library.tensor(&name).unwrap();
        assert_eq!((view.shape(), view.data()), (&data.shape()[..], data.bytes()), "{name}");
    }
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(header % 8, 0);
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap().get("key").unwrap(), "value");
}

#[test]
fn files_of_the_safetensors_crate_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("library.safetensors");
    let numbers: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let views = [
        ("numbers", TensorView::new(Dtype::F32, vec![3], &numbers).unwrap()),
        ("complex", TensorView::new(Dtype::C64, vec![1], &[0; 8]).unwrap()),
    ];
    let metadata = [("a".to_owned(), "b".to_owned())].into_iter().collect();
    let bytes =
        safetensors::serialize(views.iter().map(|(name, view)| (*name, view)), Some(metadata)).unwrap();
    fs::write(&path, bytes).unwrap();
    let file = TensorFile::open(&path).unwrap();
    assert_eq!(file.read("numbers").unwrap(), TensorData::from([1.0f32, 2.0, 3.0]));
    assert_eq!(file.info("complex").unwrap().dtype_name, "C64");
    let error = file.read("complex").unwrap_err().to_string();
    assert!(error.ends_with("tensor `complex` is of type C64, which is not supported"), "{error}");
    let error = file.read("number").unwrap_err().to_string();
    assert!(error.ends_with("no tensor `number` (there is `numbers`)"), "{error}");
}

#[test]
fn errors_of_damaged_files_name_file_and_byte() {
    let folder = tempfile::tempdir().unwrap();
    let opened = |header: &str, data: &[u8]| TensorFile::open(file_of(&folder, header, data));
    let problem = |header: &str, data: &[u8]| {
        let error = opened(header, data).unwrap_err().to_string();
        assert!(error.contains("made.safetensors: "), "{error}");
        error.split_once("made.safetensors: ").unwrap().1.to_owned()
    };
    let one = r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    assert!(opened(one, &[0; 8]).is_ok());
    assert!(
        problem(one, &[0; 7])
            .starts_with("69 bytes long, but its header declares 70\n  hint: the file is truncated")
    );
    assert!(problem(one, &[0; 9]).starts_with("71 bytes long, but its header declares 70\n"));
    assert!(problem("{", &[]).starts_with("at byte 8: the header is invalid: EOF while parsing an object"));
    assert!(problem("[]", &[]).contains("a map of tensors"));
    assert!(problem(r#"{"x":{"dtype":"F32","shape":[2]}}"#, &[]).contains("missing field `data_offsets`"));
    assert_eq!(
        problem(r#"{"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#, &[0; 8]),
        "at byte 62: tensor `x` is f32[3] but has 8 bytes"
    );
    assert_eq!(
        problem(r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#, &[0; 12]),
        "at byte 67: tensor `x` has bytes 4..12 of the data, expected to start at 0"
    );
    assert!(problem(r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, &[0; 8]).contains("8..0"));
    let huge = r#"{"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#;
    assert!(problem(huge, &[0; 8]).contains("has 8 bytes"));
    let overlapping = r#"{"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"y":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}}"#;
    assert!(
        problem(overlapping, &[0; 12])
            .ends_with("tensor `y` has bytes 4..12 of the data, expected to start at 8")
    );
    let same = overlapping.replace("[4,12]", "[0,8]");
    assert!(problem(&same, &[0; 8]).ends_with("has bytes 0..8 of the data, expected to start at 8"));
    let far = r#"{"x":{"dtype":"WHAT","shape":[2],"data_offsets":[0,18446744073709551615]}}"#;
    assert!(problem(far, &[0; 8]).contains("truncated"));
    let twice = r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    assert!(problem(twice, &[0; 2]).contains("duplicate tensor name `x`"));
    let twice = r#"{"__metadata__":{"a":"1"},"__metadata__":{"a":"1"}}"#;
    assert!(problem(twice, &[]).contains("duplicate key `__metadata__`"));
    let twice = r#"{"__metadata__":{"a":"1","a":"2"}}"#;
    assert!(problem(twice, &[]).contains("duplicate key `a` in `__metadata__`"));
    assert!(opened(r#"{"__metadata__":{"a":"1","b":"1"}}"#, &[]).is_ok());
    let deep = format!(r#"{{"x":{{"dtype":"U8","shape":[{}1],"data_offsets":[0,1]}}}}"#, "1,".repeat(20));
    assert!(problem(&deep, &[0]).contains("more than 12 dimensions"));
    let nested = format!(r#"{{"x":{}"#, "[".repeat(100_000));
    assert!(problem(&nested, &[]).contains("the header is invalid"));
    assert!(problem(r#"{"__metadata__":{"a":1}}"#, &[]).contains("expected a string"));

    let bools = file_of(&folder, r#"{"b":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}}"#, &[1, 2]);
    let error = TensorFile::open(&bools).unwrap().read("b").unwrap_err().to_string();
    assert!(error.contains("tensor `b`: [data] byte 2 at 1 is not a bool"), "{error}");
}

#[test]
fn files_truncated_at_every_byte_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = fs::read(written(&folder)).unwrap();
    TensorFile::from_bytes(good.clone()).unwrap();
    assert!(matches!(TensorFile::from_bytes(Vec::new()), Err(StoreError::NotWeights { .. })));
    for length in 1..good.len() {
        let error = TensorFile::from_bytes(good[..length].to_vec()).unwrap_err();
        assert!(matches!(error, StoreError::Length { .. } | StoreError::Malformed { .. }), "{error}");
    }
}

#[test]
fn lengths_are_validated_before_allocation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.safetensors");
    for bytes in
        [&[1, 2, 3][..], &u64::MAX.to_le_bytes(), &100_000_001u64.to_le_bytes(), &99u64.to_le_bytes()]
    {
        fs::write(&path, bytes).unwrap();
        let error = TensorFile::open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Length { .. } | StoreError::Malformed { .. }), "{error}");
    }
    assert!(TensorFile::open(folder.path()).is_err());
}

#[test]
fn two_tensors_of_one_name_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("twice.safetensors");
    let tensors = ["x", "y", "x"].map(|name| (name.to_owned(), TensorData::from([1.0f32])));
    let error = save_tensors(&path, tensors, &BTreeMap::new()).unwrap_err().to_string();
    assert!(error.ends_with("duplicate tensor name `x`"), "{error}");
    assert!(!path.exists());
}

/// Reading randomly damaged files never panics: it returns the original numbers or an error.
#[test]
fn random_damage_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    let good = fs::read(written(&folder)).unwrap();
    let header = 8 + u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
    let path = folder.path().join("damaged.safetensors");
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..1500 {
        let mut bytes = good.clone();
        for _ in 0..=random.below(3) {
            damage(&mut bytes, header, &mut random);
        }
        fs::write(&path, &bytes).unwrap();
        read_all(&path);
    }
}

fn damage(bytes: &mut Vec<u8>, header: usize, random: &mut Random) {
    const PIECES: [&[u8]; 8] = [b"{", b"}", b"[", b"]", b"\"", b",", b"99999999999999999999", b"-1"];
    let place = random.below(bytes.len().min(header).max(1));
    match random.below(6) {
        0 => bytes[place] ^= 1 << random.below(8),
        1 => bytes.truncate(random.below(bytes.len())),
        2 => drop(bytes.splice(place..place, PIECES[random.below(8)].iter().copied())),
        3 => drop(bytes.drain(place..(place + random.below(20)).min(bytes.len()))),
        4 => bytes[random.below(8)] = random.below(256) as u8,
        _ => bytes.push(random.below(256) as u8),
    }
    if bytes.len() < 8 {
        bytes.resize(8, 0);
    }
}

fn read_all(path: &Path) {
    let Ok(file) = TensorFile::open(path) else { return };
    for name in file.names() {
        if let Ok(data) = file.read(name) {
            assert_eq!(Some(data.dtype()), file.info(name).unwrap().dtype);
        }
    }
}

/// Xorshift (Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}
