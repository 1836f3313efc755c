//! The random number generator that every engine shares.
//!
//! Philox4x32-10 ([Salmon et al. 2011](https://doi.org/10.1145/2063384.2063405), "Parallel random numbers: as easy as
//! 1, 2, 3") maps a counter and a key to four 32-bit words, with no state: any
//! element of a random tensor is computed on its own, so numbers do not depend on threads or engines.
//!
//! The layout of [`Op::Random`](crate::Op::Random), for the 64-bit key `k`: element `i` reads words of the blocks with
//! counter `[b, b >> 32, 0, 0]` and key `[k, k >> 32]`. Types of up to 32 bits take word `i % 4` of block `i / 4`;
//! 64-bit types take words `2 (i % 2)` (low) and `2 (i % 2) + 1` (high) of block `i / 2`. From a word `w`:
//!
//! * *bits*: `w` cut to the width of the dtype;
//! * *uniform*: the topmost 24 bits times 2⁻²⁴ (`f32`), 11 bits times 2⁻¹¹ (`f16`), 8 bits times 2⁻⁸ (`bf16`),
//!   53 of the 64 bits times 2⁻⁵³ (`f64`);
//! * *normal*: the Box–Muller transform in `f64`; elements `2j` and `2j + 1` share the words `w₀, w₁` of their pair:
//!   `u = (w₀ + 1) 2⁻³²`, `v = w₁ 2⁻³²`, `r = √(-2 ln u)`; the even element is `r cos 2πv`, the odd `r sin 2πv`.
//!   A pair `j` takes words `2 (j % 2)` and `2 (j % 2) + 1` of block `j / 2`, for every dtype, and the result is
//!   rounded to the dtype. Engines without `f64` compute in `f32`, which agrees to rounding.

macro_rules! philox {
    ($(#[$doc:meta])* $name:ident, $word:ty, $wide:ty, multipliers $m:expr, increments $w:expr) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(counter: [$word; 4], key: [$word; 2]) -> [$word; 4] {
            const MULTIPLIERS: [$word; 2] = $m;
            const INCREMENTS: [$word; 2] = $w;
            let halves = |product: $wide| ((product >> <$word>::BITS) as $word, product as $word);
            let (mut c, mut k) = (counter, key);
            for _ in 0..10 {
                let (a_high, a_low) = halves(c[0] as $wide * MULTIPLIERS[0] as $wide);
                let (b_high, b_low) = halves(c[2] as $wide * MULTIPLIERS[1] as $wide);
                c = [b_high ^ c[1] ^ k[0], b_low, a_high ^ c[3] ^ k[1], a_low];
                k = [k[0].wrapping_add(INCREMENTS[0]), k[1].wrapping_add(INCREMENTS[1])];
            }
            c
        }
    };
}

philox! {
    /// One block of Philox4x32-10: ten rounds over a counter and a key.
    philox4x32, u32, u64,
    multipliers [0xD251_1F53, 0xCD9E_8D57],
    increments [0x9E37_79B9, 0xBB67_AE85]
}

philox! {
    /// One block of Philox4x64-10, the same rounds over words of 64 bits: the generator of
    /// [NumPy](https://numpy.org/doc/stable/reference/random/bit_generators/philox.html). [`Op::Random`](crate::Op::Random)
    /// does not use it; the streams that NumPy publishes check the rounds.
    philox4x64, u64, u128,
    multipliers [0xD2E7_470E_E14C_6C93, 0xCA5A_8263_9512_1157],
    increments [0x9E37_79B9_7F4A_7C15, 0xBB67_AE85_84CA_A73B]
}

/// Block number `block` of the stream of a 64-bit key.
#[inline]
pub fn block(key: u64, block: u64) -> [u32; 4] {
    philox4x32([block as u32, (block >> 32) as u32, 0, 0], [key as u32, (key >> 32) as u32])
}

/// A new key from a key and a number: streams of different numbers are independent.
pub fn fold_in(key: u64, number: u64) -> u64 {
    let counter = [number as u32, (number >> 32) as u32, 0x6B65_7973, 1];
    let [low, high, ..] = philox4x32(counter, [key as u32, (key >> 32) as u32]);
    u64::from(low) | u64::from(high) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors that the authors publish with Random123.
    #[test]
    fn known_answers() {
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
    fn folded_keys_differ() {
        assert_ne!(fold_in(1, 0), fold_in(1, 1));
        assert_ne!(fold_in(1, 0), fold_in(2, 0));
    }
}
