//! Unpacking of each block format: every 32 elements of a row, a chunk, become small integers with `f32` scales and
//! minima.
//!
//! An element is `scale · integer + minimum`. Scale and minimum are those of its group of 16 or 32 elements, and both
//! products of the formats' fields are exact in `f32`.

mod k;
mod legacy;
mod table;

pub(super) use k::{Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K};
pub(super) use legacy::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
pub(super) use table::{IQ4_NL, IQ4_XS};

use super::unit::Unpack;
use crate::contraction::scratch::Scratch;
use kiln_ir::BlockFormat;

/// Elements per chunk: those with a common scale of the activations.
pub(super) const CHUNK: usize = 32;

/// The maximum elements that are unpacked at once, which stay in the L1 cache: whole blocks of each format.
pub(super) const LINE: usize = 2048;

/// The range of a format's integers, and the elements that share a scale.
///
/// The ranges bound the number of products of an integer and a signed byte whose sum fits 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// 0 to 15, in groups of 32.
    Unsigned4,
    /// 0 to 31, in groups of 32.
    Unsigned5,
    /// 0 to 7, in groups of 16.
    Unsigned3By16,
    /// 0 to 63, in groups of 16.
    Unsigned6By16,
    /// -128 to 127, in groups of 32.
    Signed8,
}

impl Class {
    /// The minimum elements per group.
    const MIN_GROUP: usize = 16;

    /// Elements per group.
    pub(super) const fn group(self) -> usize {
        match self {
            Class::Unsigned4 | Class::Unsigned5 | Class::Signed8 => 32,
            Class::Unsigned3By16 | Class::Unsigned6By16 => 16,
        }
    }

    /// Whether integers are signed bytes. All other classes have minima: those stored, or the offset of the integers.
    pub(super) const fn signed(self) -> bool {
        matches!(self, Class::Signed8)
    }
}

/// A block format.
pub(super) trait Format {
    /// The format.
    const FORMAT: BlockFormat;
    /// The range and grouping of the integers.
    const CLASS: Class;

    /// Bytes per block.
    const BYTES: usize = Self::FORMAT.bytes();
    /// Chunks per block.
    const CHUNKS: usize = Self::FORMAT.len() / CHUNK;

    /// Writes the scale of each group of some blocks and, unless integers are signed, the minima.
    ///
    /// # Safety
    /// The machine has the unit; the blocks may be read, a float written for each group.
    unsafe fn scales<U: Unpack>(blocks: *const u8, count: usize, scales: *mut f32, minima: *mut f32);

    /// The integers of a chunk.
    ///
    /// # Safety
    /// The machine has the unit; the block may be read, and `chunk` is less than `CHUNKS`.
    unsafe fn integers<U: Unpack>(block: *const u8, chunk: usize) -> U::Bytes;
}

/// The memory of unpacked blocks.
#[derive(Clone, Copy)]
pub(super) struct Unpacked {
    /// An integer for each element.
    pub(super) integers: *mut u8,
    /// The scale of each group.
    pub(super) scales: *mut f32,
    /// The minimum of each group; not written for signed classes.
    pub(super) minima: *mut f32,
}

/// Memory for the unpacked blocks of a part of a row.
pub(super) struct Line {
    integers: Scratch<u8>,
    scales: Scratch<f32>,
    minima: Scratch<f32>,
}

impl Line {
    /// Memory for some elements; that of scales and minima is padded to whole vectors.
    pub(super) fn new(elements: usize) -> Line {
        let groups = (elements / Class::MIN_GROUP).next_multiple_of(8);
        Line { integers: Scratch::new(elements), scales: Scratch::new(groups), minima: Scratch::new(groups) }
    }

    /// The addresses, which are valid as long as the value lives.
    pub(super) fn unpacked(&mut self) -> Unpacked {
        Unpacked {
            integers: self.integers.as_mut_ptr(),
            scales: self.scales.as_mut_ptr(),
            minima: self.minima.as_mut_ptr(),
        }
    }
}

/// The distance in bytes of the weights that are asked for ahead.
const AHEAD: usize = 1024;

/// Unpacks `count` adjacent blocks.
///
/// # Safety
/// The machine has the unit; the blocks may be read, and the memory has room for them.
#[inline(always)]
pub(super) unsafe fn unpack<U: Unpack, F: Format>(blocks: *const u8, count: usize, to: Unpacked) {
    // SAFETY: as the caller promises.
    unsafe {
        F::scales::<U>(blocks, count, to.scales, to.minima);
        for i in 0..count {
            let block = blocks.add(i * F::BYTES);
            for chunk in 0..F::CHUNKS {
                U::prefetch(block.wrapping_add(AHEAD + chunk * F::BYTES / F::CHUNKS));
                U::store(to.integers.add((i * F::CHUNKS + chunk) * CHUNK), F::integers::<U>(block, chunk));
            }
        }
    }
}

/// The class of a format.
pub(super) fn class_of(format: BlockFormat) -> Class {
    match format {
        BlockFormat::Q4_0 => Q4_0::CLASS,
        BlockFormat::Q4_1 => Q4_1::CLASS,
        BlockFormat::Q5_0 => Q5_0::CLASS,
        BlockFormat::Q5_1 => Q5_1::CLASS,
        BlockFormat::Q8_0 => Q8_0::CLASS,
        BlockFormat::Q2_K => Q2_K::CLASS,
        BlockFormat::Q3_K => Q3_K::CLASS,
        BlockFormat::Q4_K => Q4_K::CLASS,
        BlockFormat::Q5_K => Q5_K::CLASS,
        BlockFormat::Q6_K => Q6_K::CLASS,
        BlockFormat::Q8_K => Q8_K::CLASS,
        BlockFormat::IQ4_NL => IQ4_NL::CLASS,
        BlockFormat::IQ4_XS => IQ4_XS::CLASS,
    }
}

/// Reads bytes.
///
/// # Safety
/// The bytes may be read.
#[inline(always)]
unsafe fn read<const N: usize>(from: *const u8) -> [u8; N] {
    // SAFETY: as the caller promises; bytes need no alignment.
    unsafe { from.cast::<[u8; N]>().read() }
}

/// Subtracts 32 from eight bytes of at most 6 bits: the result is signed.
#[inline(always)]
fn without_offset(bytes: u64) -> u64 {
    // Bit 7 of each byte is set first, so that nothing is borrowed from the next byte. It ends up inverted.
    const HIGH: u64 = 0x8080_8080_8080_8080;
    ((bytes | HIGH) - 0x2020_2020_2020_2020) ^ HIGH
}
