//! Formats whose 4-bit integers are indices into a table of values.

#![allow(non_camel_case_types, reason = "the names of the formats")]

use super::legacy::scales_only;
use super::{Class, Format, read, without_offset};
use crate::contraction::matmul::blocks::unit::{Unpack, half};
use kiln_ir::BlockFormat;

/// A scale and 32 indices: the first 16 elements in the low halves of the bytes.
pub(in super::super) struct IQ4_NL;

impl Format for IQ4_NL {
    const FORMAT: BlockFormat = BlockFormat::IQ4_NL;
    const CLASS: Class = Class::Signed8;

    #[inline(always)]
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, _minima: *mut f32) {
        // SAFETY: as the caller promises.
        unsafe { scales_only::<U, IQ4_NL>(blocks, count, scales) }
    }

    #[inline(always)]
    unsafe fn integers<U: Unpack>(block: *const u8, _chunk: usize) -> U::Bytes {
        // SAFETY: as the caller promises.
        unsafe { U::lookup(U::nibbles(U::load_twice(block.add(2))), &BlockFormat::NONLINEAR) }
    }
}

/// A scale, 8 scales of 6 bits with an offset of 32 (their 2 high bits, then nibbles), and 256 indices.
pub(in super::super) struct IQ4_XS;

impl Format for IQ4_XS {
    const FORMAT: BlockFormat = BlockFormat::IQ4_XS;
    const CLASS: Class = Class::Signed8;

    #[inline(always)]
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, _minima: *mut f32) {
        for i in 0..count {
            // SAFETY: as the caller promises.
            unsafe {
                let block = blocks.add(i * Self::BYTES);
                let high = u16::from_le_bytes(read(block.add(2)));
                let low = u32::from_le_bytes(read(block.add(4)));
                let mut bytes = 0;
                for group in 0..8 {
                    let scale = (low >> (4 * group) & 15) | (u32::from(high) >> (2 * group) & 3) << 4;
                    bytes |= u64::from(scale) << (8 * group);
                }
                let bytes = without_offset(bytes);
                U::store_floats(scales.add(8 * i), U::mul(U::widen(bytes, true), U::splat(half(block))));
            }
        }
    }

    #[inline(always)]
    unsafe fn integers<U: Unpack>(block: *const u8, chunk: usize) -> U::Bytes {
        // SAFETY: as the caller promises.
        unsafe { U::lookup(U::nibbles(U::load_twice(block.add(8 + 16 * chunk))), &BlockFormat::NONLINEAR) }
    }
}
