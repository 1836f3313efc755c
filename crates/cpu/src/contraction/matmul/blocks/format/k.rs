//! Formats with blocks of 256 elements, whose scales and minima are small integers times those of the block.

#![allow(non_camel_case_types, reason = "the names of the formats")]

use super::{Class, Format, read, without_offset};
use crate::contraction::matmul::blocks::unit::{Unpack, half};
use kiln_ir::BlockFormat;

/// 16 pairs of nibbles (scale, minimum), 256 fields of 2 bits, and the scales of both.
pub(in super::super) struct Q2_K;

impl Format for Q2_K {
    const FORMAT: BlockFormat = BlockFormat::Q2_K;
    const CLASS: Class = Class::Unsigned3By16;

    #[inline(always)]
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, minima: *mut f32) {
        for i in 0..count {
            // SAFETY: as the caller promises.
            unsafe {
                let block = blocks.add(i * Self::BYTES);
                let (scale, minimum) = (U::splat(half(block.add(80))), U::splat(-half(block.add(82))));
                for part in 0..2 {
                    let bytes = u64::from_le_bytes(read(block.add(8 * part)));
                    let at = 16 * i + 8 * part;
                    let (low, high) = (bytes & NIBBLES, bytes >> 4 & NIBBLES);
                    U::store_floats(scales.add(at), U::mul(U::widen(low, false), scale));
                    U::store_floats(minima.add(at), U::mul(U::widen(high, false), minimum));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn integers<U: Unpack>(block: *const u8, chunk: usize) -> U::Bytes {
        // SAFETY: as the caller promises.
        unsafe { two_bits::<U>(block.add(16), chunk) }
    }
}

/// The third bits of 256 elements, fields of 2 bits, 16 scales of 6 bits with an offset of 32, and the block's scale.
/// Integers have an offset of 4.
pub(in super::super) struct Q3_K;

impl Format for Q3_K {
    const FORMAT: BlockFormat = BlockFormat::Q3_K;
    const CLASS: Class = Class::Unsigned3By16;

    #[inline(always)]
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, minima: *mut f32) {
        for i in 0..count {
            // SAFETY: as the caller promises.
            unsafe {
                let block = blocks.add(i * Self::BYTES);
                let scale = U::splat(half(block.add(108)));
                // 8 bytes of low nibbles (the first 8 scales, then the others), and 4 of high fields of 2 bits.
                let low = u64::from_le_bytes(read(block.add(96)));
                let high = u64::from(u32::from_le_bytes(read(block.add(104))));
                for part in 0..2 {
                    let low = low >> (4 * part) & NIBBLES;
                    let high = high >> (4 * part);
                    let high = (high & 0x0303_0303) | (high >> 2 & 0x0303_0303) << 32;
                    let bytes = without_offset(low | high << 4);
                    store_with_offset::<U>(bytes, scale, -4.0, 16 * i + 8 * part, scales, minima);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn integers<U: Unpack>(block: *const u8, chunk: usize) -> U::Bytes {
        // SAFETY: as the caller promises.
        unsafe {
            let third = U::field(U::load(block), chunk as u32, 1);
            U::or(two_bits::<U>(block.add(32), chunk), U::shift_left(third, 2))
        }
    }
}

/// The scales of scales and minima, 8 of each in 6 bits, and 256 nibbles: 32 elements in the low halves of 32 bytes, the
/// next 32 in the high halves.
pub(in super::super) struct Q4_K;

impl Format for Q4_K {
    const FORMAT: BlockFormat = BlockFormat::Q4_K;
    const CLASS: Class = Class::Unsigned4;

    #[inline(always)]
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, minima: *mut f32) {
        // SAFETY: as the caller promises.
        unsafe { six_bit_scales::<U, Q4_K>(blocks, count, scales, minima) }
    }

    #[inline(always)]
    unsafe fn integers<U: Unpack>(block: *const u8, chunk: usize) -> U::Bytes {
        // SAFETY: as the caller promises.
        unsafe { U::field(U::load(block.add(16 + chunk / 2 * 32)), chunk as u32 % 2 * 4, 15) }
    }
}

/// As [`Q4_K`], with the fifth bits of the elements before the nibbles: one bit of 32 bytes for each chunk.
pub(in super::super) struct Q5_K;

impl Format for Q5_K {
    const FORMAT: BlockFormat = BlockFormat::Q5_K;
    const CLASS: Class = Class::Unsigned5;

    #[inline(always)]
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, minima: *mut f32) {
        // SAFETY: as the caller promises.
        unsafe { six_bit_scales::<U, Q5_K>(blocks, count, scales, minima) }
    }

    #[inline(always)]
    unsafe fn integers<U: Unpack>(block: *const u8, chunk: usize) -> U::Bytes {
        // SAFETY: as the caller promises.
        unsafe {
            let low = U::field(U::load(block.add(48 + chunk / 2 * 32)), chunk as u32 % 2 * 4, 15);
            let fifth = U::field(U::load(block.add(16)), chunk as u32, 1);
            U::or(low, U::shift_left(fifth, 4))
        }
    }
}

/// Nibbles, high fields of 2 bits, 16 signed scales, and the block's scale. Integers have an offset of 32.
pub(in super::super) struct Q6_K;

impl Format for Q6_K {
    const FORMAT: BlockFormat = BlockFormat::Q6_K;
    const CLASS: Class = Class::Unsigned6By16;

    #[inline(always)]
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, minima: *mut f32) {
        for i in 0..count {
            // SAFETY: as the caller promises.
            unsafe {
                let block = blocks.add(i * Self::BYTES);
                let scale = U::splat(half(block.add(208)));
                for part in 0..2 {
                    let bytes = u64::from_le_bytes(read(block.add(192 + 8 * part)));
                    store_with_offset::<U>(bytes, scale, -32.0, 16 * i + 8 * part, scales, minima);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn integers<U: Unpack>(block: *const u8, chunk: usize) -> U::Bytes {
        // Each half of the block has 64 bytes of nibbles and 32 bytes with four fields each.
        let (part, within) = (chunk / 4, chunk % 4);
        // SAFETY: as the caller promises.
        unsafe {
            let low = U::load(block.add(64 * part + within % 2 * 32));
            let low = U::field(low, within as u32 / 2 * 4, 15);
            let high = U::field(U::load(block.add(128 + 32 * part)), 2 * within as u32, 3);
            U::or(low, U::shift_left(high, 4))
        }
    }
}

/// A scale in `f32`, 256 signed bytes, and sums that are not read here.
pub(in super::super) struct Q8_K;

impl Format for Q8_K {
    const FORMAT: BlockFormat = BlockFormat::Q8_K;
    const CLASS: Class = Class::Signed8;

    #[inline(always)]
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, _minima: *mut f32) {
        for i in 0..count {
            // SAFETY: as the caller promises.
            unsafe {
                let scale = f32::from_le_bytes(read(blocks.add(i * Self::BYTES)));
                U::store_floats(scales.add(8 * i), U::splat(scale));
            }
        }
    }

    #[inline(always)]
    unsafe fn integers<U: Unpack>(block: *const u8, chunk: usize) -> U::Bytes {
        // SAFETY: as the caller promises.
        unsafe { U::load(block.add(4 + 32 * chunk)) }
    }
}

/// The low halves of eight bytes.
const NIBBLES: u64 = 0x0f0f_0f0f_0f0f_0f0f;

/// The fields of 2 bits of a chunk: four chunks share 32 bytes.
///
/// # Safety
/// As [`Format::integers`].
#[inline(always)]
unsafe fn two_bits<U: Unpack>(from: *const u8, chunk: usize) -> U::Bytes {
    // SAFETY: as the caller promises.
    unsafe { U::field(U::load(from.add(chunk / 4 * 32)), chunk as u32 % 4 * 2, 3) }
}

/// Writes 8 signed scales times that of the block, and minima of `offset` scales.
///
/// # Safety
/// The machine has the unit; 8 floats may be written from `at` on.
#[inline(always)]
unsafe fn store_with_offset<U: Unpack>(
    bytes: u64,
    scale: U::Floats,
    offset: f32,
    at: usize,
    scales: *mut f32,
    minima: *mut f32,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let scale = U::mul(U::widen(bytes, true), scale);
        U::store_floats(scales.add(at), scale);
        U::store_floats(minima.add(at), U::mul(scale, U::splat(offset)));
    }
}

/// The scales and minima of [`Q4_K`] and [`Q5_K`]: 12 bytes hold 8 of each in 6 bits. The first four of each are the low
/// bits of bytes 0 to 3 and 4 to 7; the others have their low 4 bits in bytes 8 to 11, and their high 2 bits are those
/// of bytes 0 to 7.
///
/// # Safety
/// As [`Format::scales`].
#[inline(always)]
unsafe fn six_bit_scales<U: Unpack, F: Format>(
    blocks: *const u8,
    count: usize,
    scales: *mut f32,
    minima: *mut f32,
) {
    for i in 0..count {
        // SAFETY: as the caller promises.
        unsafe {
            let block = blocks.add(i * F::BYTES);
            let (scale, minimum) = (U::splat(half(block)), U::splat(-half(block.add(2))));
            let a = u64::from(u32::from_le_bytes(read(block.add(4))));
            let b = u64::from(u32::from_le_bytes(read(block.add(8))));
            let c = u64::from(u32::from_le_bytes(read(block.add(12))));
            U::store_floats(scales.add(8 * i), U::mul(U::widen(join_six_bits(a, c), false), scale));
            U::store_floats(minima.add(8 * i), U::mul(U::widen(join_six_bits(b, c >> 4), false), minimum));
        }
    }
}

/// Eight fields of 6 bits as bytes: four in `first`, four whose low bits are in `low` and high bits above those.
#[inline(always)]
fn join_six_bits(first: u64, low: u64) -> u64 {
    let other = (low & 0x0f0f_0f0f) | (first >> 2 & 0x3030_3030);
    (first & 0x3f3f_3f3f) | other << 32
}
