//! Files that are made to run code, or to take memory or time.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use kiln_store::TensorSource;
use kiln_store::pytorch::{PyTorchFile, PyTorchOptions};

use crate::pytorch::{bytes, problem};

#[test]
fn calls_of_programs_are_refused() {
    for name in ["hostile", "hostile-legacy"] {
        let message = problem(bytes(name));
        assert!(message.contains("the global `posix.system` is not allowed"), "{message}");
        assert!(message.starts_with("at byte "), "{message}");
    }
    // GLOBAL, INST and STACK_GLOBAL.
    let pickles: [(&[u8], &str); 4] = [
        (b"\x80\x02cos\nsystem\nU\x02ls\x85R.", "at byte 2: pickle: the global `os.system`"),
        (b"\x80\x02(U\x02lsios\nsystem\n.", "at byte 7: pickle: the global `os.system`"),
        (
            b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R.",
            "at byte 14: pickle: the global `os.system`",
        ),
        (b"\x80\x02c__builtin__\neval\nU\x011\x85R.", "at byte 2: pickle: the global `__builtin__.eval`"),
    ];
    for (pickle, expected) in pickles {
        let message = problem(pickle.to_vec());
        assert!(message.starts_with(expected), "{message}");
        assert!(message.contains("nothing was run"), "{message}");
    }
}

#[test]
fn unknown_opcodes_and_underflow() {
    let pickles: [(&[u8], &str); 11] = [
        (b"\x80\x02\xFF.", "at byte 2: pickle: byte 0xff is not an opcode of pickles"),
        (b"\x80\x07.", "at byte 0: pickle: protocol 7 is newer than 5"),
        (b"\x80\x02.", "at byte 2: pickle: the stack has too few values"),
        (b"\x80\x02(.", "at byte 3: pickle: the stack has too few values"),
        (b"\x80\x02N(\x85.", "at byte 4: pickle: the stack has too few values"),
        (b"\x80\x02t.", "at byte 2: pickle: there is no mark"),
        (b"\x80\x02(NdN.", "at byte 4: pickle: a dict has a key without a value"),
        (b"\x80\x02NNa.", "at byte 4: pickle: values are added to None"),
        (b"\x80\x02NNb.", "at byte 4: pickle: the state of None is set"),
        (b"\x80\x02h\x05.", "at byte 2: pickle: memo 5 was not stored before"),
        (b"\x80\x02\x82\x01.", "at byte 2: pickle: extension codes"),
    ];
    for (pickle, expected) in pickles {
        let message = problem(pickle.to_vec());
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn giant_counts() {
    let largest = u64::MAX.to_le_bytes();
    // BINUNICODE8, BINBYTES8, BYTEARRAY8, LONG4 and BINUNICODE.
    for start in [&b"\x80\x05\x8d"[..], b"\x80\x05\x8e", b"\x80\x05\x96", b"\x80\x05\x8b", b"\x80\x05X"] {
        let mut pickle = start.to_vec();
        pickle.extend(largest);
        let message = problem(pickle);
        assert!(message.starts_with("at byte 2: pickle: an opcode needs "), "{message}");
        assert!(message.contains("the file is truncated"), "{message}");
    }
}

#[test]
fn nested_and_shared_values() {
    const DEPTH: usize = 200_000;
    let lists = [&b"\x80\x02"[..], &vec![b']'; DEPTH], &vec![b'a'; DEPTH - 1], b"."].concat();
    assert!(problem(lists).contains("the values are nested deeper than the 100 allowed"));
    let tuples = [&b"\x80\x02N"[..], &vec![0x85; DEPTH], b"."].concat();
    assert!(problem(tuples).contains("the values are nested deeper than the 100 allowed"));
    // Each tuple has the tuple before it twice: 2^64 values.
    let shared = [&b"\x80\x02)"[..], &b"2\x86".repeat(64), b"."].concat();
    assert!(problem(shared).contains("shared so that listing them takes too long"));
    let marks = [&b"\x80\x02"[..], &vec![b'('; DEPTH], b"."].concat();
    assert!(problem(marks).contains("too few values"));
    let tensor = with_view(&[2, 3], &[12, 4], 3);
    let end = tensor.windows(2).position(|two| two == b"s.").expect("the end of the values");
    let shared = [&tensor[..end], &b"2\x86".repeat(40), &tensor[end..]].concat();
    assert!(problem(shared).contains("shared so that listing them takes too long"));
    // A list that contains itself.
    let file = PyTorchFile::from_bytes(b"\x80\x02]q\0h\0aK\x01a.".to_vec()).unwrap();
    assert!(file.is_empty());
    assert_eq!(file.value("1").unwrap().unwrap().as_i64(), Some(1));
    // A list of the same long list many times.
    let long = [&b"\x80\x02]("[..], &vec![b'N'; 50_000], b"eq\0](", &b"h\0".repeat(50_000), b"e."].concat();
    assert!(problem(long).contains("takes too long"));
}

/// The offset of the central directory's entry of that name.
fn central(archive: &[u8], name: &str) -> usize {
    let is_entry = |&at: &usize| {
        archive[at..].starts_with(b"PK\x01\x02")
            && archive.get(at + 46..at + 46 + name.len()) == Some(name.as_bytes())
    };
    (0..archive.len() - 46).find(is_entry).expect("an entry")
}

fn field(archive: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(archive[at..at + 4].try_into().unwrap())
}

fn set(archive: &mut [u8], at: usize, number: u32) {
    archive[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

#[test]
fn overlapping_entries() {
    let mut archive = bytes("views");
    let (first, second) = (central(&archive, "views/data/0"), central(&archive, "views/data/1"));
    let offset = field(&archive, first + 42);
    set(&mut archive, second + 42, offset);
    let message = problem(archive);
    assert!(message.contains("entries `views/data/0` and `views/data/1` overlap"), "{message}");
    let mut archive = bytes("views");
    let size = field(&archive, first + 20) + 100;
    set(&mut archive, first + 20, size);
    set(&mut archive, first + 24, size);
    let message = problem(archive);
    assert!(
        message.contains("entry `views/data/0`: its bytes would overlap the entry at byte "),
        "{message}"
    );
}

#[test]
fn checksums() {
    let archive = bytes("views");
    let elements =
        archive.windows(4).position(|four| four == 7.5f32.to_le_bytes()).expect("an element of `base`");
    let mut damaged = archive.clone();
    damaged[elements] ^= 1;
    let file = PyTorchFile::from_bytes(damaged.clone()).unwrap();
    for name in ["base", "transposed"] {
        let error = file.read(name).unwrap_err().to_string();
        assert!(error.contains("storage `data/0`: the checksum is "), "{error}");
    }
    assert!(TensorSource::contents(&file, "base").is_err());
    assert!(file.verify().is_err());
    file.read("permuted").unwrap();
    let unverified =
        PyTorchFile::from_bytes_with(damaged, &PyTorchOptions::new().verify_checksums(false)).unwrap();
    unverified.read("base").unwrap();
    let mut damaged = archive.clone();
    let name = damaged.windows(4).position(|four| four == b"base").expect("a name");
    damaged[name] = b'c';
    let message = problem(damaged.clone());
    assert!(message.contains("entry `views/data.pkl`: the checksum is "), "{message}");
    // `torch.serialization.set_crc32_options(False)` writes 0 instead of the checksum.
    let entry = central(&damaged, "views/data.pkl");
    set(&mut damaged, entry + 16, 0);
    assert!(PyTorchFile::from_bytes(damaged).unwrap().names().any(|name| name == "case"));
}

/// An archive of one deflated entry `data.pkl`, which declares `size` bytes.
fn deflated(contents: &[u8], size: u32) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(contents).unwrap();
    let compressed = encoder.finish().unwrap();
    let mut shared = vec![20, 0, 0, 0, 8, 0, 0, 0, 0x21, 0];
    for number in [0, compressed.len() as u32, size] {
        shared.extend(number.to_le_bytes());
    }
    shared.extend([8, 0, 0, 0]);
    let mut archive = [&b"PK\x03\x04"[..], &shared, b"data.pkl", &compressed].concat();
    let start = archive.len() as u32;
    let entry = [&b"PK\x01\x02\x14\0"[..], &shared, &[0; 14], b"data.pkl"].concat();
    archive.extend(&entry);
    archive.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    archive.extend((entry.len() as u32).to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend([0, 0]);
    archive
}

#[test]
fn zip_bombs() {
    assert!(PyTorchFile::from_bytes(deflated(b"\x80\x02N.", 4)).unwrap().is_empty());
    let zeros = vec![b'N'; (64 << 20) + 1];
    let message = problem(deflated(&zeros, zeros.len() as u32));
    assert!(message.contains("declares 67108865 bytes, more than the 67108864 allowed"), "{message}");
    let message = problem(deflated(&zeros, 100));
    assert!(message.contains("contains more than its 100 declared bytes"), "{message}");
    let message = problem(deflated(b"\x80\x02N.", 5));
    assert!(message.contains("contains fewer than its 5 declared bytes"), "{message}");
    let values = problem(deflated(&vec![b']'; 16 << 20], 16 << 20));
    assert!(values.contains("the pickle has more than the 8388608 values allowed"), "{values}");
}

/// A pickle of one tensor with these lengths and strides over `views`' first storage of 24 elements.
fn with_view(lengths: &[u32], strides: &[u32], offset: u32) -> Vec<u8> {
    let ints = |numbers: &[u32]| {
        let mut text = b"(".to_vec();
        numbers.iter().for_each(|number| text.extend(format!("L{number}L\n").bytes()));
        text.push(b't');
        text
    };
    let mut pickle = b"\x80\x02}U\x01xctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x18tQ".to_vec();
    pickle.extend(format!("L{offset}L\n").bytes());
    pickle.extend(ints(lengths));
    pickle.extend(ints(strides));
    pickle.extend(b"\x89ccollections\nOrderedDict\n)RtRs.");
    let mut file =
        b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.".to_vec();
    file.extend(pickle);
    file.extend(b"\x80\x02]U\x010a.");
    file.extend(24u64.to_le_bytes());
    (0..24).for_each(|number| file.extend((number as f32).to_le_bytes()));
    file
}

/// The file of [`with_view`] with an argument for metadata: opcodes of a value.
fn with_metadata(value: &[u8]) -> Vec<u8> {
    let file = with_view(&[2], &[1], 1);
    let end = file.windows(5).position(|five| five == b")RtRs").expect("the end of the arguments");
    [&file[..end + 2], value, &file[end + 2..]].concat()
}

#[test]
fn metadata_of_tensors() {
    for (value, expected) in
        [(&b"N"[..], [1.0f32, 2.0]), (b"}", [1.0, 2.0]), (b"}(U\x03neg\x88u", [-1.0, -2.0])]
    {
        let file = PyTorchFile::from_bytes(with_metadata(value)).unwrap();
        assert_eq!(file.read("x").unwrap().to_vec::<f32>(), expected);
    }
    // A number, `{5: True}`, `{"neg": 1}`, and a conjugate of real numbers.
    for value in [&b"K\x05"[..], b"}(K\x05\x88u", b"}(U\x03negK\x01u", b"}(U\x04conj\x88u"] {
        let message = problem(with_metadata(value));
        assert!(message.contains("the arguments of a tensor are damaged"), "{message}");
    }
}

#[test]
fn giant_storages_of_legacy_files() {
    let good = with_view(&[2, 3], &[12, 4], 3);
    let count = good.len() - 24 * 4 - 8;
    for giant in [u64::MAX, 1 << 62, 1 << 40, 25] {
        let mut file = good.clone();
        file[count..count + 8].copy_from_slice(&giant.to_le_bytes());
        let message = problem(file);
        assert!(message.starts_with("at byte "), "{giant}: {message}");
    }
}

#[test]
fn giant_members_of_tar_archives() {
    let good = bytes("tar");
    for size in [b"77777777777", b"00077777777"] {
        let mut archive = good.clone();
        archive[124..135].copy_from_slice(size);
        // The checksum counts its own field as spaces.
        archive[148..156].fill(b' ');
        let sum: u32 = archive[..512].iter().map(|&byte| u32::from(byte)).sum();
        archive[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let message = problem(archive);
        assert!(message.starts_with("at byte "), "{message}");
    }
}

#[test]
fn views_out_of_bounds() {
    let file = PyTorchFile::from_bytes(with_view(&[2, 3], &[12, 4], 3)).unwrap();
    assert_eq!(file.read("x").unwrap().to_vec::<f32>(), [3.0, 7.0, 11.0, 15.0, 19.0, 23.0]);
    let message = problem(with_view(&[2, 3], &[12, 4], 4));
    assert!(
        message.contains(
            "a tensor of shape [2, 3], strides [12, 4] and offset 4 needs 100 bytes, but its storage `0` has 96"
        ),
        "{message}"
    );
    for (lengths, strides) in
        [(vec![u32::MAX; 3], vec![0; 3]), (vec![2; 13], vec![0; 13]), (vec![2], vec![1, 1])]
    {
        problem(with_view(&lengths, &strides, 0));
    }
    problem(with_view(&[u32::MAX; 2], &[u32::MAX; 2], u32::MAX));
    // An empty tensor reads nothing.
    assert!(
        PyTorchFile::from_bytes(with_view(&[0, 5], &[5, 1], 1000))
            .unwrap()
            .read("x")
            .unwrap()
            .elements()
            .is_empty()
    );
    // An expanded tensor takes no more than 64 MiB.
    let file = PyTorchFile::from_bytes(with_view(&[1 << 30], &[0], 0)).unwrap();
    let message = file.read("x").unwrap_err().to_string();
    assert!(message.contains("expands a storage of 96 bytes to 4294967296"), "{message}");
    let file = PyTorchFile::from_bytes(with_view(&[1 << 10], &[0], 5)).unwrap();
    assert_eq!(file.read("x").unwrap().to_vec::<f32>(), [5.0; 1 << 10]);
}
