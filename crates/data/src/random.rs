//! Random number sequences for shuffling and sampling.
//!
//! They are streams of the generator [`kiln_ir::philox`]. Each pair of seed and stream is an independent sequence:
//! epoch `n` of a loader does not depend on previous epochs.

use kiln_ir::philox::Words;

/// The purpose of a random sequence. Purposes with the same seed must have different sequences. Otherwise a dataset
/// shuffled with the loader's seed would be permuted twice by the same permutation.
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
    /// Epochs below 2^56 do not overlap with the other purposes.
    fn stream(self) -> u64 {
        match self {
            Self::Epoch(epoch) => epoch,
            Self::Shuffle => 1 << 56,
            Self::Sample => 2 << 56,
        }
    }
}

/// Returns the order in which a [`DataLoader`](crate::DataLoader) visits the items of an epoch: ascending without
/// shuffling, otherwise a permutation that depends on the seed and the epoch.
///
/// ```
/// assert_eq!(kiln_data::epoch_order(3, None, 5), [0, 1, 2]);
/// assert_ne!(kiln_data::epoch_order(100, Some(7), 0), kiln_data::epoch_order(100, Some(7), 1));
/// ```
pub fn epoch_order(len: usize, shuffle: Option<u64>, epoch: u64) -> Vec<usize> {
    match shuffle {
        Some(seed) => permutation(len, seed, Purpose::Epoch(epoch)),
        None => (0..len).collect(),
    }
}

/// A sequence of random numbers determined by a seed and a purpose.
pub(crate) struct Random(Words);

impl Random {
    pub(crate) fn new(seed: u64, purpose: Purpose) -> Self {
        Self(Words::new(seed, purpose.stream()))
    }

    /// Returns a uniform integer below `bound`, without bias. `bound` must not be 0.
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

    /// Returns a uniform value in `[0, 1)`, a multiple of 2^-53.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        let low = self.0.word();
        u64::from(self.0.word()) << 32 | u64::from(low)
    }
}

/// A uniformly random permutation of `0..len` (Fisher-Yates shuffle in Durstenfeld's form).
pub(crate) fn permutation(len: usize, seed: u64, purpose: Purpose) -> Vec<usize> {
    let mut random = Random::new(seed, purpose);
    let mut order: Vec<usize> = (0..len).collect();
    for last in (1..len).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_is_in_range_and_uniform() {
        let mut random = Random::new(7, Purpose::Sample);
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
        let mut random = Random::new(1, Purpose::Sample);
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
