//! Fuzzing of the parsers with random bytes: no panic, no hang, no huge allocation.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use kiln_data::DataError;
use kiln_data::idx::IdxReader;

const LIMIT: u64 = 1 << 16;

/// G. Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8(14), 2003.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        let len = self.below(max + 1);
        (0..len).map(|_| self.next() as u8).collect()
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<u8>, DataError> {
    let reader = IdxReader::new("fuzz", bytes)?;
    let declared: u128 =
        reader.dims().iter().fold(1, |product, size| product.saturating_mul(u128::from(*size)));
    let elements = reader.read_elements(LIMIT)?;
    assert_eq!(elements.len() as u128, declared);
    Ok(elements)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A nearly valid file: small sizes, sometimes with the declared number of elements.
fn plausible(random: &mut Xorshift) -> Vec<u8> {
    let rank = random.below(4);
    let sizes: Vec<u32> = (0..rank).map(|_| random.below(5) as u32).collect();
    let count = sizes.iter().product::<u32>() as usize;
    let slack = random.below(4);
    let mut file = vec![0, 0, 8, rank as u8];
    file.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
    file.extend((0..(count + slack).saturating_sub(1)).map(|_| random.next() as u8));
    file
}

fn damage(random: &mut Xorshift, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        match random.below(3) {
            0 if !bytes.is_empty() => {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            1 => bytes.truncate(random.below(bytes.len() + 1)),
            _ => bytes.extend(random.bytes(4)),
        }
    }
}

#[test]
fn random_bytes() {
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20_000 {
        let mut bytes = random.bytes(64);
        let _ = parse(&bytes);
        for prefix in [&[0, 0, 8][..], &[0x1f, 0x8b], &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]] {
            bytes.splice(..prefix.len().min(bytes.len()), prefix.iter().copied());
            let _ = parse(&bytes);
        }
    }
}

#[test]
fn damaged_files() {
    let mut random = Xorshift(0x2545_f491_4f6c_dd1d);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..20_000 {
        let mut file = plausible(&mut random);
        if random.below(2) == 0 {
            file = gzip(&file);
        }
        damage(&mut random, &mut file);
        match parse(&file) {
            Ok(_) => good += 1,
            Err(error) => {
                bad += 1;
                assert!(error.to_string().starts_with("fuzz: "), "{error}");
                assert!(!matches!(error, DataError::Io { .. }), "damage passes for a disk error: {error}");
            }
        }
    }
    assert!(good > 1_000 && bad > 1_000, "{good} good, {bad} bad: the fuzzer is off the mark");
}
