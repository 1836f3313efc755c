//! Contents of operands, reproducible in every run.

use crate::case::Fill;
use kiln_ir::{BlockFormat, DType, TensorData, TensorType};

/// A small pseudorandom generator ([SplitMix64](https://doi.org/10.1145/2714064.2660195)).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator seeded by a text and a number.
    pub fn new(text: &str, number: u64) -> Random {
        let hash = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        Random(text.bytes().fold(0xCBF2_9CE4_8422_2325 ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15), hash))
    }

    /// Returns 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a uniform number in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a uniform number in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.uniform() * n as f64) as usize
    }

    /// Returns a normal number with mean 0 and variance 1.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Returns a tensor of that type filled by a rule.
pub fn filled(ty: TensorType, fill: Fill, random: &mut Random) -> TensorData {
    let n = ty.num_elements();
    if fill == Fill::Bits {
        return random_bits(ty, random);
    }
    if let Fill::Blocks(format) = fill {
        return blocks(ty, format, random);
    }
    if ty.dtype.is_float() {
        let numbers: Vec<f64> = reals(n, fill, ty.dtype, random);
        return data(numbers, ty);
    }
    let numbers: Vec<i64> = integers(n, fill, ty.dtype, random);
    data(numbers, ty)
}

fn data<E: kiln_ir::Element>(numbers: Vec<E>, ty: TensorType) -> TensorData {
    TensorData::new(numbers, ty.shape).expect("as many numbers as elements").convert(ty.dtype)
}

fn reals(n: usize, fill: Fill, dtype: DType, random: &mut Random) -> Vec<f64> {
    if fill == Fill::Distinct {
        return distinct(n, random);
    }
    let corners = float_corners(dtype);
    let mut one = || match fill {
        Fill::Normal => random.normal(),
        Fill::Uniform(low, high) => low + (high - low) * random.uniform(),
        Fill::Positive => 0.5 + 2.0 * random.uniform(),
        Fill::Away => {
            let magnitude = 0.5 + 1.5 * random.uniform();
            if random.below(2) == 0 { magnitude } else { -magnitude }
        }
        Fill::Special => corners[random.below(corners.len())],
        Fill::Among(numbers) => numbers[random.below(numbers.len())],
        Fill::Distinct | Fill::Bits | Fill::Blocks(_) => unreachable!("made as a whole"),
    };
    (0..n).map(|_| one()).collect()
}

fn integers(n: usize, fill: Fill, dtype: DType, random: &mut Random) -> Vec<i64> {
    let corners = int_corners(dtype);
    let mut between = |low: i64, high: i64| {
        let (low, high) = if dtype.is_unsigned_int() && low < 0 { (0, high - low) } else { (low, high) };
        low + random.below((high - low + 1) as usize) as i64
    };
    let mut one = || match fill {
        Fill::Normal if dtype.is_bool() => between(0, 1),
        Fill::Normal | Fill::Distinct => between(-20, 20),
        Fill::Uniform(low, high) => between(low.ceil() as i64, high.floor() as i64),
        Fill::Positive => between(1, 20),
        Fill::Away => {
            let magnitude = between(1, 9);
            if dtype.is_unsigned_int() || between(0, 1) == 0 { magnitude } else { -magnitude }
        }
        Fill::Special => corners[between(0, corners.len() as i64 - 1) as usize],
        Fill::Among(numbers) => numbers[between(0, numbers.len() as i64 - 1) as usize] as i64,
        Fill::Bits | Fill::Blocks(_) => unreachable!("made as a whole"),
    };
    (0..n).map(|_| one()).collect()
}

/// Evenly spaced numbers around 0 in random order, shifted so that two such tensors share none.
fn distinct(n: usize, random: &mut Random) -> Vec<f64> {
    let shift = 0.01 + 0.03 * random.uniform();
    let mut numbers: Vec<f64> = (0..n).map(|i| (i as f64 - n as f64 / 2.0) * 0.05 + shift).collect();
    for i in (1..n).rev() {
        numbers.swap(i, random.below(i + 1));
    }
    numbers
}

/// Blocks of normal numbers. A third of the blocks is smaller, so that scales differ.
fn blocks(ty: TensorType, format: BlockFormat, random: &mut Random) -> TensorData {
    let mut bytes = vec![0; ty.num_elements()];
    let mut values = vec![0.0; format.len()];
    for block in bytes.chunks_mut(format.bytes()) {
        let scale = if random.below(3) == 0 { 0.125 } else { 1.0 };
        values.fill_with(|| (scale * random.normal()) as f32);
        format.encode(&values, block);
    }
    TensorData::from_bytes(&bytes, ty).expect("whole blocks in u8")
}

fn random_bits(ty: TensorType, random: &mut Random) -> TensorData {
    let size = ty.dtype.size();
    let byte = |random: &mut Random| {
        let bits = (random.bits() >> 32) as u8;
        if ty.dtype.is_bool() { bits & 1 } else { bits }
    };
    let bytes: Vec<u8> = (0..ty.num_elements() * size).map(|_| byte(random)).collect();
    TensorData::from_bytes(&bytes, ty).expect("as many bytes as elements take")
}

/// Returns the maximum, the minimum positive normal and the minimum positive subnormal number of a float dtype.
pub fn float_limits(dtype: DType) -> (f64, f64, f64) {
    match dtype {
        DType::F64 => (f64::MAX, f64::MIN_POSITIVE, f64::from_bits(1)),
        DType::F32 => (f32::MAX.into(), f32::MIN_POSITIVE.into(), f32::from_bits(1).into()),
        DType::F16 => (
            half::f16::MAX.to_f64(),
            half::f16::MIN_POSITIVE.to_f64(),
            half::f16::MIN_POSITIVE_SUBNORMAL.to_f64(),
        ),
        DType::BF16 => (
            half::bf16::MAX.to_f64(),
            half::bf16::MIN_POSITIVE.to_f64(),
            half::bf16::MIN_POSITIVE_SUBNORMAL.to_f64(),
        ),
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => (f64::MAX, 1.0, 1.0),
    }
}

/// Returns the machine epsilon of a float dtype: the distance from 1 to the next number; 0 for other dtypes.
pub fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f32::EPSILON.into(),
        DType::F16 => half::f16::EPSILON.to_f64(),
        DType::BF16 => half::bf16::EPSILON.to_f64(),
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => 0.0,
    }
}

fn float_corners(dtype: DType) -> Vec<f64> {
    let (greatest, normal, subnormal) = float_limits(dtype);
    let positive = [
        0.0,
        f64::INFINITY,
        greatest,
        normal,
        subnormal,
        subnormal * 3.0,
        epsilon(dtype),
        0.5,
        1.0,
        1.5,
        2.0,
        2.5,
        3.0,
        100.0,
        1000.0,
    ];
    positive.iter().flat_map(|&x| [x, -x]).chain([f64::NAN]).collect()
}

/// The edge values of an integer dtype as `i64`, which wrap for unsigned dtypes.
fn int_corners(dtype: DType) -> Vec<i64> {
    let bits = 8 * dtype.size() as u32;
    let top = 1i64.wrapping_shl(bits - 1);
    let mut corners = vec![0, 1, 2, 3, 7, -1, -2, -3, i64::from(bits), i64::from(bits) - 1];
    corners.extend([top, top.wrapping_add(1), top.wrapping_sub(1), top.wrapping_sub(2), top >> 1]);
    if dtype.is_bool() { vec![0, 1] } else { corners }
}
