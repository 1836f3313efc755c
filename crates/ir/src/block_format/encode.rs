//! Encoding of numbers as blocks: quantization by rounding to the nearest.
//!
//! Formats of 32 elements with one linear scale use the scale that the greatest element fixes, like ggml's reference
//! quantization. All others search the scales with the least weighted squared error. The weight of an element is its
//! magnitude plus the root mean square of its group.

mod search;

use half::f16;

use self::search::{Affine, Symmetric};
use super::BlockFormat;

const NONLINEAR: [i8; 16] = BlockFormat::NONLINEAR;

impl BlockFormat {
    /// Encodes `values` as blocks, rounding to the nearest.
    ///
    /// The bytes of [`Q4_0`](BlockFormat::Q4_0), [`Q4_1`](BlockFormat::Q4_1), [`Q5_0`](BlockFormat::Q5_0),
    /// [`Q5_1`](BlockFormat::Q5_1), [`Q8_0`](BlockFormat::Q8_0) and [`Q8_K`](BlockFormat::Q8_K) are those of ggml's
    /// reference quantization. The scales of the other formats result from a search for the least weighted squared
    /// error, which takes some 20 times as long.
    ///
    /// NaN becomes 0. Numbers beyond ±65,504, the greatest of the 16-bit scales, become ±65,504, so all blocks decode
    /// to finite numbers. Zeros decode to zeros.
    ///
    /// # Panics
    ///
    /// If `blocks` is not a whole number of blocks, or `values` does not have as many elements as they hold.
    pub fn encode(self, values: &[f32], blocks: &mut [u8]) {
        self.check(blocks.len(), values.len());
        match self {
            BlockFormat::Q4_0 => each(values, blocks, q4_0),
            BlockFormat::Q4_1 => each(values, blocks, q4_1),
            BlockFormat::Q5_0 => each(values, blocks, q5_0),
            BlockFormat::Q5_1 => each(values, blocks, q5_1),
            BlockFormat::Q8_0 => each(values, blocks, q8_0),
            BlockFormat::Q2_K => each(values, blocks, q2_k),
            BlockFormat::Q3_K => each(values, blocks, q3_k),
            BlockFormat::Q4_K => each(values, blocks, q4_k),
            BlockFormat::Q5_K => each(values, blocks, q5_k),
            BlockFormat::Q6_K => each(values, blocks, q6_k),
            BlockFormat::Q8_K => each(values, blocks, q8_k),
            BlockFormat::IQ4_NL => each(values, blocks, iq4_nl),
            BlockFormat::IQ4_XS => each(values, blocks, iq4_xs),
        }
    }
}

fn each<const BYTES: usize, const LEN: usize>(
    values: &[f32],
    blocks: &mut [u8],
    encode: impl Fn(&[f32; LEN], &mut [u8; BYTES]),
) {
    let (values, blocks) = (values.as_chunks().0, blocks.as_chunks_mut().0);
    values.iter().zip(blocks).for_each(|(values, block)| encode(&values.map(finite), block));
}

/// A number within the range of `f16`.
fn finite(x: f32) -> f32 {
    const GREATEST: f32 = f16::MAX.to_f32_const();
    if x.is_nan() { 0.0 } else { x.clamp(-GREATEST, GREATEST) }
}

/// Writes a number in half precision, and returns the rounded number.
fn put_half(block: &mut [u8], offset: usize, x: f32) -> f32 {
    let rounded = f16::from_f32(x);
    block[offset..offset + 2].copy_from_slice(&rounded.to_le_bytes());
    rounded.to_f32()
}

/// `1 / x`, or 0 of 0.
fn reciprocal(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// The first element of the greatest magnitude, with its sign.
fn greatest(values: &[f32]) -> f32 {
    let larger = |most: f32, &x: &f32| if x.abs() > most.abs() { x } else { most };
    values.iter().fold(0.0, larger)
}

fn least_and_most(values: &[f32; 32]) -> (f32, f32) {
    let wider = |(least, most): (f32, f32), &x: &f32| {
        (if x < least { x } else { least }, if x > most { x } else { most })
    };
    values.iter().fold((values[0], values[0]), wider)
}

/// Writes 32 4-bit integers: two of a distance of 16 a byte.
fn put_nibbles(levels: &[u8; 32], bytes: &mut [u8]) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = levels[i] & 15 | levels[i + 16] << 4;
    }
}

/// Writes 32 5-bit integers: the fifth bits, then the lower bits.
fn put_five_bits(levels: &[u8; 32], bytes: &mut [u8]) {
    let fifth = |bits: u32, (i, &level): (usize, &u8)| bits | u32::from(level >> 4) << i;
    let fifths = levels.iter().enumerate().fold(0, fifth);
    bytes[..4].copy_from_slice(&fifths.to_le_bytes());
    put_nibbles(levels, &mut bytes[4..]);
}

// Casts of floats to integers saturate, so the levels of elements beyond the scale are the outermost.

fn q4_0(values: &[f32; 32], block: &mut [u8; 18]) {
    let scale = greatest(values) / -8.0;
    let inverse = reciprocal(scale);
    put_half(block, 0, scale);
    put_nibbles(&values.map(|x| ((x * inverse + 8.5) as u8).min(15)), &mut block[2..]);
}

fn q4_1(values: &[f32; 32], block: &mut [u8; 20]) {
    let (least, most) = least_and_most(values);
    let scale = (most - least) / 15.0;
    let inverse = reciprocal(scale);
    put_half(block, 0, scale);
    put_half(block, 2, least);
    put_nibbles(&values.map(|x| (((x - least) * inverse + 0.5) as u8).min(15)), &mut block[4..]);
}

fn q5_0(values: &[f32; 32], block: &mut [u8; 22]) {
    let scale = greatest(values) / -16.0;
    let inverse = reciprocal(scale);
    put_half(block, 0, scale);
    put_five_bits(&values.map(|x| ((x * inverse + 16.5) as u8).min(31)), &mut block[2..]);
}

fn q5_1(values: &[f32; 32], block: &mut [u8; 24]) {
    let (least, most) = least_and_most(values);
    let scale = (most - least) / 31.0;
    let inverse = reciprocal(scale);
    put_half(block, 0, scale);
    put_half(block, 2, least);
    put_five_bits(&values.map(|x| (((x - least) * inverse + 0.5) as u8).min(31)), &mut block[4..]);
}

fn q8_0(values: &[f32; 32], block: &mut [u8; 34]) {
    let scale = greatest(values).abs() / 127.0;
    let inverse = reciprocal(scale);
    put_half(block, 0, scale);
    for (byte, x) in block[2..].iter_mut().zip(values) {
        *byte = from_zero(x * inverse) as u8;
    }
}

/// The nearest integer, ties away from zero.
fn from_zero(x: f32) -> i8 {
    let truncated = x as i8;
    truncated.saturating_add((2.0 * (x - f32::from(truncated))) as i8)
}

fn q8_k(values: &[f32; 256], block: &mut [u8; 292]) {
    let most = greatest(values);
    let inverse = if most == 0.0 { 0.0 } else { -127.0 / most };
    block[..4].copy_from_slice(&reciprocal(inverse).to_le_bytes());
    let (bytes, sums) = block[4..].split_at_mut(256);
    let groups = values.as_chunks::<16>().0.iter().zip(bytes.as_chunks_mut::<16>().0);
    for ((values, bytes), sum) in groups.zip(sums.as_chunks_mut::<2>().0) {
        let levels = values.map(|x| search::nearest(x * inverse) as i8);
        *bytes = levels.map(|level| level as u8);
        *sum = levels.into_iter().map(i16::from).sum::<i16>().to_le_bytes();
    }
}

fn q2_k(values: &[f32; 256], block: &mut [u8; 84]) {
    let groups = values.as_chunks::<16>().0;
    let fits: [Affine; 16] = core::array::from_fn(|group| Affine::search(&groups[group], 3.0));
    let (d, dmin) = Affine::units(&fits, 15.0);
    let (d, dmin) = (put_half(block, 80, d), put_half(block, 82, dmin));
    block[16..80].fill(0);
    for (group, values) in groups.iter().enumerate() {
        let (scale, minimum) = fits[group].rounded(d, dmin, 15.0);
        block[group] = scale | minimum << 4;
        let levels = Affine::levels(values, d * f32::from(scale), dmin * f32::from(minimum), 3.0);
        put_two_bits(&levels, group, &mut block[16..80]);
    }
}

/// Adds the 2 lower bits of a group of 16 elements to 64 bytes of zeros.
fn put_two_bits(levels: &[u8; 16], group: usize, bytes: &mut [u8]) {
    let (start, shift) = (group / 8 * 32 + group % 2 * 16, group % 8 / 2 * 2);
    for (byte, level) in bytes[start..].iter_mut().zip(levels) {
        *byte |= (level & 3) << shift;
    }
}

fn q3_k(values: &[f32; 256], block: &mut [u8; 110]) {
    let groups = values.as_chunks::<16>().0;
    let scales: [f32; 16] = core::array::from_fn(|group| Symmetric::scale(&groups[group], 4.0));
    let d = put_half(block, 108, greatest(&scales) / -32.0);
    block[..108].fill(0);
    for (group, values) in groups.iter().enumerate() {
        let scale = search::level(scales[group] * reciprocal(d), -32.0, 31.0);
        let levels = Symmetric::levels(values, d * f32::from(scale), 4.0).map(|level| (level + 4) as u8);
        put_q3_k_scale((scale + 32) as u8, group, &mut block[96..108]);
        put_two_bits(&levels, group, &mut block[32..96]);
        for (byte, level) in block[group % 2 * 16..].iter_mut().zip(&levels) {
            *byte |= (level >> 2) << (group / 2);
        }
    }
}

/// Adds the 6-bit scale of a group to 12 bytes of zeros.
fn put_q3_k_scale(scale: u8, group: usize, bytes: &mut [u8]) {
    bytes[group % 8] |= (scale & 15) << (group / 8 * 4);
    bytes[8 + group % 4] |= (scale >> 4) << (group / 4 * 2);
}

fn q4_k(values: &[f32; 256], block: &mut [u8; 144]) {
    let (head, bytes) = block.split_at_mut(16);
    let levels = scaled_groups(values, head, 15.0);
    put_pairs(&levels, bytes);
}

fn q5_k(values: &[f32; 256], block: &mut [u8; 176]) {
    let (head, bytes) = block.split_at_mut(16);
    let levels = scaled_groups(values, head, 31.0);
    let (fifths, bytes) = bytes.split_at_mut(32);
    put_pairs(&levels, bytes);
    for (i, fifth) in fifths.iter_mut().enumerate() {
        let bit = |bits: u8, (group, levels): (usize, &[u8; 32])| bits | (levels[i] >> 4) << group;
        *fifth = levels.iter().enumerate().fold(0, bit);
    }
}

/// The levels of 8 groups of 32 elements, of [`BlockFormat::Q4_K`] and [`BlockFormat::Q5_K`]. Writes the first 16
/// bytes of the block: the scales of scales and minima, and these in 6 bits.
fn scaled_groups(values: &[f32; 256], head: &mut [u8], most: f32) -> [[u8; 32]; 8] {
    let groups = values.as_chunks::<32>().0;
    let fits: [Affine; 8] = core::array::from_fn(|group| Affine::search(&groups[group], most));
    let (d, dmin) = Affine::units(&fits, 63.0);
    let (d, dmin) = (put_half(head, 0, d), put_half(head, 2, dmin));
    let packed = &mut head[4..];
    packed.fill(0);
    core::array::from_fn(|group| {
        let (scale, minimum) = fits[group].rounded(d, dmin, 63.0);
        put_scale_and_minimum(scale, minimum, group, packed);
        Affine::levels(&groups[group], d * f32::from(scale), dmin * f32::from(minimum), most)
    })
}

/// Adds the 6-bit scale and minimum of a group to 12 bytes of zeros. The 2 upper bits of the last 4 groups are those
/// of the bytes of the first 4 groups.
fn put_scale_and_minimum(scale: u8, minimum: u8, group: usize, packed: &mut [u8]) {
    if group < 4 {
        packed[group] |= scale;
        packed[group + 4] |= minimum;
    } else {
        packed[group + 4] |= scale & 15 | minimum << 4;
        packed[group - 4] |= scale >> 4 << 6;
        packed[group] |= minimum >> 4 << 6;
    }
}

/// Writes the 4 lower bits of 8 groups: two groups in 32 bytes.
fn put_pairs(levels: &[[u8; 32]; 8], bytes: &mut [u8]) {
    let pairs = levels.as_chunks::<2>().0;
    for ([lower, upper], bytes) in pairs.iter().zip(bytes.as_chunks_mut::<32>().0) {
        *bytes = core::array::from_fn(|i| lower[i] & 15 | upper[i] << 4);
    }
}

fn q6_k(values: &[f32; 256], block: &mut [u8; 210]) {
    let groups = values.as_chunks::<16>().0;
    let scales: [f32; 16] = core::array::from_fn(|group| Symmetric::scale(&groups[group], 32.0));
    let d = put_half(block, 208, greatest(&scales) / -128.0);
    block[..192].fill(0);
    for (group, values) in groups.iter().enumerate() {
        let scale = search::level(scales[group] * reciprocal(d), -128.0, 127.0);
        let levels = Symmetric::levels(values, d * f32::from(scale), 32.0);
        block[192 + group] = scale as u8;
        put_six_bits(&levels.map(|level| (level + 32) as u8), group, block);
    }
}

/// Adds a group of 16 elements to the first 192 bytes of a block of [`BlockFormat::Q6_K`].
fn put_six_bits(levels: &[u8; 16], group: usize, block: &mut [u8]) {
    let (half, group) = (group / 8, group % 8);
    let (lower, lower_shift) = (half * 64 + group % 4 * 16, group / 4 * 4);
    let (upper, upper_shift) = (128 + half * 32 + group % 2 * 16, group / 2 * 2);
    for (i, level) in levels.iter().enumerate() {
        block[lower + i] |= (level & 15) << lower_shift;
        block[upper + i] |= (level >> 4) << upper_shift;
    }
}

fn iq4_nl(values: &[f32; 32], block: &mut [u8; 18]) {
    let scale = put_half(block, 0, search::nonlinear_scale(values));
    put_nibbles(&nonlinear_levels(values, scale), &mut block[2..]);
}

fn iq4_xs(values: &[f32; 256], block: &mut [u8; 136]) {
    let groups = values.as_chunks::<32>().0;
    let scales: [f32; 8] = core::array::from_fn(|group| search::nonlinear_scale(&groups[group]));
    let d = put_half(block, 0, greatest(&scales) / -32.0);
    let mut upper = 0_u16;
    block[4..8].fill(0);
    for (group, values) in groups.iter().enumerate() {
        let scale = search::level(scales[group] * reciprocal(d), -32.0, 31.0);
        let bits = (scale + 32) as u8;
        block[4 + group / 2] |= (bits & 15) << (group % 2 * 4);
        upper |= u16::from(bits >> 4) << (2 * group);
        let bytes = &mut block[8 + group * 16..][..16];
        put_nibbles(&nonlinear_levels(values, d * f32::from(scale)), bytes);
    }
    block[2..4].copy_from_slice(&upper.to_le_bytes());
}

/// The indices of the nearest values of the table.
fn nonlinear_levels(values: &[f32; 32], scale: f32) -> [u8; 32] {
    let inverse = reciprocal(scale);
    values.map(|x| nonlinear_level(x * inverse))
}

/// The index of the value of the table that is nearest to `x`.
fn nonlinear_level(x: f32) -> u8 {
    let (least, most) = (f32::from(NONLINEAR[0]), f32::from(NONLINEAR[15]));
    NEAREST[(2.0 * (x.clamp(least, most) - least)) as usize]
}

/// The index of the nearest value of the table, by the half units above the least value. All midpoints between values
/// are half units.
const NEAREST: [u8; 481] = {
    let mut nearest = [0; 481];
    let (mut half, mut index) = (0, 0);
    while half < nearest.len() {
        let twice = half as i32 + 2 * NONLINEAR[0] as i32;
        while index < 15 && twice >= NONLINEAR[index] as i32 + NONLINEAR[index + 1] as i32 {
            index += 1;
        }
        nearest[half] = index as u8;
        half += 1;
    }
    nearest
};
