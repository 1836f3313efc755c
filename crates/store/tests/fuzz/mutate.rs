//! Mutations of files.

/// Limit on the length of a mutated file in bytes, so that each case is fast.
const MAX_BYTES: usize = 1 << 18;

/// Integers that break bounds.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    1 << 32,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

/// Returns a file of the corpus with one to six mutations.
pub(crate) fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(6) {
        mutate(&mut bytes, corpus, random);
    }
    bytes.truncate(MAX_BYTES);
    bytes
}

fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    if bytes.is_empty() {
        bytes.push(random.below(256) as u8);
        return;
    }
    let at = random.below(bytes.len());
    match random.below(10) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.below(256) as u8,
        2 => bytes[at] = bytes[at].wrapping_add([1, 0xFF][random.below(2)]),
        // Half of the cuts are near the end, so that much of the file remains.
        3 if random.below(8) == 0 => bytes.truncate(at),
        3 => bytes.truncate(bytes.len() - random.below(16.min(bytes.len()))),
        4 => number(bytes, at, random),
        5 => {
            let end = (at + 1 + random.below(16)).min(bytes.len());
            bytes.drain(at..end);
        }
        6 => {
            let part = part(bytes, random).to_vec();
            bytes.splice(at..at, part);
        }
        7 => {
            let part = part(&corpus[random.below(corpus.len())], random).to_vec();
            let end = (at + part.len()).min(bytes.len());
            bytes.splice(at..end, part);
        }
        8 => {
            let part = part(&corpus[random.below(corpus.len())], random).to_vec();
            bytes.splice(at..at, part);
        }
        // Opcodes of pickles, digits and brackets of headers.
        _ => bytes[at] = b".(0N]}tRbuQ)q9{[\x81\x85\x93"[random.below(19)],
    }
}

/// Overwrites an integer of 2, 4 or 8 bytes, little- or big-endian.
fn number(bytes: &mut [u8], at: usize, random: &mut Random) {
    let size = [2, 4, 8][random.below(3)];
    let mut number = NUMBERS[random.below(NUMBERS.len())].to_le_bytes();
    if random.below(4) == 0 {
        number[..size].reverse();
    }
    for (byte, new) in bytes[at..].iter_mut().zip(&number[..size]) {
        *byte = *new;
    }
}

/// A short range of bytes.
fn part<'a>(bytes: &'a [u8], random: &mut Random) -> &'a [u8] {
    let start = random.below(bytes.len().max(1)).min(bytes.len());
    let end = (start + 1 + random.below(64)).min(bytes.len());
    &bytes[start..end]
}

/// SplitMix64 (Steele, Lea and Flood 2014).
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of a case.
    pub(crate) fn of(case: u64) -> Random {
        Random(case.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    /// A number below the bound, which is at least 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((number ^ (number >> 31)) % bound as u64) as usize
    }
}
