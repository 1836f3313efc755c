//! Decoding of blocks to numbers.
//!
//! Each function decodes one block. The order of multiplications and subtractions is that of ggml, so results are
//! equal to those of llama.cpp and of the Python package `gguf` to the last bit.

use half::f16;

use super::BlockFormat;

impl BlockFormat {
    /// The 16 values that an index of [`IQ4_NL`](BlockFormat::IQ4_NL) and [`IQ4_XS`](BlockFormat::IQ4_XS) selects, in
    /// units of the scale.
    pub const NONLINEAR: [i8; 16] =
        [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

    /// Decodes `blocks` to `values`, in order. Results are those of ggml, bit for bit.
    ///
    /// Any bytes decode. A scale that is infinite or NaN results in infinite or NaN elements.
    ///
    /// # Panics
    ///
    /// If `blocks` is not a whole number of blocks, or `values` does not have as many elements as they hold.
    ///
    /// ```
    /// use kiln_ir::BlockFormat;
    ///
    /// let values: Vec<f32> = (0..32).map(|i| i as f32 - 15.0).collect();
    /// let mut block = [0; 34];
    /// BlockFormat::Q8_0.encode(&values, &mut block);
    /// let mut decoded = [0.0; 32];
    /// BlockFormat::Q8_0.decode(&block, &mut decoded);
    /// assert!(values.iter().zip(decoded).all(|(x, y)| (x - y).abs() < 0.07));
    /// ```
    pub fn decode(self, blocks: &[u8], values: &mut [f32]) {
        self.check(blocks.len(), values.len());
        match self {
            BlockFormat::Q4_0 => each(blocks, values, q4_0),
            BlockFormat::Q4_1 => each(blocks, values, q4_1),
            BlockFormat::Q5_0 => each(blocks, values, q5_0),
            BlockFormat::Q5_1 => each(blocks, values, q5_1),
            BlockFormat::Q8_0 => each(blocks, values, q8_0),
            BlockFormat::Q2_K => each(blocks, values, q2_k),
            BlockFormat::Q3_K => each(blocks, values, q3_k),
            BlockFormat::Q4_K => each(blocks, values, q4_k),
            BlockFormat::Q5_K => each(blocks, values, q5_k),
            BlockFormat::Q6_K => each(blocks, values, q6_k),
            BlockFormat::Q8_K => each(blocks, values, q8_k),
            BlockFormat::IQ4_NL => each(blocks, values, iq4_nl),
            BlockFormat::IQ4_XS => each(blocks, values, iq4_xs),
        }
    }

    /// Panics unless `elements` fit into `bytes` of blocks exactly.
    pub(super) fn check(self, bytes: usize, elements: usize) {
        assert!(
            self.row_len(bytes) == Some(elements),
            "{bytes} bytes of {} do not hold {elements} elements: {} elements take {} bytes",
            self.name(),
            self.len(),
            self.bytes()
        );
    }
}

fn each<const BYTES: usize, const LEN: usize>(
    blocks: &[u8],
    values: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    let (blocks, values) = (blocks.as_chunks().0, values.as_chunks_mut().0);
    blocks.iter().zip(values).for_each(|(block, values)| decode(block, values));
}

/// The half-precision number at `offset`.
fn half_at(block: &[u8], offset: usize) -> f32 {
    f16::from_le_bytes([block[offset], block[offset + 1]]).to_f32()
}

/// The numbers of the 4-bit integers in 16 bytes: those of the lower halves, then those of the upper halves.
fn nibbles(bytes: &[u8], values: &mut [f32; 32], number: impl Fn(u8) -> f32) {
    let (lower, upper) = values.split_at_mut(16);
    for ((lower, upper), &byte) in lower.iter_mut().zip(upper).zip(bytes) {
        (*lower, *upper) = (number(byte & 15), number(byte >> 4));
    }
}

fn q4_0(block: &[u8; 18], values: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    nibbles(&block[2..], values, |q| scale * (f32::from(q) - 8.0));
}

fn q4_1(block: &[u8; 20], values: &mut [f32; 32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    nibbles(&block[4..], values, |q| scale * f32::from(q) + minimum);
}

/// The numbers of 32 5-bit integers: 32 fifth bits, then the 4 lower bits.
fn five_bits(bytes: &[u8], values: &mut [f32; 32], number: impl Fn(f32) -> f32) {
    let fifth = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    nibbles(&bytes[4..], values, f32::from);
    for (i, value) in values.iter_mut().enumerate() {
        *value = number(*value + (fifth >> i << 4 & 16) as f32);
    }
}

fn q5_0(block: &[u8; 22], values: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    five_bits(&block[2..], values, |q| scale * (q - 16.0));
}

fn q5_1(block: &[u8; 24], values: &mut [f32; 32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    five_bits(&block[4..], values, |q| scale * q + minimum);
}

fn q8_0(block: &[u8; 34], values: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (value, &byte) in values.iter_mut().zip(&block[2..]) {
        *value = scale * f32::from(byte as i8);
    }
}

/// 16 bytes of scales (lower halves) and minima (upper halves), 64 bytes of elements, then the scale of the scales and
/// that of the minima.
fn q2_k(block: &[u8; 84], values: &mut [f32; 256]) {
    let (d, dmin) = (half_at(block, 80), half_at(block, 82));
    for (group, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (scale, minimum) = (d * f32::from(block[group] & 15), dmin * f32::from(block[group] >> 4));
        let (start, shift) = two_bits(group);
        let bytes = &block[16 + start..];
        for (value, &byte) in values.iter_mut().zip(bytes) {
            *value = scale * f32::from(byte >> shift & 3) - minimum;
        }
    }
}

/// The first byte, of 64, and the shift of the 2-bit integers of a group of 16 elements.
fn two_bits(group: usize) -> (usize, usize) {
    (group / 8 * 32 + group % 2 * 16, group % 8 / 2 * 2)
}

/// 32 bytes of third bits, 64 bytes of the 2 lower bits, 12 bytes of scales, then their scale.
fn q3_k(block: &[u8; 110], values: &mut [f32; 256]) {
    let d = half_at(block, 108);
    for (group, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(q3_k_scale(&block[96..108], group) as i8 - 32);
        let (start, shift) = two_bits(group);
        let (bytes, thirds) = (&block[32 + start..], &block[group % 2 * 16..]);
        for ((value, &byte), &third) in values.iter_mut().zip(bytes).zip(thirds) {
            // An element without its third bit is 4 less.
            let q = byte >> shift & 3 | (third >> (group / 2) & 1) << 2;
            *value = scale * (f32::from(q) - 4.0);
        }
    }
}

/// The 6-bit scale of a group of [`BlockFormat::Q3_K`], plus 32: 8 bytes of the 4 lower bits, 4 bytes of the upper 2.
fn q3_k_scale(scales: &[u8], group: usize) -> u8 {
    let lower = scales[group % 8] >> (group / 8 * 4) & 15;
    let upper = scales[8 + group % 4] >> (group / 4 * 2) & 3;
    lower | upper << 4
}

/// The scale of the scales and that of the minima, 12 bytes of both, then 128 bytes of elements.
fn q4_k(block: &[u8; 144], values: &mut [f32; 256]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    for (group, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, minimum) = scale_and_minimum(&block[4..16], group);
        let (scale, minimum) = (d * f32::from(scale), dmin * f32::from(minimum));
        let (bytes, shift) = (&block[16 + group / 2 * 32..], group % 2 * 4);
        for (value, &byte) in values.iter_mut().zip(bytes) {
            *value = scale * f32::from(byte >> shift & 15) - minimum;
        }
    }
}

/// The 6-bit scale and minimum of a group of [`BlockFormat::Q4_K`] and [`BlockFormat::Q5_K`]. Of the first 4 groups
/// they are the 6 lower bits of a byte; the 2 upper bits belong to the last 4 groups.
fn scale_and_minimum(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let lower = packed[group + 4];
        (lower & 15 | packed[group - 4] >> 6 << 4, lower >> 4 | packed[group] >> 6 << 4)
    }
}

/// Like [`q4_k`], with 32 bytes of fifth bits before the elements.
fn q5_k(block: &[u8; 176], values: &mut [f32; 256]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    for (group, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, minimum) = scale_and_minimum(&block[4..16], group);
        let (scale, minimum) = (d * f32::from(scale), dmin * f32::from(minimum));
        let (bytes, shift) = (&block[48 + group / 2 * 32..], group % 2 * 4);
        for ((value, &byte), &fifth) in values.iter_mut().zip(bytes).zip(&block[16..48]) {
            let q = byte >> shift & 15 | (fifth >> group & 1) << 4;
            *value = scale * f32::from(q) - minimum;
        }
    }
}

/// 128 bytes of the 4 lower bits, 64 bytes of the 2 upper bits, 16 signed bytes of scales, then their scale.
fn q6_k(block: &[u8; 210], values: &mut [f32; 256]) {
    let d = half_at(block, 208);
    for (group, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(block[192 + group] as i8);
        let (half, group) = (group / 8, group % 8);
        let (lower, lower_shift) = (&block[half * 64 + group % 4 * 16..], group / 4 * 4);
        let (upper, upper_shift) = (&block[128 + half * 32 + group % 2 * 16..], group / 2 * 2);
        for ((value, &lower), &upper) in values.iter_mut().zip(lower).zip(upper) {
            let q = lower >> lower_shift & 15 | (upper >> upper_shift & 3) << 4;
            *value = scale * (f32::from(q) - 32.0);
        }
    }
}

/// A scale in `f32`, then 256 signed bytes. The sums after them serve products of integers.
fn q8_k(block: &[u8; 292], values: &mut [f32; 256]) {
    let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    for (value, &byte) in values.iter_mut().zip(&block[4..]) {
        *value = scale * f32::from(byte as i8);
    }
}

fn iq4_nl(block: &[u8; 18], values: &mut [f32; 32]) {
    nonlinear(half_at(block, 0), &block[2..], values);
}

/// A scale, 2 bytes with the upper 2 bits of the 8 scales, 4 bytes with the lower 4, then 128 bytes of elements.
fn iq4_xs(block: &[u8; 136], values: &mut [f32; 256]) {
    let d = half_at(block, 0);
    let upper = u16::from_le_bytes([block[2], block[3]]);
    for (group, values) in values.as_chunks_mut().0.iter_mut().enumerate() {
        let lower = block[4 + group / 2] >> (group % 2 * 4) & 15;
        let scale = lower | ((upper >> (2 * group) & 3) as u8) << 4;
        nonlinear(d * f32::from(scale as i8 - 32), &block[8 + group * 16..], values);
    }
}

/// 32 elements whose indices into [`BlockFormat::NONLINEAR`] are in 16 bytes.
fn nonlinear(scale: f32, bytes: &[u8], values: &mut [f32; 32]) {
    nibbles(bytes, values, |index| scale * f32::from(BlockFormat::NONLINEAR[usize::from(index & 15)]));
}
