//! Random numbers of sampling.

/// SplitMix64 ([Steele et al. 2014](https://doi.org/10.1145/2714064.2660195)): small, and the same on every machine.
#[derive(Clone, Debug)]
pub(super) struct SplitMix64 {
    state: u64,
}

const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

impl SplitMix64 {
    /// Returns the generator of a stream: streams of one seed are independent.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut of_stream = SplitMix64 { state: stream };
        SplitMix64 { state: seed ^ of_stream.next() }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(INCREMENT);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in [0, 1), uniformly, with 53 bits.
    pub(super) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
