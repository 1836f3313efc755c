//! Philox4x32-10, the counter-based generator behind every shuffle and draw in this crate.
//!
//! Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3",
//! SC'11. The 128-bit counter holds a block number and a stream number, so each (seed, stream) pair is a
//! sequence of its own: epoch `n` of a loader needs none of the epochs before it.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// What the numbers are for. Uses that share a seed must not share a sequence, or a dataset shuffled with
/// the loader's seed would be permuted twice by the same permutation.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// The order of a loader's epoch.
    Epoch(u64),
    /// The order of a `ShuffledDataset`.
    Shuffle,
    /// The draws of a `SamplerDataset`.
    Sample,
}

impl Purpose {
    /// Epochs below 2^56, which is all of them in practice, keep clear of the other purposes.
    fn stream(self) -> u64 {
        match self {
            Self::Epoch(epoch) => epoch,
            Self::Shuffle => 1 << 56,
            Self::Sample => 2 << 56,
        }
    }
}

/// A sequence of random numbers fixed by a seed and a purpose.
pub(crate) struct Philox {
    key: [u32; 2],
    stream: u64,
    block: u64,
    words: [u32; 4],
    used: usize,
}

impl Philox {
    pub(crate) fn new(seed: u64, purpose: Purpose) -> Self {
        Self { key: halves(seed), stream: purpose.stream(), block: 0, words: [0; 4], used: 4 }
    }

    /// A uniform number below `bound`, without bias. `bound` must not be 0.
    ///
    /// Source: D. Lemire, "Fast Random Integer Generation in an Interval", ACM TOMACS 29(1), 2019.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// A uniform number in `[0, 1)`, a multiple of 2^-53.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        let low = self.next_u32();
        u64::from(self.next_u32()) << 32 | u64::from(low)
    }

    fn next_u32(&mut self) -> u32 {
        if self.used == self.words.len() {
            let ([b0, b1], [s0, s1]) = (halves(self.block), halves(self.stream));
            self.words = philox4x32([b0, b1, s0, s1], self.key);
            self.block = self.block.wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }
}

/// A uniformly random order of `0..len` (Fisher and Yates, in Durstenfeld's form).
pub(crate) fn permutation(len: usize, seed: u64, purpose: Purpose) -> Vec<usize> {
    let mut random = Philox::new(seed, purpose);
    let mut order: Vec<usize> = (0..len).collect();
    for last in (1..len).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let first = halves(u64::from(MULTIPLIERS[0]) * u64::from(counter[0]));
        let second = halves(u64::from(MULTIPLIERS[1]) * u64::from(counter[2]));
        counter = [second[1] ^ counter[1] ^ key[0], second[0], first[1] ^ counter[3] ^ key[1], first[0]];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// Low word first.
fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the Random123 library.
    #[test]
    fn matches_the_published_vectors() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32(counter, key), expected);
        }
    }

    #[test]
    fn below_is_in_range_and_even() {
        let mut random = Philox::new(7, Purpose::Sample);
        let mut counts = [0u32; 6];
        for _ in 0..60_000 {
            counts[random.below(6) as usize] += 1;
        }
        // Six standard deviations of a binomial with p = 1/6 are about 550.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 550), "{counts:?}");
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn unit_is_half_open_and_centred() {
        let mut random = Philox::new(1, Purpose::Sample);
        let draws: Vec<f64> = (0..10_000).map(|_| random.unit()).collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn permutations_are_complete_and_differ_by_seed_and_purpose() {
        let order = permutation(100, 3, Purpose::Epoch(0));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        assert_eq!(order, permutation(100, 3, Purpose::Epoch(0)));
        assert_ne!(order, permutation(100, 4, Purpose::Epoch(0)));
        assert_ne!(order, permutation(100, 3, Purpose::Epoch(1)));
        assert_ne!(order, permutation(100, 3, Purpose::Shuffle));
        assert!(permutation(0, 3, Purpose::Shuffle).is_empty());
        assert_eq!(permutation(1, 3, Purpose::Shuffle), [0]);
    }

    #[test]
    fn every_order_of_three_is_equally_likely() {
        let mut counts = std::collections::HashMap::new();
        for seed in 0..6_000 {
            *counts.entry(permutation(3, seed, Purpose::Shuffle)).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| count.abs_diff(1_000) < 180), "{counts:?}");
    }
}
