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
use kiln_ir::BlockFormat;

/// Elements per chunk: those with a common scale of the activations.
pub(super) const CHUNK: usize = 32;

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
    /// Elements per group.
    pub(super) const fn group(self) -> usize {
        match self {
            Class::Unsigned4 | Class::Unsigned5 | Class::Signed8 => 32,
            Class::Unsigned3By16 | Class::Unsigned6By16 => 16,
        }
    }

    /// Whether integers are signed bytes.
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
    /// Whether minima may differ from 0.
    const MINIMA: bool;

    /// Bytes per block.
    const BYTES: usize = Self::FORMAT.bytes();
    /// Chunks per block.
    const CHUNKS: usize = Self::FORMAT.len() / CHUNK;
    /// Elements per group.
    const GROUP: usize = Self::CLASS.group();

    /// Writes the scale of each group of some blocks and, if there are any, the minima.
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

/// Whether a format's minima may differ from 0: it stores some, or its integers have an offset.
pub(super) fn has_minima(format: BlockFormat) -> bool {
    !class_of(format).signed()
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
