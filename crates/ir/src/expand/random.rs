//! Random numbers, by the generator and layout of [`philox`](crate::philox).

use super::narrow;
use crate::philox::{INCREMENTS, MULTIPLIERS, ROUNDS};
use crate::{Binary, DType, Engine, RandomKind, TensorType, Var};
use alloc::vec::Vec;

pub(super) fn random<'e>(
    engine: &'e dyn Engine,
    ty: &TensorType,
    distribution: RandomKind,
    key: &Var<'e>,
) -> Var<'e> {
    let count = ty.num_elements();
    let generator = Generator { engine, keys: round_keys(key) };
    let elements = match distribution {
        RandomKind::Bits => generator.bits(count, ty.dtype),
        RandomKind::Uniform => generator.uniform(count, ty.dtype),
        RandomKind::Normal => generator.normal(count, ty.dtype),
    };
    narrow(&elements, 0, 0, count).reshape(ty.shape)
}

struct Generator<'e> {
    engine: &'e dyn Engine,
    /// The two halves of the key in each round: plain numbers, or rank-0 tensors.
    keys: Vec<[Var<'e>; 2]>,
}

fn round_keys<'e>(key: &Var<'e>) -> Vec<[Var<'e>; 2]> {
    let Some(scalar) = key.operand().scalar() else {
        let half = |shift: usize| shifted(key, shift).cast(DType::U32);
        let halves = [half(0), half(32)];
        let round = |round: u32, half: usize| {
            let step = key.scalar(INCREMENTS[half].wrapping_mul(round));
            if round == 0 { halves[half].clone() } else { halves[half].binary(Binary::Add, &step) }
        };
        return (0..ROUNDS).map(|r| [round(r, 0), round(r, 1)]).collect();
    };
    let halves = [scalar.to_u64() as u32, (scalar.to_u64() >> 32) as u32];
    let round =
        |round: u32, half: usize| key.scalar(halves[half].wrapping_add(INCREMENTS[half].wrapping_mul(round)));
    (0..ROUNDS).map(|r| [round(r, 0), round(r, 1)]).collect()
}

impl<'e> Generator<'e> {
    /// The four words of each of the first blocks, each `u32[blocks]`.
    fn blocks(&self, blocks: usize) -> [Var<'e>; 4] {
        let ty = TensorType::new([blocks], DType::U32);
        let zero = Var::zeros(self.engine, ty);
        let mut counter = [Var::iota(self.engine, ty, 0), self.high(blocks), zero.clone(), zero];
        for key in &self.keys {
            let [c0, c1, c2, c3] = counter;
            let (a_high, a_low) = c0.mul_wide(MULTIPLIERS[0].into());
            let (b_high, b_low) = c2.mul_wide(MULTIPLIERS[1].into());
            counter = [xor(&xor(&b_high, &c1), &key[0]), b_low, xor(&xor(&a_high, &c3), &key[1]), a_low];
        }
        counter
    }

    /// The upper halves of the block indices.
    fn high(&self, blocks: usize) -> Var<'e> {
        let ty = TensorType::new([blocks], DType::U32);
        if u32::try_from(blocks - 1).is_ok() {
            return Var::zeros(self.engine, ty);
        }
        shifted(&Var::iota(self.engine, ty.with_dtype(DType::U64), 0), 32).cast(DType::U32)
    }

    /// Words in order, one for each of `count` elements or more.
    fn words(&self, count: usize) -> Var<'e> {
        let words = self.blocks(count.div_ceil(4));
        interleaved(&words)
    }

    /// The low and the high words of `count` 64-bit elements or more.
    fn word_pairs(&self, count: usize) -> [Var<'e>; 2] {
        let [w0, w1, w2, w3] = self.blocks(count.div_ceil(2));
        [interleaved(&[w0, w2]), interleaved(&[w1, w3])]
    }

    fn bits(&self, count: usize, dtype: DType) -> Var<'e> {
        if dtype.size() < 8 {
            return self.words(count).cast(dtype);
        }
        let [low, high] = self.word_pairs(count);
        let high = high.cast(dtype);
        low.cast(dtype).or(&high.binary(Binary::Shl, &high.scalar(32)))
    }

    fn uniform(&self, count: usize, dtype: DType) -> Var<'e> {
        for (narrow, bits) in [(DType::F32, 24), (DType::F16, 11), (DType::BF16, 8)] {
            if dtype == narrow {
                return shifted(&self.words(count), 32 - bits).cast(dtype) * power_of_two(-(bits as i64));
            }
        }
        let [low, high] = self.word_pairs(count);
        let number = high.cast(dtype) * 2_097_152.0 + shifted(&low, 11).cast(dtype);
        number * power_of_two(-53)
    }

    fn normal(&self, count: usize, dtype: DType) -> Var<'e> {
        let exact = self.engine.caps().dtypes.contains(DType::F64);
        let working = if exact { DType::F64 } else { DType::F32 };
        let [w0, w1] = self.word_pairs(count.div_ceil(2));
        let u = (w0.cast(working) + 1.0) * power_of_two(-32);
        let angle = w1.cast(working) * (power_of_two(-32) * core::f64::consts::TAU);
        let radius = (u.ln() * -2.0).sqrt();
        interleaved(&[&radius * &angle.cos(), &radius * &angle.sin()]).cast(dtype)
    }
}

/// `2^exponent`, exactly.
fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

fn xor<'e>(a: &Var<'e>, b: &Var<'e>) -> Var<'e> {
    a.binary(Binary::Xor, b)
}

fn shifted<'e>(x: &Var<'e>, bits: usize) -> Var<'e> {
    if bits == 0 { x.clone() } else { x.binary(Binary::Shr, &x.scalar(bits)) }
}

/// Interleaves vectors of one length: the first of each, the second of each, and so on.
fn interleaved<'e>(vectors: &[Var<'e>]) -> Var<'e> {
    let len = vectors[0].shape()[0];
    let columns: Vec<Var<'e>> = vectors.iter().map(|v| v.reshape([len, 1])).collect();
    Var::concat(&columns, 1).reshape([len * vectors.len()])
}
