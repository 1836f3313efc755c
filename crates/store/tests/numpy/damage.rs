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
