//! Damaged files of Flax and Burn are errors.

use std::fs;

use kiln_store::Weights;
use kiln_store::burn::{BurnRecordFile, BurnpackFile};
use kiln_store::flax::FlaxFile;

use crate::weights::fixture;

const FILES: [&str; 8] = [
    "flax/net.msgpack",
    "flax/chunked.msgpack",
    "flax/complex.msgpack",
    "burn/linear.bpk",
    "burn/unpadded.bpk",
    "burn/record-15.mpk",
    "burn/record-15-f16.mpk.gz",
    "burn/record-13.mpk",
];

/// Reads all tensors, by every reader: nothing may panic.
fn read_all(bytes: &[u8]) -> usize {
    let opened = [
        FlaxFile::from_bytes(bytes.to_vec()).map(Weights::from_source),
        BurnpackFile::from_bytes(bytes.to_vec()).map(Weights::from_source),
        BurnRecordFile::from_bytes(bytes.to_vec()).map(Weights::from_source),
    ];
    let mut read = 0;
    for weights in opened.into_iter().flatten() {
        read += weights.names().into_iter().filter(|name| weights.read(name).is_ok()).count();
    }
    read
}

#[test]
fn a_file_that_ends_early_is_an_error() {
    for name in FILES {
        let bytes = fs::read(fixture(name)).unwrap();
        assert!(read_all(&bytes) > 0, "{name}");
        for length in 0..bytes.len() {
            // The last bytes of a gzip file are its checksum.
            assert_eq!(read_all(&bytes[..length]), 0, "{name} cut off at {length}");
        }
    }
}

#[test]
fn changed_bytes_never_panic() {
    for name in FILES {
        let bytes = fs::read(fixture(name)).unwrap();
        for position in 0..bytes.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[position] ^= change;
                read_all(&changed);
            }
        }
    }
}

fn flax_error(bytes: &[u8]) -> String {
    FlaxFile::from_bytes(bytes.to_vec()).unwrap_err().to_string()
}

#[test]
fn counts_and_depths_are_bounded() {
    let deep = [&[0x91; 100_000][..], &[0xc0]].concat();
    assert!(flax_error(&deep).contains("levels deep"), "{}", flax_error(&deep));
    // A map, an array and binary data of 4,294,967,295 elements.
    for marker in [0xdf, 0xdd, 0xc6] {
        let error = flax_error(&[b"\x81\xa1x".as_slice(), &[marker, 0xff, 0xff, 0xff, 0xff]].concat());
        assert!(error.contains("at byte"), "{error}");
    }
    let many = [&[0x81, 0xa1, b'x', 0xdd, 0, 0x20, 0, 0][..], vec![0xc0; 0x20_0000].as_slice()].concat();
    assert!(flax_error(&many).contains("more than 1048576 values"), "{}", flax_error(&many));
    assert!(
        flax_error(b"\x81\xa1x\xc1").contains("at byte 3: the byte 0xc1"),
        "{}",
        flax_error(b"\x81\xa1x\xc1")
    );
    assert!(flax_error(b"\x81\xa1x\xd4\x07\x00").contains("extension type 7"));
    assert!(flax_error(b"\x01").contains("not a map"));
}

/// A map, an array and binary data of 4,294,967,295 elements in a record.
#[test]
fn giant_counts_of_records_are_refused() {
    let good = fs::read(fixture("burn/record-15.mpk")).unwrap();
    for marker in [0xdf, 0xdd, 0xc6] {
        let elements = good.windows(2).position(|two| two == b"\xc4\x18").unwrap();
        for at in [0, elements] {
            let mut bytes = good.clone();
            bytes[at] = marker;
            bytes[at + 1..at + 5].fill(0xff);
            let error = BurnRecordFile::from_bytes(bytes).unwrap_err().to_string();
            assert!(error.contains("at byte "), "{marker:#x} at {at}: {error}");
        }
    }
}

#[test]
fn burnpacks_with_wrong_ranges_are_refused() {
    let good = fs::read(fixture("burn/unpadded.bpk")).unwrap();
    let refuse = |change: &dyn Fn(&mut Vec<u8>), expected: &str| {
        let mut bytes = good.clone();
        change(&mut bytes);
        let error = BurnpackFile::from_bytes(bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refuse(&|bytes| bytes[4] = 2, "has version 2; supported: 1");
    refuse(&|bytes| bytes[6..10].copy_from_slice(&[0xff; 4]), "the metadata has bytes 10..");
    refuse(&|bytes| bytes.push(0), "metadata declare");
    // The offsets of `linear.weight` are 0..24, those of `linear.bias` 24..28.
    let find = |needle: &[u8]| good.windows(needle.len()).position(|window| window == needle).unwrap();
    let offsets = find(b"\x82\x18\x18\x18\x1c");
    refuse(&|bytes| bytes[offsets + 2] = 0x17, "tensors `linear.weight` and `linear.bias` overlap");
    refuse(&|bytes| bytes[offsets + 2] = 0x19, "`linear.bias` is f16[2] but has 3 bytes");
    refuse(&|bytes| bytes[offsets + 4] = 0x17, "tensor `linear.bias` has bytes 24..23");
    let weight = find(b"\x82\x00\x18\x18");
    refuse(&|bytes| bytes[weight + 3] = 0x1a, "overlap");
}
