//! Files with random damage: reading them never panics, hangs or allocates more than their contents.

use kiln_store::numpy::{self, Archive, Compression};
use kiln_tensor::{DType, TensorData, TensorType};

const FILES: usize = 750;

/// Fragments of both formats to insert into files.
const PIECES: [&[u8]; 10] = [
    b"{",
    b"}",
    b"(",
    b"9999999999",
    b"'",
    b", ",
    b"PK\x05\x06",
    b"PK\x01\x02",
    b"\xFF\xFF\xFF\xFF",
    b"\0\0\0\0",
];

#[test]
fn damaged_arrays() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let good = [
        numpy::to_bytes(&TensorData::from([[1.5f32, 2.0], [3.0, 4.0]])),
        numpy::to_bytes(&TensorData::from([true, false, true])),
        numpy::complex_to_bytes(&TensorData::from([1.0f64]), &TensorData::from([2.0f64])).unwrap(),
    ];
    let mut read = 0;
    for round in 0..FILES {
        let mut bytes = good[round % good.len()].clone();
        for _ in 0..=random.below(3) {
            // Most damage hits the header text.
            damage(&mut bytes, 80, &mut random);
        }
        if let Ok(data) = numpy::from_bytes(&bytes) {
            assert!(data.bytes().len() <= bytes.len());
            read += 1;
        }
        if let Ok((real, imaginary)) = numpy::complex_from_bytes(&bytes) {
            assert_eq!(real.ty(), imaginary.ty());
            read += 1;
        }
    }
    assert!(read > 0, "some damage does no harm");
}

#[test]
fn damaged_archives() {
    let mut random = Random(0xD1B5_4A32_D192_ED03);
    let arrays = || {
        let zeros = TensorData::zeros(TensorType::new([64, 64], DType::F32));
        [("x", TensorData::from([[1i64, 2], [3, 4]])), ("zeros", zeros)]
            .map(|(name, data)| (name.to_owned(), data))
    };
    let good = [
        numpy::archive_to_bytes(arrays(), Compression::Stored).unwrap(),
        numpy::archive_to_bytes(arrays(), Compression::Deflated).unwrap(),
    ];
    for round in 0..FILES {
        let mut bytes = good[round % 2].clone();
        for _ in 0..=random.below(3) {
            let end = bytes.len();
            let mut tail = bytes.split_off(end.saturating_sub(if random.below(2) == 0 { end } else { 180 }));
            damage(&mut tail, 200, &mut random);
            bytes.extend(tail);
        }
        let Ok(archive) = Archive::from_bytes(bytes) else { continue };
        for name in archive.names() {
            let ty = archive.ty(name);
            if let Ok(data) = archive.read(name) {
                assert_eq!(data.ty(), ty.unwrap());
                // The checksum matches, so these are the original numbers.
                let known = arrays().into_iter().find(|(_, known)| known.ty() == data.ty());
                assert_eq!(data, known.expect("one of the arrays").1);
            }
        }
    }
}

#[test]
fn archives_truncated_at_every_byte_are_refused() {
    for compression in [Compression::Stored, Compression::Deflated] {
        let good = numpy::archive_to_bytes(small(), compression).unwrap();
        for length in 0..good.len() {
            let error = Archive::from_bytes(good[..length].to_vec()).unwrap_err().to_string();
            assert!(error.starts_with("bytes in memory: at byte "), "{length}: {error}");
        }
    }
}

fn small() -> [(String, TensorData); 2] {
    [("x", vec![1.0f32; 300]), ("y", vec![2.0; 3])]
        .map(|(name, values)| (name.to_owned(), TensorData::from(values)))
}

/// Reads the array `x` after a change of the first entry's compressed and uncompressed size in the directory.
fn resized(compression: Compression, change: impl Fn([u32; 2]) -> [u32; 2]) -> String {
    let mut bytes = numpy::archive_to_bytes(small(), compression).unwrap();
    let list = bytes.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    let field = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let sizes = change([field(list + 20), field(list + 24)]);
    for (at, size) in [list + 20, list + 24].into_iter().zip(sizes) {
        bytes[at..at + 4].copy_from_slice(&size.to_le_bytes());
    }
    let read = Archive::from_bytes(bytes).and_then(|archive| archive.read("x").map(drop));
    let error = read.unwrap_err().to_string();
    assert!(error.starts_with("bytes in memory: at byte "), "{error}");
    error
}

#[test]
fn sizes_that_an_entry_does_not_have_are_refused() {
    const GIANT: u32 = u32::MAX - 1;
    let stored = resized(Compression::Stored, |_| [GIANT; 2]);
    assert!(stored.contains("more than precede the central directory"), "{stored}");
    let bomb = resized(Compression::Deflated, |[compressed, _]| [compressed, GIANT]);
    assert!(bomb.contains("above deflate's maximum ratio"), "{bomb}");
    let overlapping = resized(Compression::Stored, |sizes| sizes.map(|size| size + 8));
    assert!(overlapping.contains("its bytes would overlap the entry at byte "), "{overlapping}");
    for more in [-1, 1] {
        resized(Compression::Deflated, |[compressed, size]| [compressed, size.wrapping_add_signed(more)]);
    }
}

fn damage(bytes: &mut Vec<u8>, start: usize, random: &mut Random) {
    let place = random.below(bytes.len().min(start).max(1)).min(bytes.len());
    match random.below(6) {
        0 if place < bytes.len() => bytes[place] ^= 1 << random.below(8),
        1 => bytes.truncate(random.below(bytes.len() + 1)),
        2 => drop(bytes.splice(place..place, PIECES[random.below(PIECES.len())].iter().copied())),
        3 => drop(bytes.drain(place..(place + random.below(20)).min(bytes.len()))),
        4 => {
            let piece = PIECES[random.below(PIECES.len())];
            let end = (place + piece.len()).min(bytes.len());
            drop(bytes.splice(place..end, piece.iter().copied()));
        }
        _ => bytes.push(random.below(256) as u8),
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
