//! Full, Iota and Random: tensor creation.

use crate::Cpu;
use crate::array::Array;
use crate::copy::Shared;
use crate::half_float::HalfFloat;
use crate::isa::{Widest, multiversion};
use crate::scalar::{scalar_bytes, with_dtype, with_size};
use half::{bf16, f16};
use kiln_ir::{DType, Element, Operand, Operands, RandomKind, Result, TensorType, Values, philox};
use smallvec::smallvec;

/// The minimum elements per task that are only written.
const GRAIN: usize = 1 << 16;

/// Random words generated at a time; a multiple of four times the number of lanes.
const WORDS: usize = 256;

pub(crate) fn full(cpu: &Cpu, ty: &TensorType, inputs: &Operands) -> Result<Values> {
    let bytes = match &inputs[0] {
        Operand::Scalar(scalar) => scalar_bytes(*scalar, ty.dtype),
        Operand::Value(_) => [0; 8],
    };
    let result = if bytes == [0; 8] {
        Array::zeros(ty)?
    } else {
        let result = Array::uninit(ty)?;
        let target = Shared::new(result.as_mut_ptr::<u8>());
        with_size!(ty.dtype.size(), T => {
            let mut number = [0; size_of::<T>()];
            number.copy_from_slice(&bytes[..size_of::<T>()]);
            let number = T::from_ne_bytes(number);
            cpu.pool.parallel_for(ty.num_elements(), GRAIN, |range| {
                // SAFETY: this thread's part of a fresh buffer.
                unsafe { stretch::<T>(target, range) }.fill(number);
            });
        });
        result
    };
    Ok(smallvec![result.into_value(*ty)])
}

/// A mutable part of a fresh buffer.
///
/// # Safety
/// The range is within the buffer, has no other user, and is written before it is read. Any bits are a valid `T`.
unsafe fn stretch<'a, T>(target: Shared<u8>, range: core::ops::Range<usize>) -> &'a mut [T] {
    // SAFETY: as the caller promises.
    unsafe { core::slice::from_raw_parts_mut(target.get().cast::<T>().add(range.start), range.len()) }
}

pub(crate) fn iota(cpu: &Cpu, ty: &TensorType, axis: usize) -> Result<Values> {
    let result = Array::uninit(ty)?;
    let target = Shared::new(result.as_mut_ptr::<u8>());
    let length = ty.shape[axis];
    let inner: usize = ty.shape[axis + 1..].iter().product();
    let rows: usize = ty.shape[..=axis].iter().product();
    with_dtype!(ty.dtype, T => cpu.pool.parallel_for(rows, GRAIN.div_ceil(inner.max(1)), |range| {
        for row in range {
            let index = <T as Element>::from_i128((row % length) as i128);
            // SAFETY: this row of a fresh buffer.
            unsafe { stretch::<T>(target, row * inner..(row + 1) * inner) }.fill(index);
        }
    }));
    Ok(smallvec![result.into_value(*ty)])
}

pub(crate) fn random(cpu: &Cpu, ty: &TensorType, kind: RandomKind, inputs: &Operands) -> Result<Values> {
    let key: u64 = match &inputs[0] {
        Operand::Scalar(scalar) => scalar.element(),
        Operand::Value(value) => {
            // SAFETY: a `u64` tensor of one element.
            unsafe { Array::of(value)?.as_ptr::<u64>().read_unaligned() }
        }
    };
    let result = Array::uninit(ty)?;
    let source = Source { cpu, key, target: Shared::new(result.as_mut_ptr()), n: ty.num_elements() };
    match (kind, ty.dtype) {
        (RandomKind::Normal, DType::F64) => source.normal::<f64>(),
        (RandomKind::Normal, DType::F16) => source.normal::<f16>(),
        (RandomKind::Normal, DType::BF16) => source.normal::<bf16>(),
        (RandomKind::Normal, _) => source.normal::<f32>(),
        (RandomKind::Uniform, DType::F64) => {
            source.pairs(|word| (word >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0))
        }
        (RandomKind::Uniform, DType::F16) => {
            source.words(|word| f16::narrow((word >> 21) as f32 * (1.0 / 2048.0)));
        }
        (RandomKind::Uniform, DType::BF16) => {
            source.words(|word| bf16::narrow((word >> 24) as f32 * (1.0 / 256.0)));
        }
        (RandomKind::Uniform, _) => source.words(|word| (word >> 8) as f32 * (1.0 / 16_777_216.0)),
        (RandomKind::Bits, _) => match ty.dtype.size() {
            1 => source.words(|word| word as u8),
            2 => source.words(|word| word as u16),
            4 => source.words(|word| word),
            _ => source.pairs(|word| word),
        },
    }
    Ok(smallvec![result.into_value(*ty)])
}

multiversion! {
    /// The words of consecutive blocks of a stream, from block `first` on.
    fn random_words[]<> in { Widest::Avx512 } (key: u64, first: u64, words: &mut [u32; WORDS]) {
        const LANES: usize = 16;
        for (group, words) in words.chunks_exact_mut(4 * LANES).enumerate() {
            let start = first.wrapping_add((group * LANES) as u64);
            let mut lanes = [[0u32; 4]; LANES];
            for (lane, block) in lanes.iter_mut().enumerate() {
                *block = philox::block(key, start.wrapping_add(lane as u64));
            }
            words.copy_from_slice(lanes.as_flattened());
        }
    }
}

/// A stream of random words, and its destination.
struct Source<'a> {
    cpu: &'a Cpu,
    key: u64,
    target: Shared<u8>,
    n: usize,
}

impl Source<'_> {
    /// One element per word.
    fn words<T>(&self, map: impl Fn(u32) -> T + Sync) {
        self.groups(WORDS, 1 << 13, |words, part: &mut [T]| {
            for (element, word) in part.iter_mut().zip(words) {
                *element = map(*word);
            }
        });
    }

    /// One element per two words, the low word first.
    fn pairs<T>(&self, map: impl Fn(u64) -> T + Sync) {
        self.groups(WORDS / 2, 1 << 12, |words, part: &mut [T]| {
            for (element, pair) in part.iter_mut().zip(words.as_chunks::<2>().0) {
                *element = map(u64::from(pair[0]) | u64::from(pair[1]) << 32);
            }
        });
    }

    /// Two elements per two words, by the Box-Muller transform.
    fn normal<T: Element>(&self) {
        self.groups(WORDS, 1 << 10, |words, part: &mut [T]| {
            for (pair, words) in part.chunks_mut(2).zip(words.as_chunks::<2>().0) {
                let u = (f64::from(words[0]) + 1.0) * (1.0 / 4_294_967_296.0);
                let angle = f64::from(words[1]) * (core::f64::consts::TAU / 4_294_967_296.0);
                let radius = libm::sqrt(-2.0 * libm::log(u));
                let (sin, cos) = libm::sincos(angle);
                for (element, part) in pair.iter_mut().zip([cos, sin]) {
                    *element = T::from_f64(radius * part);
                }
            }
        });
    }

    /// Calls `make` with the next [`WORDS`] words and the part of the result that they fill, of up to `group` elements.
    /// `grain`: the minimum elements per task.
    fn groups<T>(&self, group: usize, grain: usize, make: impl Fn(&[u32; WORDS], &mut [T]) + Sync) {
        let blocks = WORDS as u64 / 4;
        self.cpu.pool.parallel_for(self.n.div_ceil(group), grain / group, |range| {
            let mut words = [0; WORDS];
            for number in range {
                random_words(self.cpu.level, self.key, number as u64 * blocks, &mut words);
                let start = number * group;
                // SAFETY: this group's part of a fresh buffer; every element of it is written.
                make(&words, unsafe { stretch(self.target, start..(start + group).min(self.n)) });
            }
        });
    }
}
