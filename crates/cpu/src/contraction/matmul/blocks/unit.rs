//! Vector units that unpack blocks and multiply small integers.
//!
//! [`Unpack`] works along a row of weights: on 32 bytes, the integers of a chunk. [`Tile`] works across rows of weights:
//! each lane of a vector is a column of the result.

#[cfg(target_arch = "x86_64")]
pub(super) mod x86;

use crate::half_float::HalfFloat;
use half::f16;

/// Operations on the 32 integers of a chunk, as bytes, and on 8 floats.
///
/// # Safety
/// Of every method: the machine has the unit, and the memory behind pointers may be accessed. No alignment is needed.
pub(super) trait Unpack: Copy {
    /// 32 bytes.
    type Bytes: Copy;
    /// 8 floats.
    type Floats: Copy;

    /// Reads 32 bytes.
    unsafe fn load(from: *const u8) -> Self::Bytes;
    /// Reads 16 bytes into both halves.
    unsafe fn load_twice(from: *const u8) -> Self::Bytes;
    /// Writes 32 bytes.
    unsafe fn store(to: *mut u8, bytes: Self::Bytes);
    /// The low 4 bits of the bytes of the first half, and the high 4 bits of those of the second half.
    unsafe fn nibbles(bytes: Self::Bytes) -> Self::Bytes;
    /// `(byte >> shift) & mask`; `mask` is at most `255 >> shift`.
    unsafe fn field(bytes: Self::Bytes, shift: u32, mask: u8) -> Self::Bytes;
    /// `byte << shift`, of bytes that stay below 256.
    unsafe fn shift_left(bytes: Self::Bytes, shift: u32) -> Self::Bytes;
    /// Bitwise or.
    unsafe fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// `value` for each bit that is set, from the lowest bit on, else 0.
    unsafe fn spread(bits: u32, value: u8) -> Self::Bytes;
    /// The table's entry for each byte, which is less than 16.
    unsafe fn lookup(indices: Self::Bytes, table: &[i8; 16]) -> Self::Bytes;

    /// Sums of four products: lane `i` of bytes `4 i` to `4 i + 3`. The weights are 0 to 127.
    unsafe fn dot(weights: Self::Bytes, x: Self::Bytes) -> Self::Floats;
    /// As [`dot`](Unpack::dot), for weights that are signed.
    unsafe fn dot_signed(weights: Self::Bytes, x: Self::Bytes) -> Self::Floats;

    /// Reads 8 floats.
    unsafe fn floats(from: *const f32) -> Self::Floats;
    /// Writes 8 floats.
    unsafe fn store_floats(to: *mut f32, floats: Self::Floats);
    /// One float in all lanes.
    unsafe fn splat(x: f32) -> Self::Floats;
    /// Two floats, each in four lanes.
    unsafe fn pair(from: *const f32) -> Self::Floats;
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a · b + c`
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// The sum of the lanes.
    unsafe fn sum(floats: Self::Floats) -> f32;
    /// Converts 8 bytes, signed or not, from the lowest on.
    unsafe fn widen(bytes: u64, signed: bool) -> Self::Floats;
    /// Converts eight 16-bit floats with this many bytes between their starts.
    unsafe fn halves(from: *const u8, stride: usize) -> Self::Floats;
    /// As [`halves`](Unpack::halves), of pairs of adjacent floats.
    unsafe fn half_pairs(from: *const u8, stride: usize) -> [Self::Floats; 2];
    /// Asks for a cache line, which need not exist.
    unsafe fn prefetch(at: *const u8);
}

/// Operations on a vector of columns of the result.
///
/// # Safety
/// Of every method: the machine has the unit, and the memory behind pointers may be accessed. No alignment is needed.
pub(super) trait Tile: Copy {
    /// Columns per vector.
    const LANES: usize;
    /// Vectors per panel.
    const VECTORS: usize;
    /// Whether unsigned weights are multiplied as pairs of 16-bit integers, rather than four bytes at a time.
    const UNSIGNED_PAIRS: bool;
    /// As [`UNSIGNED_PAIRS`](Tile::UNSIGNED_PAIRS), for signed weights. Without pairs, 128 is added to them.
    const SIGNED_PAIRS: bool;
    /// Words of 4 bytes: integers to multiply, or sums.
    type Words: Copy;
    /// Floats.
    type Wide: Copy;

    unsafe fn zero() -> Self::Words;
    unsafe fn words(from: *const u32) -> Self::Words;
    /// One word in all lanes, from memory.
    unsafe fn word(from: *const u32) -> Self::Words;
    /// Adds four products of unsigned weights and signed bytes to a sum. The sum may be kept in parts of 16 bits.
    unsafe fn dot_bytes(sum: Self::Words, weights: Self::Words, x: Self::Words) -> Self::Words;
    /// The 32-bit sum of [`dot_bytes`](Tile::dot_bytes).
    unsafe fn finish(sum: Self::Words) -> Self::Words;
    /// Adds two products of signed 16-bit integers to a 32-bit sum.
    unsafe fn dot_pairs(sum: Self::Words, weights: Self::Words, x: Self::Words) -> Self::Words;
    /// Adds 32-bit sums.
    unsafe fn add_words(a: Self::Words, b: Self::Words) -> Self::Words;
    /// Converts 32-bit sums.
    unsafe fn to_floats(sums: Self::Words) -> Self::Wide;
    unsafe fn wide(from: *const f32) -> Self::Wide;
    unsafe fn store_wide(to: *mut f32, floats: Self::Wide);
    /// One float in all lanes.
    unsafe fn splat_wide(x: f32) -> Self::Wide;
    unsafe fn mul_wide(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// `a · b + c`
    unsafe fn mul_add_wide(a: Self::Wide, b: Self::Wide, c: Self::Wide) -> Self::Wide;
}

/// An array of an expression for each index. A loop, since functions of arrays are not always inlined.
macro_rules! each {
    ($i:ident in $count:literal: $value:expr) => {{
        let mut array = [Default::default(); $count];
        for $i in 0..$count {
            array[$i] = $value;
        }
        array
    }};
}

/// Arrays that the compiler maps to the available vectors.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Unpack for Portable {
    type Bytes = [u8; 32];
    type Floats = [f32; 8];

    #[inline(always)]
    unsafe fn load(from: *const u8) -> [u8; 32] {
        // SAFETY: as the caller promises; bytes need no alignment.
        unsafe { from.cast::<[u8; 32]>().read() }
    }

    #[inline(always)]
    unsafe fn load_twice(from: *const u8) -> [u8; 32] {
        // SAFETY: as the caller promises; bytes need no alignment.
        let half = unsafe { from.cast::<[u8; 16]>().read() };
        each!(i in 32: half[i % 16])
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, bytes: [u8; 32]) {
        // SAFETY: as the caller promises; bytes need no alignment.
        unsafe { to.cast::<[u8; 32]>().write(bytes) }
    }

    #[inline(always)]
    unsafe fn nibbles(bytes: [u8; 32]) -> [u8; 32] {
        each!(i in 32: if i < 16 { bytes[i] & 15 } else { bytes[i] >> 4 })
    }

    #[inline(always)]
    unsafe fn field(bytes: [u8; 32], shift: u32, mask: u8) -> [u8; 32] {
        each!(i in 32: (bytes[i] >> shift) & mask)
    }

    #[inline(always)]
    unsafe fn shift_left(bytes: [u8; 32], shift: u32) -> [u8; 32] {
        each!(i in 32: bytes[i] << shift)
    }

    #[inline(always)]
    unsafe fn or(a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        each!(i in 32: a[i] | b[i])
    }

    #[inline(always)]
    unsafe fn spread(bits: u32, value: u8) -> [u8; 32] {
        each!(i in 32: if bits >> i & 1 == 1 { value } else { 0 })
    }

    #[inline(always)]
    unsafe fn lookup(indices: [u8; 32], table: &[i8; 16]) -> [u8; 32] {
        each!(i in 32: table[usize::from(indices[i] & 15)] as u8)
    }

    #[inline(always)]
    unsafe fn dot(weights: [u8; 32], x: [u8; 32]) -> [f32; 8] {
        // SAFETY: weights below 128 are the same as signed bytes.
        unsafe { Portable::dot_signed(weights, x) }
    }

    #[inline(always)]
    unsafe fn dot_signed(weights: [u8; 32], x: [u8; 32]) -> [f32; 8] {
        let products = each!(i in 32: i16::from(weights[i] as i8) * i16::from(x[i] as i8));
        let sum = |at: usize| i32::from(products[at]) + i32::from(products[at + 1]);
        each!(lane in 8: (sum(4 * lane) + sum(4 * lane + 2)) as f32)
    }

    #[inline(always)]
    unsafe fn floats(from: *const f32) -> [f32; 8] {
        // SAFETY: as the caller promises; the read is unaligned.
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store_floats(to: *mut f32, floats: [f32; 8]) {
        // SAFETY: as the caller promises; the write is unaligned.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(floats) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; 8] {
        [x; 8]
    }

    #[inline(always)]
    unsafe fn pair(from: *const f32) -> [f32; 8] {
        // SAFETY: as the caller promises.
        let [a, b] = unsafe { [*from, *from.add(1)] };
        [a, a, a, a, b, b, b, b]
    }

    #[inline(always)]
    unsafe fn mul(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(i in 8: a[i] * b[i])
    }

    #[inline(always)]
    unsafe fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(i in 8: a[i] + b[i])
    }

    #[inline(always)]
    unsafe fn mul_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        each!(i in 8: a[i] * b[i] + c[i])
    }

    #[inline(always)]
    unsafe fn sum(floats: [f32; 8]) -> f32 {
        let pair = |i: usize| floats[i] + floats[i + 4];
        (pair(0) + pair(2)) + (pair(1) + pair(3))
    }

    #[inline(always)]
    unsafe fn widen(bytes: u64, signed: bool) -> [f32; 8] {
        let bytes = bytes.to_le_bytes();
        each!(i in 8: if signed { f32::from(bytes[i] as i8) } else { f32::from(bytes[i]) })
    }

    #[inline(always)]
    unsafe fn halves(from: *const u8, stride: usize) -> [f32; 8] {
        // SAFETY: as the caller promises.
        unsafe { each!(i in 8: half(from.add(i * stride))) }
    }

    #[inline(always)]
    unsafe fn half_pairs(from: *const u8, stride: usize) -> [[f32; 8]; 2] {
        // SAFETY: as the caller promises.
        unsafe { [Portable::halves(from, stride), Portable::halves(from.add(2), stride)] }
    }

    #[inline(always)]
    unsafe fn prefetch(_at: *const u8) {}
}

impl Tile for Portable {
    const LANES: usize = 4;
    const VECTORS: usize = 2;
    const UNSIGNED_PAIRS: bool = true;
    const SIGNED_PAIRS: bool = true;
    type Words = [i32; 4];
    type Wide = [f32; 4];

    #[inline(always)]
    unsafe fn zero() -> [i32; 4] {
        [0; 4]
    }

    #[inline(always)]
    unsafe fn words(from: *const u32) -> [i32; 4] {
        // SAFETY: as the caller promises; the read is unaligned.
        unsafe { from.cast::<[i32; 4]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn word(from: *const u32) -> [i32; 4] {
        // SAFETY: as the caller promises; the read is unaligned.
        [unsafe { from.cast::<i32>().read_unaligned() }; 4]
    }

    #[inline(always)]
    unsafe fn dot_bytes(sum: [i32; 4], weights: [i32; 4], x: [i32; 4]) -> [i32; 4] {
        let dot = |weights: [u8; 4], x: [u8; 4]| {
            let product = |i: usize| i32::from(weights[i]) * i32::from(x[i] as i8);
            (product(0) + product(1)) + (product(2) + product(3))
        };
        each!(lane in 4: sum[lane] + dot(weights[lane].to_ne_bytes(), x[lane].to_ne_bytes()))
    }

    #[inline(always)]
    unsafe fn finish(sum: [i32; 4]) -> [i32; 4] {
        sum
    }

    #[inline(always)]
    unsafe fn dot_pairs(sum: [i32; 4], weights: [i32; 4], x: [i32; 4]) -> [i32; 4] {
        // The order of the halves of a word in memory has no effect.
        let dot = |w: i32, x: i32| i32::from(w as i16) * i32::from(x as i16) + (w >> 16) * (x >> 16);
        each!(lane in 4: sum[lane] + dot(weights[lane], x[lane]))
    }

    #[inline(always)]
    unsafe fn add_words(a: [i32; 4], b: [i32; 4]) -> [i32; 4] {
        each!(lane in 4: a[lane] + b[lane])
    }

    #[inline(always)]
    unsafe fn to_floats(sums: [i32; 4]) -> [f32; 4] {
        each!(lane in 4: sums[lane] as f32)
    }

    #[inline(always)]
    unsafe fn wide(from: *const f32) -> [f32; 4] {
        // SAFETY: as the caller promises; the read is unaligned.
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store_wide(to: *mut f32, floats: [f32; 4]) {
        // SAFETY: as the caller promises; the write is unaligned.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(floats) }
    }

    #[inline(always)]
    unsafe fn splat_wide(x: f32) -> [f32; 4] {
        [x; 4]
    }

    #[inline(always)]
    unsafe fn mul_wide(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        each!(lane in 4: a[lane] * b[lane])
    }

    #[inline(always)]
    unsafe fn mul_add_wide(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        each!(lane in 4: a[lane] * b[lane] + c[lane])
    }
}

/// A little-endian 16-bit float.
///
/// # Safety
/// Two bytes may be read.
#[inline(always)]
pub(super) unsafe fn half(from: *const u8) -> f32 {
    // SAFETY: as the caller promises; bytes need no alignment.
    f16::from_bits(u16::from_le_bytes(unsafe { from.cast::<[u8; 2]>().read() })).widen()
}
