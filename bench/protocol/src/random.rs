//! Random numbers for inputs. Peers use their own generators if they have one; these are for inputs that must be equal.

/// Pseudo-random numbers, SplitMix64 ([Steele et al. 2014](https://doi.org/10.1145/2714064.2660195)).
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// `count` numbers from 0 up to `below`.
    pub fn indices(&mut self, count: usize, below: u32) -> Vec<u32> {
        (0..count).map(|_| (self.next() % u64::from(below)) as u32).collect()
    }

    /// `count` numbers from 0 up to `below`, for tensors of integers.
    pub fn integers(&mut self, count: usize, below: usize) -> Vec<i32> {
        self.indices(count, below as u32).into_iter().map(|index| index as i32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_data_is_in_range_and_reproducible() {
        assert!(Random::new(2).indices(1000, 7).iter().all(|&i| i < 7));
        assert_eq!(Random::new(3).integers(4, 1000), Random::new(3).integers(4, 1000));
    }
}
