//! Reading files of the Python package `gguf`.

use std::fs;

use kiln_store::gguf::{GgufFile, Metadata, MetadataArray, MetadataValue};
use kiln_store::{TensorContents, TensorSource, WeightFormat};
use kiln_tensor::{BlockFormat, DType};

use super::{bytes, fixture, floats, open, reference};

const PLAIN: [(&str, DType); 8] = [
    ("F32", DType::F32),
    ("F16", DType::F16),
    ("BF16", DType::BF16),
    ("F64", DType::F64),
    ("I8", DType::I8),
    ("I16", DType::I16),
    ("I32", DType::I32),
    ("I64", DType::I64),
];

fn check_metadata(metadata: &Metadata) {
    let get = |key: &str| metadata.get(&format!("test.{key}")).cloned();
    assert_eq!(get("u8"), Some(MetadataValue::U8(200)));
    assert_eq!(get("i8"), Some(MetadataValue::I8(-100)));
    assert_eq!(get("u16"), Some(MetadataValue::U16(60_000)));
    assert_eq!(get("i16"), Some(MetadataValue::I16(-30_000)));
    assert_eq!(get("u32"), Some(MetadataValue::U32(4_000_000_000)));
    assert_eq!(get("i32"), Some(MetadataValue::I32(-2_000_000_000)));
    assert_eq!(get("u64"), Some(MetadataValue::U64(18_000_000_000_000_000_000)));
    assert_eq!(get("i64"), Some(MetadataValue::I64(-9_000_000_000_000_000_000)));
    assert_eq!(get("f32"), Some(MetadataValue::F32(1e-5)));
    assert_eq!(get("f64"), Some(MetadataValue::F64(0.1)));
    assert_eq!(get("true"), Some(MetadataValue::Bool(true)));
    assert_eq!(get("false"), Some(MetadataValue::Bool(false)));
    assert_eq!(get("string"), Some("Grüße 🌍".into()));
    assert_eq!(metadata.strings("test.strings").unwrap(), ["a", "Ġb", "", "日本"]);
    assert_eq!(metadata.integers("test.integers"), Some(vec![1, -2, 3]));
    assert_eq!(metadata.floats("test.floats"), Some(vec![0.5, -1.5]));
    assert_eq!(get("booleans"), Some(vec![true, false, true].into()));
    assert_eq!(get("array.U8"), Some(vec![1u8, 255].into()));
    assert_eq!(get("array.I8"), Some(vec![-1i8].into()));
    assert_eq!(get("array.U16"), Some(vec![65535u16].into()));
    assert_eq!(get("array.I16"), Some(vec![-2i16, 2].into()));
    assert_eq!(get("array.U32"), Some(vec![7u32; 20].into()));
    assert_eq!(get("array.U64"), Some(vec![1u64 << 63].into()));
    assert_eq!(get("array.I64"), Some(vec![-(1i64 << 62)].into()));
    assert_eq!(get("array.F64"), Some(vec![0.25f64].into()));
    let nested = metadata.array("test.nested").unwrap();
    let parts: Vec<MetadataArray> = [vec![1i32, 2], vec![3], vec![4, 5, 6]].map(MetadataArray::from).into();
    assert_eq!(nested, &MetadataArray::from(parts));
}

#[test]
fn all_types_of_metadata() {
    let file = open("types.gguf");
    assert_eq!(file.architecture(), Some("test"));
    check_metadata(file.metadata());
    check_metadata(open("big-endian.gguf").metadata());
    let text = TensorSource::metadata(&file);
    assert_eq!(text["test.nested"], "[[1, 2], [3], [4, 5, 6]]");
    assert_eq!(text["test.array.U32"], "[20 integers]");
    assert_eq!(text["test.f32"], "1e-5");
    assert_eq!(text["test.strings"], "[a, Ġb, , 日本]");
}

#[test]
fn getters_convert_between_widths_only() {
    let file = open("types.gguf");
    let metadata = file.metadata();
    assert_eq!(metadata.u64("test.u8"), Some(200));
    assert_eq!(metadata.u64("test.u64"), Some(18_000_000_000_000_000_000));
    assert_eq!(metadata.u64("test.i8"), None, "negative");
    assert_eq!(metadata.i64("test.u64"), None, "too large");
    assert_eq!(metadata.i64("test.i8"), Some(-100));
    assert_eq!(metadata.f64("test.f32"), Some(1e-5), "the shortest decimal");
    assert_eq!(metadata.f32("test.f64"), Some(0.1));
    assert_eq!(metadata.f32("test.u8"), None);
    assert_eq!(metadata.bool("test.true"), Some(true));
    assert_eq!(metadata.str("test.u8"), None);
    assert_eq!(metadata.strings("test.integers"), None);
    assert_eq!(metadata.u64("test.absent"), None);
}

#[test]
fn all_types_of_tensors() {
    let (file, expected) = (open("types.gguf"), reference("types.safetensors"));
    assert_eq!(TensorSource::format(&file), WeightFormat::Gguf);
    for (name, dtype) in PLAIN {
        let info = file.info(name).unwrap();
        assert_eq!((info.dtype, info.blocks, info.dtype_name.as_str()), (Some(dtype), None, name));
        let shape: &[usize] = if name == "BF16" { &[3, 2] } else { &[2, 3] };
        assert_eq!(&*info.shape, shape, "{name}");
        assert_eq!(bytes(&file, name), bytes(&expected, name), "{name}");
    }
    for &format in BlockFormat::ALL {
        let name = format.name().to_uppercase();
        let info = file.info(&name).unwrap();
        assert_eq!((info.dtype, info.blocks), (Some(DType::F32), Some(format)));
        assert_eq!(&*info.shape, [2, 256], "{name}");
        assert_eq!(info.dtype_name, name);
        let contents = file.contents(&name).unwrap();
        assert_eq!(&*contents.ty().shape, [2, format.row_bytes(256).unwrap()]);
        assert_eq!(bytes(&file, &name), bytes(&expected, &name), "{name}");
    }
    assert_eq!(&*file.info("four").unwrap().shape, [1, 2, 3, 2]);
    assert_eq!(floats(&file, "four"), floats(&expected, "four"));
    assert_eq!(floats(&file, "vector"), [-2.0, -1.0, 0.0, 1.0, 2.0]);
}

/// Formulas of the formats: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.
#[test]
fn blocks_have_the_bytes_of_their_format() {
    let (file, expected) = (open("types.gguf"), reference("types.safetensors"));
    let half = |bytes: &[u8]| half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
    let blocks = bytes(&file, "quantized.Q8_0");
    let values: Vec<f32> = blocks
        .chunks(34)
        .flat_map(|block| block[2..].iter().map(move |&q| f32::from(q as i8) * half(block)))
        .collect();
    assert_eq!(values, floats(&expected, "values.Q8_0"));
    let blocks = bytes(&file, "quantized.Q4_1");
    let values: Vec<f32> = blocks
        .chunks(20)
        .flat_map(|block| {
            let quants =
                (0..32).map(move |i| if i < 16 { block[4 + i] & 15 } else { block[4 + i - 16] >> 4 });
            quants.map(move |q| f32::from(q) * half(block) + half(&block[2..]))
        })
        .collect();
    assert_eq!(values, floats(&expected, "values.Q4_1"));
}

#[test]
fn unsupported_types_are_listed_but_not_read() {
    let file = open("types.gguf");
    for name in ["IQ2_XXS", "TQ2_0"] {
        let info = file.info(name).unwrap();
        assert_eq!((info.dtype, info.blocks, info.dtype_name.as_str()), (None, None, name));
        let error = file.contents(name).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("tensor `{name}` is of type {name}, which is not supported")),
            "{error}"
        );
    }
    let error = file.contents("F33").unwrap_err().to_string();
    assert!(error.contains("no tensor `F33` (there is `F32`)"), "{error}");
}

#[test]
fn big_endian_files() {
    let (file, expected) = (open("big-endian.gguf"), reference("types.safetensors"));
    for (name, dtype) in PLAIN.into_iter().filter(|(name, _)| *name != "BF16") {
        assert_eq!(file.info(name).unwrap().dtype, Some(dtype));
        assert_eq!(bytes(&file, name), bytes(&expected, name), "{name}");
    }
    assert_eq!(file.info("Q8_0").unwrap().blocks, Some(BlockFormat::Q8_0));
    let error = file.contents("Q8_0").unwrap_err().to_string();
    assert!(error.contains("big-endian") && error.contains("gguf_convert_endian.py"), "{error}");
}

#[test]
fn version_2_differs_only_in_its_number() {
    let mut bytes = fs::read(fixture("types.gguf")).unwrap();
    bytes[4] = 2;
    check_metadata(GgufFile::from_bytes(bytes.clone()).unwrap().metadata());
    bytes[4] = 1;
    let error = GgufFile::from_bytes(bytes).unwrap_err().to_string();
    assert!(error.contains("at byte 4: unsupported GGUF version 1; supported: 2 and 3"), "{error}");
}

#[test]
fn other_alignments() {
    let file = open("aligned.gguf");
    assert_eq!(file.metadata().u64("general.alignment"), Some(128));
    assert_eq!(floats(&file, "a"), [-1.0, 0.0, 1.0]);
    assert_eq!(floats(&file, "b"), [-2.0, -1.0, 0.0, 1.0]);
}

#[test]
fn contents_share_the_memory_of_the_file() {
    let file = open("types.gguf");
    for name in ["F32", "Q4_K"] {
        assert!(matches!(file.contents(name).unwrap(), TensorContents::Shared(..)), "{name}");
    }
    let read = GgufFile::from_reader(fs::File::open(fixture("types.gguf")).unwrap()).unwrap();
    assert_eq!(read.names().collect::<Vec<_>>(), file.names().collect::<Vec<_>>());
    assert_eq!(read.path().display().to_string(), "bytes in memory");
}

#[test]
fn split_models_open_by_the_first_file() {
    let file = open("split-00001-of-00003.gguf");
    assert_eq!(file.names().collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
    for (name, letter) in ["a", "b", "c", "d", "e"].into_iter().zip(b'a'..) {
        let expected = [-2.0, -1.0, 0.0, 1.0].map(|x| x + f32::from(letter));
        assert_eq!(floats(&file, name), expected);
    }
    assert_eq!(file.metadata().str("general.name"), Some("in three files"));
    assert!(file.metadata().iter().all(|(key, _)| !key.starts_with("split.")));
    let error = GgufFile::open(fixture("split-00002-of-00003.gguf")).unwrap_err().to_string();
    assert!(error.contains("file 2 of 3") && error.contains("split-00001-of-00003.gguf`"), "{error}");
    let bytes = fs::read(fixture("split-00001-of-00003.gguf")).unwrap();
    let error = GgufFile::from_bytes(bytes).unwrap_err().to_string();
    assert!(error.contains("by path"), "{error}");
}

#[test]
fn a_missing_or_foreign_part_of_a_split_model_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| fs::copy(fixture(from), folder.path().join(to)).unwrap();
    copy("split-00001-of-00003.gguf", "model-00001-of-00003.gguf");
    copy("split-00002-of-00003.gguf", "model-00002-of-00003.gguf");
    let first = folder.path().join("model-00001-of-00003.gguf");
    let error = GgufFile::open(&first).unwrap_err().to_string();
    assert!(error.contains("model-00003-of-00003.gguf: cannot read"), "{error}");
    copy("split-00002-of-00003.gguf", "model-00003-of-00003.gguf");
    let error = GgufFile::open(&first).unwrap_err().to_string();
    assert!(error.contains("is not file 3 of 3"), "{error}");
    copy("split-00003-of-00003.gguf", "model-00003-of-00003.gguf");
    assert_eq!(GgufFile::open(&first).unwrap().len(), 5);
    copy("split-00001-of-00003.gguf", "renamed.gguf");
    let error = GgufFile::open(folder.path().join("renamed.gguf")).unwrap_err().to_string();
    assert!(error.contains("-00001-of-00003.gguf"), "{error}");
}
