//! The random number generator that every engine shares.
//!
//! Philox4x32-10 ([Salmon et al. 2011](https://doi.org/10.1145/2063384.2063405), "Parallel random numbers: as easy as
//! 1, 2, 3") maps a counter and a key to four 32-bit words, without state. Any element of a random tensor is computed
//! independently, so numbers do not depend on threads or engines.
//!
//! The layout of [`Op::Random`](crate::Op::Random), for the 64-bit key `k`: element `i` reads words of the blocks with
//! counter `[b, b >> 32, 0, 0]` and key `[k, k >> 32]`. Types of up to 32 bits use word `i % 4` of block `i / 4`.
//! 64-bit types use words `2 (i % 2)` (low) and `2 (i % 2) + 1` (high) of block `i / 2`. From a word `w`:
//!
//! * *bits*: `w` cut to the width of the dtype;
//! * *uniform*: the topmost 24 bits times 2⁻²⁴ (`f32`), 11 bits times 2⁻¹¹ (`f16`), 8 bits times 2⁻⁸ (`bf16`),
//!   53 of the 64 bits times 2⁻⁵³ (`f64`);
//! * *normal*: the Box–Muller transform in `f64`; elements `2j` and `2j + 1` share the words `w₀, w₁` of their pair:
//!   `u = (w₀ + 1) 2⁻³²`, `v = w₁ 2⁻³²`, `r = √(-2 ln u)`; the even element is `r cos 2πv`, the odd `r sin 2πv`.
//!   A pair `j` takes words `2 (j % 2)` and `2 (j % 2) + 1` of block `j / 2`, for every dtype, and the result is
//!   rounded to the dtype. Engines without `f64` compute in `f32`, which agrees to rounding.

/// Multipliers of the counter in each round of Philox4x32.
pub(crate) const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];

/// Increments of the key from round to round of Philox4x32.
pub(crate) const INCREMENTS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Rounds of both generators.
pub(crate) const ROUNDS: u32 = 10;

macro_rules! philox {
    ($(#[$doc:meta])* $name:ident, $word:ty, $wide:ty, multipliers $m:expr, increments $w:expr) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(counter: [$word; 4], key: [$word; 2]) -> [$word; 4] {
            let (multipliers, increments): ([$word; 2], [$word; 2]) = ($m, $w);
            let halves = |product: $wide| ((product >> <$word>::BITS) as $word, product as $word);
            let (mut c, mut k) = (counter, key);
            for _ in 0..ROUNDS {
                let (a_high, a_low) = halves(c[0] as $wide * multipliers[0] as $wide);
                let (b_high, b_low) = halves(c[2] as $wide * multipliers[1] as $wide);
                c = [b_high ^ c[1] ^ k[0], b_low, a_high ^ c[3] ^ k[1], a_low];
                k = [k[0].wrapping_add(increments[0]), k[1].wrapping_add(increments[1])];
            }
            c
        }
    };
}

philox! {
    /// One block of Philox4x32-10: ten rounds over a counter and a key.
    philox4x32, u32, u64,
    multipliers MULTIPLIERS,
    increments INCREMENTS
}

philox! {
    /// One block of Philox4x64-10, the same rounds over words of 64 bits: the generator of
    /// [NumPy](https://numpy.org/doc/stable/reference/random/bit_generators/philox.html). [`Op::Random`](crate::Op::Random)
    /// does not use it; the streams that NumPy publishes check the rounds.
    philox4x64, u64, u128,
    multipliers [0xD2E7_470E_E14C_6C93, 0xCA5A_8263_9512_1157],
    increments [0x9E37_79B9_7F4A_7C15, 0xBB67_AE85_84CA_A73B]
}

/// Returns block number `block` of the stream of a 64-bit key.
#[inline]
pub fn block(key: u64, block: u64) -> [u32; 4] {
    let [low, high] = halves(block);
    philox4x32([low, high, 0, 0], halves(key))
}

/// Derives a new key from a key and a number: streams of different numbers are independent.
pub fn fold_in(key: u64, number: u64) -> u64 {
    let [low, high] = halves(number);
    let [low, high, ..] = philox4x32([low, high, 0x6B65_7973, 1], halves(key));
    u64::from(low) | u64::from(high) << 32
}

/// The words of Philox4x32-10 in sequence: counter `[b, b >> 32, s, s >> 32]` for block `b` of stream `s`. Each pair of
/// key and stream is a separate sequence; stream 0 consists of the blocks of [`block`].
#[derive(Clone, Debug)]
pub struct Words {
    key: [u32; 2],
    stream: [u32; 2],
    block: u64,
    words: [u32; 4],
    used: usize,
}

impl Words {
    /// Returns the sequence of a key and a stream, from its first word on.
    pub fn new(key: u64, stream: u64) -> Words {
        Words { key: halves(key), stream: halves(stream), block: 0, words: [0; 4], used: 4 }
    }

    /// Returns the next 32 uniform bits.
    pub fn word(&mut self) -> u32 {
        if self.used == self.words.len() {
            let ([b0, b1], [s0, s1]) = (halves(self.block), self.stream);
            self.words = philox4x32([b0, b1, s0, s1], self.key);
            (self.block, self.used) = (self.block.wrapping_add(1), 0);
        }
        self.used += 1;
        self.words[self.used - 1]
    }
}

/// The low and the high word of a 64-bit number.
#[inline]
fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors published with Random123.
    #[test]
    fn known_answer_vectors() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox4x32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn word_sequences_are_consecutive_blocks() {
        let mut words = Words::new(7 << 40 | 3, 0);
        let drawn: [u32; 8] = core::array::from_fn(|_| words.word());
        assert_eq!([block(7 << 40 | 3, 0), block(7 << 40 | 3, 1)].as_flattened(), drawn);
        assert_eq!(Words::new(1, 2 << 32 | 5).word(), philox4x32([0, 0, 5, 2], [1, 0])[0]);
    }

    #[test]
    fn folded_keys_differ() {
        assert_ne!(fold_in(1, 0), fold_in(1, 1));
        assert_ne!(fold_in(1, 0), fold_in(2, 0));
    }
}
