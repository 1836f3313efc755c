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

    /// `count` numbers from -1 up to 1.
    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()
    }

    /// `count` numbers from 0 up to 1.
    pub fn positive_floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32).collect()
    }

    /// `count` numbers from 0 up to `below`.
    pub fn indices(&mut self, count: usize, below: u32) -> Vec<u32> {
        (0..count).map(|_| (self.next() % u64::from(below)) as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_data_is_in_range_and_reproducible() {
        let floats = Random::new(1).floats(10_000);
        assert!(floats.iter().all(|x| (-1.0..1.0).contains(x)));
        assert!(floats.iter().sum::<f32>().abs() < 300.0);
        assert!(Random::new(2).indices(1000, 7).iter().all(|&i| i < 7));
        assert_eq!(Random::new(3).positive_floats(4), Random::new(3).positive_floats(4));
    }
}
