//! Decoding of quantized blocks by integer ops on their bytes.
//!
//! The layouts are those of [`BlockFormat::decode`]. Bit fields are read without copies: the bytes are broadcast along
//! a new axis, and each entry of that axis shifts by another number of bits.

use super::{narrow, product};
use crate::{Binary, BlockFormat, Comparison, DType, Op, TensorType, Var};

/// The elements of blocks, `[.., elements]`, in a float dtype.
pub(super) fn dequantize<'e>(blocks: &Var<'e>, format: BlockFormat, dtype: DType) -> Var<'e> {
    let shape = blocks.shape();
    let axis = shape.rank() - 1;
    let count = product(&shape) / format.bytes();
    let blocks = Blocks { bytes: blocks.reshape([count, format.bytes()]), count };
    let elements = shape[axis] / format.bytes() * format.len();
    blocks.decoded(format).cast(dtype).reshape(shape.with(axis, elements))
}

/// The matmul with the transposed dequantized weight.
pub(super) fn matmul<'e>(x: &Var<'e>, blocks: &Var<'e>, format: BlockFormat) -> Var<'e> {
    let weight = blocks.apply(Op::DequantizeBlocks { format, dtype: x.dtype() }, &[]);
    let (axis, rows) = (x.rank() - 1, product(&x.shape()[..x.rank() - 1]));
    let y = x.reshape([rows, x.shape()[axis]]).matmul(&weight.transpose());
    y.reshape(x.shape().with(axis, blocks.shape()[0]))
}

/// The bytes of all blocks, `[count, bytes]`.
struct Blocks<'e> {
    bytes: Var<'e>,
    count: usize,
}

impl<'e> Blocks<'e> {
    /// The elements of each block in `f32`; the axes after the first are those of its groups.
    fn decoded(&self, format: BlockFormat) -> Var<'e> {
        match format {
            BlockFormat::Q4_0 => self.half(0) * (self.integers(2, 16, [1, 2, 4], 32) - 8.0),
            BlockFormat::Q4_1 => self.half(0) * self.integers(4, 16, [1, 2, 4], 32) + self.half(2),
            BlockFormat::Q5_0 => self.half(0) * (self.five_bits(2) - 16.0),
            BlockFormat::Q5_1 => self.half(0) * self.five_bits(4) + self.half(2),
            BlockFormat::Q8_0 => self.half(0) * self.signed(2, 32),
            BlockFormat::Q2_K => self.q2_k(),
            BlockFormat::Q3_K => self.q3_k(),
            BlockFormat::Q4_K => {
                let (scales, minima) = self.scales_and_minima();
                scales * self.groups(&self.fields(16, 128, [4, 2, 4]), 8) - minima
            }
            BlockFormat::Q5_K => {
                let (scales, minima) = self.scales_and_minima();
                let lower = self.groups(&self.fields(48, 128, [4, 2, 4]), 8);
                let fifth = self.groups(&self.fields(16, 32, [1, 8, 1]), 8);
                scales * (lower + fifth * 16.0) - minima
            }
            BlockFormat::Q6_K => {
                let lower = self.groups(&self.fields(0, 128, [2, 2, 4]), 16);
                let upper = self.groups(&self.fields(128, 64, [2, 4, 2]), 16);
                let scales = self.half(208) * self.signed(192, 16);
                self.groups(&scales, 16) * (lower + upper * 16.0 - 32.0)
            }
            BlockFormat::Q8_K => self.single(0) * self.signed(4, 256),
            BlockFormat::IQ4_NL => {
                let indices = self.fields(2, 16, [1, 2, 4]).reshape([self.count, 32]);
                self.half(0) * nonlinear(&indices)
            }
            BlockFormat::IQ4_XS => {
                let lower = self.integers(4, 4, [4, 2, 4], 8);
                let upper = self.integers(2, 2, [2, 4, 2], 8);
                let scales = self.half(0) * (lower + upper * 16.0 - 32.0);
                let indices = self.fields(8, 128, [8, 2, 4]).reshape([self.count, 8, 32]);
                self.groups(&scales, 8) * nonlinear(&indices)
            }
        }
    }

    fn q2_k(&self) -> Var<'e> {
        let packed = self.fields(0, 16, [1, 2, 4]);
        let part = |index: usize| narrow(&packed, 2, index, 1).cast(DType::F32).reshape([self.count, 16]);
        let scales = self.groups(&(self.half(80) * part(0)), 16);
        let minima = self.groups(&(self.half(82) * part(1)), 16);
        scales * self.groups(&self.fields(16, 64, [2, 4, 2]), 16) - minima
    }

    fn q3_k(&self) -> Var<'e> {
        let scales = self.integers(96, 8, [1, 2, 4], 16) + self.integers(104, 4, [1, 4, 2], 16) * 16.0 - 32.0;
        let lower = self.groups(&self.fields(32, 64, [2, 4, 2]), 16);
        let third = self.groups(&self.fields(0, 32, [1, 8, 1]), 16);
        self.groups(&(self.half(108) * scales), 16) * (lower + third * 4.0 - 4.0)
    }

    /// The scales and minima of the 8 groups of a block, `[count, 8, 1]`.
    fn scales_and_minima(&self) -> (Var<'e>, Var<'e>) {
        let [low, middle, high] = [4, 8, 12].map(|start| self.part(start, 4));
        let six = |bytes: &Var<'e>| bytes.and(&bytes.scalar(63));
        let last = |lower: Var<'e>, upper: &Var<'e>| {
            let upper = upper.binary(Binary::Shr, &upper.scalar(6)).binary(Binary::Shl, &upper.scalar(4));
            lower.or(&upper)
        };
        let scales = [six(&low), last(high.and(&high.scalar(15)), &low)];
        let minima = [six(&middle), last(high.binary(Binary::Shr, &high.scalar(4)), &middle)];
        let all = |unit: usize, parts: [Var<'e>; 2]| {
            self.groups(&(self.half(unit) * Var::concat(&parts, 1).cast(DType::F32)), 8)
        };
        (all(0, scales), all(2, minima))
    }

    /// 32 5-bit integers: 32 fifth bits from `start`, then the 4 lower bits.
    fn five_bits(&self, start: usize) -> Var<'e> {
        self.integers(start + 4, 16, [1, 2, 4], 32) + self.integers(start, 4, [4, 8, 1], 32) * 16.0
    }

    fn part(&self, start: usize, len: usize) -> Var<'e> {
        narrow(&self.bytes, 1, start, len)
    }

    /// The bit fields of `len` bytes from `start`. The bytes are split into `parts`; in each part, the first fields of
    /// all bytes precede the second fields: `[count, parts, fields, bytes of a part]`.
    fn fields(&self, start: usize, len: usize, [parts, fields, bits]: [usize; 3]) -> Var<'e> {
        let bytes = self.part(start, len).reshape([self.count, parts, 1, len / parts]);
        let places = Var::iota(bytes.engine(), TensorType::new([fields, 1], DType::U8), 0);
        let shifts = places.binary(Binary::Mul, &places.scalar(bits as u64));
        bytes.binary(Binary::Shr, &shifts).and(&bytes.scalar((1_u64 << bits) - 1))
    }

    /// [`fields`](Blocks::fields) as `f32`, `[count, elements]`.
    fn integers(&self, start: usize, len: usize, layout: [usize; 3], elements: usize) -> Var<'e> {
        self.fields(start, len, layout).cast(DType::F32).reshape([self.count, elements])
    }

    /// Signed bytes as `f32`, `[count, len]`.
    fn signed(&self, start: usize, len: usize) -> Var<'e> {
        self.part(start, len).apply(Op::Bitcast(DType::I8), &[]).cast(DType::F32)
    }

    /// Numbers in `f32`, split into groups of equal length: `[count, groups, elements of a group]`.
    fn groups(&self, x: &Var<'e>, groups: usize) -> Var<'e> {
        let elements = product(&x.shape()[1..]) / groups;
        x.cast(DType::F32).reshape([self.count, groups, elements])
    }

    /// The bits of `bytes` bytes in little-endian order, `u32[count, 1]`.
    fn bits(&self, start: usize, bytes: usize) -> Var<'e> {
        let byte = |place: usize| {
            let byte = self.part(start + place, 1).cast(DType::U32);
            if place == 0 { byte } else { byte.binary(Binary::Shl, &byte.scalar(8 * place as u64)) }
        };
        (1..bytes).fold(byte(0), |bits, place| bits.or(&byte(place)))
    }

    /// A number in single precision, `f32[count, 1]`.
    fn single(&self, start: usize) -> Var<'e> {
        bitcast(&self.bits(start, 4), DType::F32)
    }

    /// A number in half precision, `f32[count, 1]`. Integer ops decode it, since not every engine has 16-bit dtypes.
    fn half(&self, start: usize) -> Var<'e> {
        let bits = self.bits(start, 2);
        let number = |n: u32| bits.scalar(n);
        let magnitude = bits.and(&number(0x7fff));
        let is_below = |n: u32| magnitude.compare(Comparison::Lt, &number(n));
        let placed = magnitude.binary(Binary::Shl, &number(13));
        // The exponent biases are 15 and 127.
        let normal = placed.binary(Binary::Add, &number((127 - 15) << 23));
        let subnormal = bitcast(&(magnitude.cast(DType::F32) * f64::from(f32::EPSILON / 2.0)), DType::U32);
        let beyond = placed.or(&number(f32::INFINITY.to_bits()));
        let finite = is_below(0x400).select(&subnormal, &normal);
        let unsigned = is_below(0x7c00).select(&finite, &beyond);
        let sign = bits.and(&number(0x8000)).binary(Binary::Shl, &number(16));
        bitcast(&unsigned.or(&sign), DType::F32)
    }
}

fn bitcast<'e>(x: &Var<'e>, dtype: DType) -> Var<'e> {
    x.apply(Op::Bitcast(dtype), &[])
}

/// The values at 4-bit indices of the nonlinear table, in `f32`: a binary tree of selections by the index's bits.
fn nonlinear<'e>(indices: &Var<'e>) -> Var<'e> {
    let is_set = |bit: u64| {
        let bit = indices.scalar(1_u64 << bit);
        indices.and(&bit).compare(Comparison::Ne, &indices.scalar(0_u64))
    };
    let least = indices.and(&indices.scalar(1_u64)).cast(DType::F32);
    let pair =
        |&[even, odd]: &[i8; 2]| &least * f64::from(i16::from(odd) - i16::from(even)) + f64::from(even);
    let mut level: alloc::vec::Vec<Var<'e>> = BlockFormat::NONLINEAR.as_chunks().0.iter().map(pair).collect();
    for bit in 1..4 {
        let is_set = is_set(bit);
        level = level.chunks(2).map(|pair| is_set.select(&pair[1], &pair[0])).collect();
    }
    level.remove(0)
}
