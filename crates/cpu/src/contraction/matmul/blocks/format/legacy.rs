//! Formats with blocks of 32 elements.

#![allow(non_camel_case_types, reason = "the names of the formats")]

use super::{Class, Format, read};
use crate::contraction::matmul::blocks::unit::{Unpack, half};
use kiln_ir::BlockFormat;

/// A scale and 32 nibbles: the first 16 elements in the low halves of the bytes. Integers have an offset of 8.
pub(in super::super) struct Q4_0;

impl Format for Q4_0 {
    const FORMAT: BlockFormat = BlockFormat::Q4_0;
    const CLASS: Class = Class::Unsigned4;

    #[inline(always)]
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, minima: *mut f32) {
        // SAFETY: as the caller promises.
        unsafe { scales_with_offset::<U, Q4_0>(blocks, count, -8.0, scales, minima) }
    }

    #[inline(always)]
    unsafe fn integers<U: Unpack>(block: *const u8, _chunk: usize) -> U::Bytes {
        // SAFETY: as the caller promises.
        unsafe { U::nibbles(U::load_twice(block.add(2))) }
    }
}

/// A scale, a minimum and 32 nibbles.
pub(in super::super) struct Q4_1;

impl Format for Q4_1 {
    const FORMAT: BlockFormat = BlockFormat::Q4_1;
    const CLASS: Class = Class::Unsigned4;

    #[inline(always)]
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, minima: *mut f32) {
        // SAFETY: as the caller promises.
        unsafe { scales_and_minima::<U, Q4_1>(blocks, count, scales, minima) }
    }

    #[inline(always)]
    unsafe fn integers<U: Unpack>(block: *const u8, _chunk: usize) -> U::Bytes {
        // SAFETY: as the caller promises.
        unsafe { U::nibbles(U::load_twice(block.add(4))) }
    }
}

/// A scale, the fifth bits of 32 elements, and 32 nibbles. Integers have an offset of 16.
pub(in super::super) struct Q5_0;

impl Format for Q5_0 {
    const FORMAT: BlockFormat = BlockFormat::Q5_0;
    const CLASS: Class = Class::Unsigned5;

    #[inline(always)]
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, minima: *mut f32) {
        // SAFETY: as the caller promises.
        unsafe { scales_with_offset::<U, Q5_0>(blocks, count, -16.0, scales, minima) }
    }

    #[inline(always)]
    unsafe fn integers<U: Unpack>(block: *const u8, _chunk: usize) -> U::Bytes {
        // SAFETY: as the caller promises.
        unsafe { five_bits::<U>(block.add(2)) }
    }
}

/// A scale, a minimum, the fifth bits of 32 elements, and 32 nibbles.
pub(in super::super) struct Q5_1;

impl Format for Q5_1 {
    const FORMAT: BlockFormat = BlockFormat::Q5_1;
    const CLASS: Class = Class::Unsigned5;

    #[inline(always)]
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, minima: *mut f32) {
        // SAFETY: as the caller promises.
        unsafe { scales_and_minima::<U, Q5_1>(blocks, count, scales, minima) }
    }

    #[inline(always)]
    unsafe fn integers<U: Unpack>(block: *const u8, _chunk: usize) -> U::Bytes {
        // SAFETY: as the caller promises.
        unsafe { five_bits::<U>(block.add(4)) }
    }
}

/// A scale and 32 signed bytes.
pub(in super::super) struct Q8_0;

impl Format for Q8_0 {
    const FORMAT: BlockFormat = BlockFormat::Q8_0;
    const CLASS: Class = Class::Signed8;

    #[inline(always)]
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, _minima: *mut f32) {
        // SAFETY: as the caller promises.
        unsafe { scales_only::<U, Q8_0>(blocks, count, scales) }
    }

    #[inline(always)]
    unsafe fn integers<U: Unpack>(block: *const u8, _chunk: usize) -> U::Bytes {
        // SAFETY: as the caller promises.
        unsafe { U::load(block.add(2)) }
    }
}

/// The fifth bits of 32 elements, followed by their nibbles.
///
/// # Safety
/// The machine has the unit; 20 bytes may be read.
#[inline(always)]
unsafe fn five_bits<U: Unpack>(from: *const u8) -> U::Bytes {
    // SAFETY: as the caller promises.
    unsafe {
        let bits = u32::from_le_bytes(read(from));
        U::or(U::nibbles(U::load_twice(from.add(4))), U::spread(bits, 16))
    }
}

/// The start of the next eight blocks. The last eight overlap those before them; `None` if there are fewer in all.
#[inline(always)]
fn eight(at: usize, count: usize) -> Option<usize> {
    if count < 8 { None } else { Some(at.min(count - 8)) }
}

/// Reads the scale at the start of each block.
///
/// # Safety
/// As [`Format::scales`].
#[inline(always)]
pub(super) unsafe fn scales_only<U: Unpack, F: Format>(blocks: *const u8, count: usize, scales: *mut f32) {
    let mut at = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while at < count {
            if let Some(start) = eight(at, count) {
                U::store_floats(scales.add(start), U::halves(blocks.add(start * F::BYTES), F::BYTES));
                at = start + 8;
            } else {
                *scales.add(at) = half(blocks.add(at * F::BYTES));
                at += 1;
            }
        }
    }
}

/// Reads the scale at the start of each block; the minimum is `offset` scales.
///
/// # Safety
/// As [`Format::scales`].
#[inline(always)]
unsafe fn scales_with_offset<U: Unpack, F: Format>(
    blocks: *const u8,
    count: usize,
    offset: f32,
    scales: *mut f32,
    minima: *mut f32,
) {
    let mut at = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while at < count {
            if let Some(start) = eight(at, count) {
                let scale = U::halves(blocks.add(start * F::BYTES), F::BYTES);
                U::store_floats(scales.add(start), scale);
                U::store_floats(minima.add(start), U::mul(scale, U::splat(offset)));
                at = start + 8;
            } else {
                let scale = half(blocks.add(at * F::BYTES));
                *scales.add(at) = scale;
                *minima.add(at) = scale * offset;
                at += 1;
            }
        }
    }
}

/// Reads the scale and the minimum at the start of each block.
///
/// # Safety
/// As [`Format::scales`].
#[inline(always)]
unsafe fn scales_and_minima<U: Unpack, F: Format>(
    blocks: *const u8,
    count: usize,
    scales: *mut f32,
    minima: *mut f32,
) {
    let mut at = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while at < count {
            if let Some(start) = eight(at, count) {
                let [scale, minimum] = U::half_pairs(blocks.add(start * F::BYTES), F::BYTES);
                U::store_floats(scales.add(start), scale);
                U::store_floats(minima.add(start), minimum);
                at = start + 8;
            } else {
                let block = blocks.add(at * F::BYTES);
                *scales.add(at) = half(block);
                *minima.add(at) = half(block.add(2));
                at += 1;
            }
        }
    }
}
