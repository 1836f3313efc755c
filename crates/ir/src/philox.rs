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

/// One block: ten rounds over a counter and a key.
#[inline]
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c, mut k] = [counter, [key[0], key[1], 0, 0]];
    for _ in 0..10 {
        let a = u64::from(c[0]) * 0xD251_1F53;
        let b = u64::from(c[2]) * 0xCD9E_8D57;
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85), 0, 0];
    }
    c
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
