//! Damaged and hostile files: errors that name the byte, and no panic.

use std::fs;
use std::panic;

use kiln_store::StoreError;
use kiln_store::gguf::{self, GgufFile, GgufTensor, HuggingFaceGguf, Metadata};
use kiln_tensor::TensorData;

use super::fixture;

/// Opens a file and reads everything in it.
fn read_all(bytes: Vec<u8>) -> Result<(), StoreError> {
    let file = GgufFile::from_bytes(bytes)?;
    for name in file.names() {
        let info = file.info(name).unwrap();
        if let Ok(contents) = file.contents(name) {
            assert_eq!(contents.into_data().unwrap().num_elements() == 0, info.shape.num_elements() == 0);
        }
    }
    let _ = gguf::config(&file);
    if let Ok(view) = HuggingFaceGguf::new(file) {
        use kiln_store::TensorSource;
        for name in view.names() {
            let _ = (view.info(name), view.contents(name).map(|contents| contents.into_data()));
        }
    }
    Ok(())
}

fn message(bytes: Vec<u8>) -> String {
    GgufFile::from_bytes(bytes).unwrap_err().to_string()
}

/// A file of two tensors of 32 bytes, `a` and `b`, and one integer.
fn small() -> Vec<u8> {
    let mut metadata = Metadata::new();
    metadata.insert("key", 7u32);
    let tensor = || GgufTensor::from(TensorData::from([1.0f32; 8]));
    gguf::to_bytes(&metadata, [("a".to_owned(), tensor()), ("b".to_owned(), tensor())]).unwrap()
}

/// Offsets in [`small`].
const TENSOR_COUNT: usize = 8;
const ENTRY_COUNT: usize = 16;
const KEY_LENGTH: usize = 24;
const VALUE_TYPE: usize = KEY_LENGTH + 8 + 3;
const FIRST_TENSOR: usize = VALUE_TYPE + 4 + 4;
const RANK: usize = FIRST_TENSOR + 8 + 1;
const DIMENSION: usize = RANK + 4;
const TENSOR_TYPE: usize = DIMENSION + 8;
const SECOND_TENSOR: usize = TENSOR_TYPE + 4 + 8;
const SECOND_OFFSET: usize = SECOND_TENSOR + 8 + 1 + 4 + 8 + 4;

fn patched(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = small();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn files_truncated_at_every_byte_are_refused() {
    for name in ["types.gguf", "llama.gguf", "big-endian.gguf"] {
        let whole = fs::read(fixture(name)).unwrap();
        let file = GgufFile::from_bytes(whole.clone()).unwrap();
        drop(file);
        // The last tensor ends within the padding of the file.
        for length in 1..whole.len() - 32 {
            let error = read_all(whole[..length].to_vec()).expect_err(&format!("{length} bytes of {name}"));
            assert!(error.to_string().contains("bytes in memory: at byte "), "{error}");
        }
    }
}

#[test]
fn giant_counts_are_refused_before_anything_is_allocated() {
    for giant in [u64::MAX, u64::MAX / 8, 1 << 40, 1 << 20] {
        let bytes = giant.to_le_bytes();
        let tensors = message(patched(TENSOR_COUNT, &bytes));
        assert!(tensors.contains(&format!("at byte 8: {giant} tensors do not fit the")), "{tensors}");
        let entries = message(patched(ENTRY_COUNT, &bytes));
        assert!(entries.contains(&format!("at byte 16: {giant} metadata entries do not fit")), "{entries}");
        let key = message(patched(KEY_LENGTH, &bytes));
        assert!(key.contains("at byte 32: a metadata key has bytes"), "{key}");
        let rows = message(patched(DIMENSION, &bytes));
        assert!(rows.contains("tensor `a`: "), "{rows}");
    }
    let rank = message(patched(RANK, &u32::MAX.to_le_bytes()));
    assert!(rank.contains("tensor `a` has 4294967295 dimensions, more than the 12 allowed"), "{rank}");
}

/// A file with one metadata entry of this type and these bytes, and no tensor.
fn with_value(code: u32, value: &[u8]) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(3u32.to_le_bytes());
    file.extend([0u64, 1, 1].iter().flat_map(|count| count.to_le_bytes()));
    file.push(b'k');
    file.extend(code.to_le_bytes());
    file.extend(value);
    file
}

#[test]
fn giant_and_deep_arrays_are_refused() {
    for code in 0..13u32 {
        for count in [u64::MAX, 1 << 60, 1 << 32, 1000] {
            let mut array = code.to_le_bytes().to_vec();
            array.extend(count.to_le_bytes());
            let error = message(with_value(9, &array));
            assert!(error.contains(&format!("at byte 41: {count} elements of `k` do not fit")), "{error}");
        }
    }
    let nested = |depth: usize| {
        let mut array = Vec::new();
        for _ in 0..depth {
            array.extend(9u32.to_le_bytes());
            array.extend(1u64.to_le_bytes());
        }
        array.extend(0u32.to_le_bytes());
        array.extend(0u64.to_le_bytes());
        with_value(9, &array)
    };
    assert!(GgufFile::from_bytes(nested(7)).is_ok());
    for depth in [8, 100, 100_000] {
        let error = message(nested(depth));
        assert!(error.contains("`k` has arrays nested deeper than 8 levels"), "{error}");
    }
}

#[test]
fn invalid_values_are_refused() {
    let error = message(with_value(7, &[2]));
    assert!(error.contains("at byte 37: `k` is a boolean of 2, not 0 or 1"), "{error}");
    let error = message(with_value(13, &[0; 8]));
    assert!(error.contains("`k` has a value of unknown type 13"), "{error}");
    let mut text = 2u64.to_le_bytes().to_vec();
    text.extend([b'a', 0xff]);
    let error = message(with_value(8, &text));
    assert!(error.contains("at byte 46: k is not UTF-8"), "{error}");
    let mut metadata = Metadata::new();
    metadata.insert("general.alignmenT", 48u32);
    let bytes = gguf::to_bytes(&metadata, []).unwrap();
    let at = bytes.iter().position(|&byte| byte == b'T').unwrap();
    let mut bytes = bytes;
    bytes[at] = b't';
    assert!(message(bytes).contains("`general.alignment` is 48, which is not a power of two"));
}

#[test]
fn overlapping_and_distant_tensors_are_refused() {
    let error = message(patched(SECOND_OFFSET, &0u64.to_le_bytes()));
    assert!(error.contains("tensors `a` and `b` overlap"), "{error}");
    let error = message(patched(SECOND_OFFSET, &16u64.to_le_bytes()));
    assert!(error.contains("tensor `b`: its offset 16 is not a multiple of the alignment 32"), "{error}");
    for far in [64u64, 1 << 40, u64::MAX - 31] {
        let error = message(patched(SECOND_OFFSET, &far.to_le_bytes()));
        assert!(error.contains("tensor `b`: its 32 bytes at offset"), "{error}");
    }
    let error = message(patched(DIMENSION, &16u64.to_le_bytes()));
    assert!(error.contains("overlap"), "{error}");
    let error = message(patched(TENSOR_TYPE, &2u32.to_le_bytes()));
    assert!(
        error.contains("rows of 8 elements are not whole blocks of 32 elements, as Q4_0 requires"),
        "{error}"
    );
    let unknown = GgufFile::from_bytes(patched(TENSOR_TYPE, &99u32.to_le_bytes())).unwrap();
    assert_eq!(unknown.info("a").unwrap().dtype_name, "type 99");
    assert!(unknown.contents("a").is_err());
}

#[test]
fn duplicate_names_are_refused() {
    let error = message(patched(SECOND_TENSOR + 8, b"a"));
    assert_eq!(error, "bytes in memory: duplicate tensor name `a`");
    let mut metadata = Metadata::new();
    metadata.insert("key1", 1u32);
    metadata.insert("key2", 1u32);
    let mut bytes = gguf::to_bytes(&metadata, []).unwrap();
    let at = bytes.iter().position(|&byte| byte == b'2').unwrap();
    bytes[at] = b'1';
    assert!(message(bytes).contains("duplicate metadata key `key1`"));
}

#[test]
fn other_files_are_named() {
    for (start, expected) in [
        (b"PK\x03\x04".as_slice(), "`Weights::open` detects the format"),
        (b"tjgg\x01\0\0\0", "a GGML file of before August 2023"),
        (b"GG", "the file is truncated"),
    ] {
        let error = message(start.to_vec());
        assert!(error.contains("is not a GGUF file") && error.contains(expected), "{error}");
    }
}

/// SplitMix64: <https://doi.org/10.1145/2714064.2660195>.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[test]
fn changed_bytes_never_panic() {
    let mut state = 1;
    for name in ["types.gguf", "llama.gguf", "gpt2.gguf", "big-endian.gguf", "split-00001-of-00003.gguf"] {
        let whole = fs::read(fixture(name)).unwrap();
        let header = whole.len().min(3000);
        for round in 0..3000 {
            let mut bytes = whole.clone();
            let at = if round < header { round } else { random(&mut state) as usize % header };
            let value = random(&mut state);
            match value % 4 {
                0 => bytes[at] ^= 0xff,
                1 => bytes[at] = (value >> 8) as u8,
                2 => bytes[at] = bytes[at].wrapping_add(1),
                _ => {
                    let end = (at + 8).min(bytes.len());
                    bytes[at..end].fill((value >> 8) as u8);
                }
            }
            let result = panic::catch_unwind(|| read_all(bytes).is_ok());
            assert!(result.is_ok(), "{name}: panic after a change at byte {at} ({value:#x})");
        }
    }
}
