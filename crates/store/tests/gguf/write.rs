//! Writing files.

use std::fs;

use kiln_store::gguf::{self, ElementType, GgufFile, GgufTensor, Metadata};
use kiln_store::{StoreError, TensorContents};
use kiln_tensor::{BlockFormat, DType, TensorData};

use super::{bytes, fixture, floats, open};

/// All tensors that Kiln supports.
fn tensors(file: &GgufFile) -> Vec<(String, GgufTensor<'_>)> {
    let known = file.names().filter(|name| file.info(name).unwrap().dtype.is_some());
    let copied = known.map(|name| {
        let (info, contents) = (file.info(name).unwrap(), file.contents(name).unwrap());
        (name.to_owned(), GgufTensor::from_contents(&info, contents).unwrap())
    });
    copied.collect()
}

#[test]
fn the_bytes_are_those_of_the_python_package() {
    for name in ["aligned.gguf", "llama.gguf", "tokenizer.gguf", "qwen2.gguf"] {
        let file = open(name);
        let written = gguf::to_bytes(file.metadata(), tensors(&file)).unwrap();
        assert!(written == fs::read(fixture(name)).unwrap(), "{name}");
    }
}

#[test]
fn all_types_round_trip() {
    let file = open("types.gguf");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy.gguf");
    gguf::save(&path, file.metadata(), tensors(&file)).unwrap();
    let copy = GgufFile::open(&path).unwrap();
    assert_eq!(copy.metadata(), file.metadata());
    assert_eq!(copy.len(), file.len() - 2);
    for name in copy.names() {
        assert_eq!(copy.info(name), file.info(name));
        assert_eq!(bytes(&copy, name), bytes(&file, name), "{name}");
    }
    let again = gguf::to_bytes(copy.metadata(), tensors(&copy)).unwrap();
    assert!(again == fs::read(&path).unwrap(), "not deterministic");
}

#[test]
fn large_files_are_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.gguf");
    let tokens: Vec<String> = (0..50_000).map(|id| format!("token {id}")).collect();
    let mut metadata = Metadata::new();
    metadata.insert("tokenizer.ggml.tokens", tokens.clone());
    let numbers: Vec<f32> = (0..300_000).map(|i| i as f32).collect();
    gguf::save(&path, &metadata, [("x".to_owned(), TensorData::from(numbers.clone()).into())]).unwrap();
    let file = GgufFile::open(&path).unwrap();
    assert_eq!(file.is_mapped(), cfg!(unix));
    assert_eq!(file.metadata().strings("tokenizer.ggml.tokens").unwrap(), tokens);
    assert_eq!(file.metadata().get("tokenizer.ggml.tokens").unwrap().to_string(), "[50000 strings]");
    let x = file.contents("x").unwrap().into_tensor(&kiln_backends::Device::cpu());
    assert_eq!(x.into_data().unwrap(), numbers.into());
}

#[test]
fn deferred_tensors_are_checked() {
    let make = |contents: fn() -> TensorData| {
        let element = ElementType::Plain(DType::F16);
        let tensor = GgufTensor::deferred(element, [2], move || Ok(TensorContents::Host(contents())));
        gguf::to_bytes(&Metadata::new(), [("x".to_owned(), tensor)])
    };
    let good = make(|| TensorData::from([1.0f32, 2.0]).convert(DType::F16)).unwrap();
    assert_eq!(floats(&GgufFile::from_bytes(good).unwrap(), "x"), [1.0, 2.0]);
    let error = make(|| TensorData::from([1.0f32, 2.0])).unwrap_err().to_string();
    assert!(error.contains("tensor `x`: is of type f16[2] in the header"), "{error}");
    let failing = GgufTensor::deferred(ElementType::Blocks(BlockFormat::Q8_0), [32], || {
        Err(StoreError::InvalidArgument { argument: "x".into(), problem: "no such thing".into() })
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let error = gguf::save(&path, &Metadata::new(), [("x".to_owned(), failing)]).unwrap_err().to_string();
    assert_eq!(error, "x: no such thing");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left of a failed save");
}

#[test]
fn tensors_that_llama_cpp_would_refuse_are_errors() {
    let refused = |tensors: Vec<(&str, GgufTensor<'_>)>, expected: &str| {
        let named = tensors.into_iter().map(|(name, tensor)| (name.to_owned(), tensor));
        let error = gguf::to_bytes(&Metadata::new(), named).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let one = || GgufTensor::from(TensorData::from([1.0f32]));
    refused(vec![("x", one()), ("x", one())], "duplicate tensor name `x`");
    refused(vec![("x".repeat(64).as_str(), one())], "has 64 bytes; llama.cpp allows at most 63");
    let five = TensorData::from([1.0f32]).reshape([1, 1, 1, 1, 1]).unwrap();
    refused(vec![("x", five.into())], "has 5 dimensions; llama.cpp allows at most 4");
    refused(vec![("x", TensorData::from([1u8]).into())], "GGUF has no elements of type U8");
    refused(vec![("x", TensorData::from([true]).into())], "GGUF has no elements of type BOOL");
    let blocks = |bytes, shape: [usize; 2]| GgufTensor::blocks(vec![0; bytes], BlockFormat::Q4_0, shape);
    refused(vec![("x", blocks(18, [1, 31]))], "rows of 31 elements are not whole blocks of 32 elements");
    refused(vec![("x", blocks(17, [1, 32]))], "needs 18 bytes, but has 17");
    let mut metadata = Metadata::new();
    metadata.insert("general.alignment", 48u32);
    let error = gguf::to_bytes(&metadata, []).unwrap_err().to_string();
    assert!(error.contains("general.alignment = 48: must be a power of two"), "{error}");
}

#[test]
fn files_without_tensors_and_empty_tensors() {
    let bytes = gguf::to_bytes(&Metadata::new(), []).unwrap();
    let file = GgufFile::from_bytes(bytes).unwrap();
    assert!(file.is_empty() && file.metadata().is_empty());
    let empty = TensorData::new(Vec::<f32>::new(), [0, 4]).unwrap();
    let scalar = TensorData::scalar(2.5f32);
    let named = [("empty".to_owned(), empty.into()), ("scalar".to_owned(), scalar.into())];
    let file = GgufFile::from_bytes(gguf::to_bytes(&Metadata::new(), named).unwrap()).unwrap();
    assert_eq!(&*file.info("empty").unwrap().shape, [0, 4]);
    assert_eq!(floats(&file, "empty"), [0.0f32; 0]);
    assert_eq!(floats(&file, "scalar"), [2.5]);
}
