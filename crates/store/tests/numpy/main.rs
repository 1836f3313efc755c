//! NumPy's files: against files that NumPy made, against their specification, and against damage.

mod damage;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use half::{bf16, f16};
use kiln_store::numpy::{self, Archive, Compression};
use kiln_tensor::{DType, TensorData, TensorType};

/// Made by `arrays.py`, with NumPy 2.4.6.
const ARRAYS: &[u8] = include_bytes!("arrays.npz");
/// The same, not compressed: the arrays of Kiln's own order.
const PLAIN: &[u8] = include_bytes!("plain.npz");

const DTYPES: [(&str, DType); 12] = [
    ("b1", DType::Bool),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
];

/// The arrays that `arrays.py` lists, without the complex ones.
fn expected() -> BTreeMap<String, TensorData> {
    let mut expected = BTreeMap::new();
    for (name, dtype) in DTYPES {
        for order in ["c", "f", "big"] {
            let data = TensorData::from([[0i64, 1, 2], [1, 0, 77]]).convert(dtype);
            expected.insert(format!("{order}_{name}"), data);
        }
    }
    let deep = TensorData::new((0..60).collect::<Vec<i32>>(), [2, 3, 2, 5]).unwrap();
    let more = [
        ("scalar", TensorData::scalar(-0.0f64)),
        ("empty", TensorData::zeros(TensorType::new([0, 3], DType::U8))),
        ("no_columns", TensorData::zeros(TensorType::new([2, 0], DType::F32))),
        ("deep", deep),
        ("ends_i8", TensorData::from([i64::MIN, -1, i64::MAX])),
        ("ends_u8", TensorData::from([0, u64::MAX])),
        ("special_f4", TensorData::from([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-45])),
        ("name with spaces/é", TensorData::from([7i16])),
    ];
    expected.extend(more.map(|(name, data)| (name.to_owned(), data)));
    expected
}

/// The bytes of a file of that version, by the specification.
fn npy(version: u8, dictionary: &str, elements: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    match version {
        1 => bytes.extend((dictionary.len() as u16).to_le_bytes()),
        _ => bytes.extend((dictionary.len() as u32).to_le_bytes()),
    }
    bytes.extend(dictionary.as_bytes());
    bytes.extend(elements);
    bytes
}

fn dictionary(descr: &str, fortran_order: &str, shape: &str) -> String {
    format!("{{'descr': {descr}, 'fortran_order': {fortran_order}, 'shape': {shape}, }}\n")
}

fn problem(bytes: &[u8]) -> String {
    let error = numpy::from_bytes(bytes).unwrap_err().to_string();
    error.strip_prefix("bytes in memory: ").unwrap_or_else(|| panic!("{error}")).to_owned()
}

fn archive_problem(bytes: Vec<u8>) -> String {
    let read = Archive::from_bytes(bytes).and_then(|archive| {
        archive.names().try_for_each(|name| archive.read(name).map(|_| ()))?;
        Ok(archive.len())
    });
    let error = read.unwrap_err().to_string();
    error.strip_prefix("bytes in memory: ").unwrap_or_else(|| panic!("{error}")).to_owned()
}

#[test]
fn numpys_arrays_are_read() {
    let archive = Archive::from_bytes(ARRAYS.to_vec()).unwrap();
    let expected = expected();
    let complex = ["big_f_c8", "c_c16", "c_c8"];
    let names: Vec<&str> = archive.names().filter(|name| !complex.contains(name)).collect();
    assert_eq!(names, expected.keys().collect::<Vec<_>>());
    for (name, data) in &expected {
        let read = archive.read(name).unwrap();
        assert_eq!((read.ty(), archive.ty(name).unwrap()), (data.ty(), data.ty()), "{name}");
        assert_eq!(read.bytes(), data.bytes(), "{name}");
    }
}

#[test]
fn complex_numbers_are_pairs() {
    let archive = Archive::from_bytes(ARRAYS.to_vec()).unwrap();
    let real = TensorData::from([[1.0f64, -2.0], [0.5, f64::INFINITY]]);
    let imaginary = TensorData::from([[0.0f64, 3.0], [-0.25, 1.0]]);
    for (name, dtype) in [("c_c8", DType::F32), ("big_f_c8", DType::F32), ("c_c16", DType::F64)] {
        let parts = (real.clone().convert(dtype), imaginary.clone().convert(dtype));
        assert_eq!(archive.read_complex(name).unwrap(), parts, "{name}");
        let bytes = numpy::complex_to_bytes(&parts.0, &parts.1).unwrap();
        assert_eq!(numpy::complex_from_bytes(&bytes).unwrap(), parts);
    }
    let error = archive.read("c_c8").unwrap_err().to_string();
    assert!(error.contains("entry `c_c8.npy`") && error.contains("hint: `numpy::read_complex`"), "{error}");
    let error = archive.read_complex("c_f4").unwrap_err().to_string();
    assert!(error.contains("the array is f32, not complex"), "{error}");
    let error = numpy::complex_to_bytes(&real, &TensorData::from([1.0f64])).unwrap_err().to_string();
    assert!(error.contains("both f32 or both f64, of one shape: f64[2, 2] x f64[1]"), "{error}");
}

#[test]
fn what_is_written_is_what_numpy_writes() {
    let archive = Archive::from_bytes(PLAIN.to_vec()).unwrap();
    assert_eq!(archive.len(), 16);
    for name in archive.names() {
        let bytes = match archive.read(name) {
            Ok(data) => numpy::to_bytes(&data),
            Err(_) => {
                let (real, imaginary) = archive.read_complex(name).unwrap();
                numpy::complex_to_bytes(&real, &imaginary).unwrap()
            }
        };
        assert!(PLAIN.windows(bytes.len()).any(|part| part == bytes), "{name} differs from NumPy's bytes");
    }
}

#[test]
fn every_dtype_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("array.npy");
    let mut all: Vec<TensorData> =
        DType::ALL.into_iter().map(|dtype| TensorData::from([[0i64, 1], [1, 77]]).convert(dtype)).collect();
    all.push(TensorData::from([f16::from_f32(1.5), f16::NAN]));
    all.push(TensorData::from([bf16::from_f32(-2.0), bf16::INFINITY]));
    all.push(TensorData::zeros(TensorType::new([1; 12], DType::I8)));
    all.extend(expected().into_values());
    for data in &all {
        numpy::write(&path, data).unwrap();
        let read = numpy::read(&path).unwrap();
        assert_eq!((read.ty(), read.bytes()), (data.ty(), data.bytes()));
        assert_eq!(fs::read(&path).unwrap(), numpy::to_bytes(data));
        assert_eq!(numpy::to_bytes(data).len() % 64, data.bytes().len() % 64);
    }
    let named = |all: &[TensorData]| -> BTreeMap<String, TensorData> {
        all.iter().enumerate().map(|(i, data)| (format!("array {i}"), data.clone())).collect()
    };
    for compression in [Compression::Stored, Compression::Deflated] {
        let path = folder.path().join("arrays.npz");
        numpy::write_archive(&path, named(&all), compression).unwrap();
        let read = numpy::read_archive(&path).unwrap();
        assert_eq!(read.len(), all.len());
        for (name, data) in named(&all) {
            assert_eq!((read[&name].ty(), read[&name].bytes()), (data.ty(), data.bytes()), "{name}");
        }
    }
    assert_eq!(numpy::archive_to_bytes([], Compression::Stored).unwrap().len(), 22);
    assert!(
        Archive::from_bytes(numpy::archive_to_bytes([], Compression::Stored).unwrap()).unwrap().is_empty()
    );
}

#[test]
fn every_version_and_spelling_is_read() {
    let two = TensorData::from([1i16, -2]);
    let elements: Vec<u8> = [1i16, -2].iter().flat_map(|x| x.to_le_bytes()).collect();
    for version in 1..=3 {
        for text in [
            dictionary("'<i2'", "False", "(2,)"),
            dictionary("\"<i2\"", "True", "(2L,)"),
            "{'shape':(2),'fortran_order':False,'descr':'int16'}".to_owned(),
            " { 'shape' : ( 2 , ) , \n'fortran_order' : True, 'descr' : '=i2' } ".to_owned(),
        ] {
            assert_eq!(numpy::from_bytes(&npy(version, &text, &elements)).unwrap(), two, "{text}");
        }
    }
    let halves: Vec<u8> =
        [1.0f32, -2.5].iter().flat_map(|&x| bf16::from_f32(x).to_bits().to_le_bytes()).collect();
    for descr in ["'<V2'", "'|V2'", "'bfloat16'"] {
        let read = numpy::from_bytes(&npy(1, &dictionary(descr, "False", "(2,)"), &halves)).unwrap();
        assert_eq!(read, TensorData::from([bf16::from_f32(1.0), bf16::from_f32(-2.5)]));
    }
}

#[test]
fn what_is_no_array_is_refused_with_its_byte() {
    let says = |text: &str, elements: &[u8], expected: &str| {
        let found = problem(&npy(1, text, elements));
        assert!(found.starts_with(expected), "{text}:\n{found}\nbut expected\n{expected}");
    };
    says(
        &dictionary("'|O'", "False", "(1,)"),
        b"\x80\x04K\x01.",
        "at byte 20: the elements are Python objects, which are pickled: `|O`\n  hint: unpickling can run any code",
    );
    says(&dictionary("'<U5'", "False", "(1,)"), &[0; 20], "at byte 20: the elements are strings: `<U5`");
    says(&dictionary("'<M8[ns]'", "False", "(1,)"), &[0; 8], "at byte 20: the elements are dates or times");
    says(&dictionary("'|V16'", "False", "(1,)"), &[0; 16], "at byte 20: the elements are void bytes");
    says(
        &dictionary("'<f16'", "False", "(1,)"),
        &[0; 16],
        "at byte 20: the elements are of an unsupported type",
    );
    says(&dictionary("[('a', '<f4')]", "False", "(1,)"), &[0; 4], "at byte 20: the elements are records");
    says(&dictionary("'<i2'", "0", "(2,)"), &[0; 4], "at byte 44: expected True or False");
    says(&dictionary("'<i2'", "False", "(-2,)"), &[0; 4], "at byte 61: expected a dimension");
    says(&dictionary("'<i2'", "False", "[2]"), &[0; 4], "at byte 60: expected `(`");
    says("{'descr': '<i2', 'shape': (2,)}", &[0; 4], "at byte 10: the header has no key `fortran_order`");
    says("{'descr': '<i2', 'descr': '<i4'}", &[0; 4], "at byte 27: duplicate key `descr`");
    says("{'order': 1}", &[], "at byte 11: unknown key `order`");
    says("{'descr': '<i2}", &[], "at byte 20: the text has no end");
    says(
        "{'descr': '<i2', 'fortran_order': False, 'shape': ()} x",
        &[0; 2],
        "at byte 64: the header continues after",
    );
    says("", &[], "at byte 10: expected `{`");
    let deep = dictionary("'|i1'", "False", &format!("({})", "1,".repeat(13)));
    says(&deep, &[0], "at byte 85: the array has more than 12 dimensions");
    let long = dictionary("'|i1'", "False", "(99999999999999999999999,)");
    says(&long, &[0], "at byte 61: a dimension exceeds the address space");
    let large = dictionary("'<f8'", "False", "(4294967296, 4294967296)");
    says(&large, &[0], &format!("at byte {}: an array of shape", 10 + large.len()));
    let claimed = dictionary("'<f8'", "False", "(1000000000000,)");
    says(
        &claimed,
        &[0; 8],
        &format!(
            "at byte {}: the array's elements need 8000000000000 bytes, but only 8 follow",
            10 + claimed.len()
        ),
    );
    says(
        &dictionary("'|i1'", "False", "(2,)"),
        &[0; 3],
        "at byte 68: the array's elements need 2 bytes, but 3 follow\n  hint: a file contains one array",
    );
    says(&dictionary("'|b1'", "False", "(3,)"), &[0, 1, 2], "at byte 70: 2 is not a bool (0 or 1)");
}

#[test]
fn wrong_starts_are_explained() {
    let array = numpy::to_bytes(&TensorData::from([1.0f32]));
    for length in 0..array.len() {
        let found = problem(&array[..length]);
        assert!(found.contains("get it again"), "{length}: {found}");
    }
    assert!(problem(b"\x80\x04\x95").contains("looks like a pickle"));
    assert!(problem(PLAIN).contains("hint: it is a zip archive: `numpy::read_archive`"));
    assert!(
        problem(b"GIF89a..")
            .starts_with("at byte 0: is not a `.npy` file, which starts with \\x93NUMPY\n  hint: ")
    );
    assert!(
        problem(&npy(4, "{}", &[])).starts_with("at byte 6: unsupported format version 4.0; supported: 1.0")
    );
    let mut long = b"\x93NUMPY\x02\x00".to_vec();
    long.extend(u32::MAX.to_le_bytes());
    assert!(
        problem(&long).starts_with("at byte 8: the header is 4294967295 bytes long, more than the 65535")
    );
    assert!(archive_problem(array).contains("it is a single array: `numpy::read` reads it"));
    assert!(archive_problem(b"no zip".to_vec()).contains("is not a `.npz` file, which is a zip archive"));
    assert!(
        archive_problem(PLAIN[..PLAIN.len() - 30].to_vec()).contains("the file is truncated; get it again")
    );
    let folder = tempfile::tempdir().unwrap();
    let error = numpy::read(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("cannot read: not a regular file"), "{error}");
    let error = numpy::read(folder.path().join("absent.npy")).unwrap_err().to_string();
    assert!(error.contains("absent.npy: cannot read: "), "{error}");
    let path = folder.path().join("short.npy");
    fs::write(&path, b"\x93NUM").unwrap();
    let error = numpy::read(&path).unwrap_err().to_string();
    assert!(error.contains("short.npy: at byte 0: "), "{error}");
}

#[test]
fn archives_say_what_is_wrong() {
    let named = |names: &[&str]| -> Vec<(String, TensorData)> {
        names.iter().map(|name| ((*name).to_owned(), TensorData::from([1.0f32, 2.0]))).collect()
    };
    let good = numpy::archive_to_bytes(named(&["weight", "bias"]), Compression::Stored).unwrap();
    let archive = Archive::from_bytes(good.clone()).unwrap();
    let error = archive.read("wieght").unwrap_err().to_string();
    assert_eq!(error, "bytes in memory: no tensor `wieght` (there is `weight`)");
    let error = numpy::archive_to_bytes(named(&["x", "x"]), Compression::Stored).unwrap_err().to_string();
    assert_eq!(error, "bytes in memory: duplicate tensor name `x`");
    let long = "n".repeat(65_532);
    let error = numpy::archive_to_bytes(named(&[&long]), Compression::Stored).unwrap_err().to_string();
    assert!(error.contains("is longer than the 65531 bytes allowed"), "{error}");
    assert!(numpy::archive_to_bytes(named(&[&long[1..]]), Compression::Stored).is_ok());

    let changed = |place: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        archive_problem(bytes)
    };
    let first = 30 + "weight.npy".len();
    let list = good.windows(4).position(|part| part == b"PK\x01\x02").unwrap();
    assert!(
        changed(first + 128, 9).contains(&format!("at byte {first}: entry `weight.npy`: the checksum is "))
    );
    assert!(
        changed(first, 9).starts_with(&format!("at byte {first}: entry `weight.npy`: is not a `.npy` file"))
    );
    assert!(changed(30, b'h').starts_with("at byte 0: entry `weight.npy`: its own header has another name"));
    assert!(changed(0, 0).starts_with("at byte 0: entry `weight.npy`: no entry starts here"));
    assert!(changed(list, 0).starts_with(&format!("at byte {list}: no central directory entry starts here")));
    assert!(changed(list + 8, 1).starts_with(&format!("at byte {list}: entry `weight.npy` is encrypted")));
    assert!(changed(list + 10, 12).contains("entry `weight.npy` is compressed by method 12; only 0"));
    assert!(changed(list + 24, 1).contains("is stored, but declares 1 bytes in 136"));
    assert!(changed(list + 46, 0xFF).contains("an entry name is not UTF-8"));
    assert!(changed(good.len() - 12, 3).contains("the archive lists 2 entries, but counts 3"));
    assert!(changed(list + 42, 0xFF).contains("entry `weight.npy`: "));
    let other: Vec<u8> =
        [&good[..], b""].concat().iter().map(|&byte| if byte == b'y' { b'z' } else { byte }).collect();
    assert!(archive_problem(other).contains("the archive contains no array, but `weight.npz`"));

    let deflated = numpy::archive_to_bytes(named(&["weight"]), Compression::Deflated).unwrap();
    let mut broken = deflated.clone();
    broken[first] ^= 0xFF;
    let found = archive_problem(broken);
    assert!(
        found.starts_with(&format!("at byte {first}: entry `weight.npy`, decompressed byte ")),
        "{found}"
    );
}

#[test]
fn a_failed_write_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.npz");
    let one = [("x".to_owned(), TensorData::from([1.0f32]))];
    numpy::write_archive(&path, one.clone(), Compression::Stored).unwrap();
    let twice = [one[0].clone(), one[0].clone()];
    assert!(numpy::write_archive(&path, twice, Compression::Stored).is_err());
    assert_eq!(numpy::read_archive(&path).unwrap(), BTreeMap::from(one));
    assert!(numpy::write(folder.path().join("absent/x.npy"), &TensorData::from([1])).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// `cargo xtask test` runs this as the step `python` where Python has NumPy.
#[test]
#[ignore = "the step `python` runs it, where Python has NumPy"]
fn numpy_reads_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (name, compression) in [("stored", Compression::Stored), ("deflated", Compression::Deflated)] {
        numpy::write_archive(at(&format!("{name}.npz")), expected(), compression).unwrap();
    }
    let archive = Archive::from_bytes(ARRAYS.to_vec()).unwrap();
    for name in ["c8", "c16"] {
        let (real, imaginary) = archive.read_complex(&format!("c_{name}")).unwrap();
        numpy::write_complex(at(&format!("{name}.npy")), &real, &imaginary).unwrap();
    }
    numpy::write(at("scalar.npy"), &TensorData::scalar(-0.0f64)).unwrap();
    numpy::write(at("bf16.npy"), &TensorData::from([1.0f32, -2.5]).convert(DType::BF16)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/numpy/arrays.py");
    let status = Command::new("python3").arg(script).arg("check").arg(folder.path()).status().unwrap();
    assert!(status.success());
}
