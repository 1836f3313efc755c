//! A random generator seeded by a seed and a program number.

use kiln_ir::philox::{self, Words};

/// A random stream from Philox blocks. It is counter-based, so that any program can be regenerated alone.
#[derive(Clone, Debug)]
pub struct Random(Words);

impl Random {
    /// Returns the stream of a seed and a program number.
    pub fn new(seed: u64, number: u64) -> Random {
        Random(Words::new(philox::fold_in(seed, number), 0))
    }

    /// Returns 32 uniform bits.
    pub fn word(&mut self) -> u32 {
        self.0.word()
    }

    /// Returns 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }

    /// Returns a uniform number in `0..n`; 0 for an empty range. The bias of taking the upper bits of a product is
    /// below `n / 2³²`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.word()) * n as u64) >> 32) as usize
    }

    /// Returns a uniform number in `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// Returns true with a probability in percent.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a uniform number in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        f64::from(self.word()) / f64::from(u32::MAX) * (1.0 - f64::EPSILON)
    }

    /// Returns one of a list.
    ///
    /// # Panics
    /// When the list is empty.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Returns a random order of `0..n`.
    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn streams_are_reproducible_and_distinct() {
        let take = |seed, number| {
            let mut random = Random::new(seed, number);
            (0..9).map(|_| random.word()).collect::<Vec<_>>()
        };
        assert_eq!(take(1, 2), take(1, 2));
        assert_ne!(take(1, 2), take(1, 3));
        assert_ne!(take(1, 2), take(2, 2));
    }

    #[test]
    fn random_ranges_and_permutations() {
        let mut random = Random::new(3, 4);
        assert!((0..1000).all(|_| random.below(7) < 7 && (2..=5).contains(&random.between(2, 5))));
        let mut order = random.permutation(20);
        assert_ne!(order, (0..20).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..20).collect::<Vec<_>>());
    }
}
