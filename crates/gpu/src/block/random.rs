//! Block kernels of random numbers: Philox4x32-10 in words of 32 bits.
//!
//! Bits and uniform numbers are exactly those of [`philox`](kiln_ir::philox). Normal numbers agree with them up to
//! rounding, in the dtype of the arithmetic: relative errors below 2⁻²¹ in `f32`. The logarithm, sine and cosine are
//! polynomials, since a device may have none in `f64` and imprecise ones in `f32`.

use kiln_ir::{DType, RandomKind, Scalar, Unary};
use kiln_kernel::block::{BlockKernel, Buffer, Builder, Expression, constant, index, select};

/// Threads per block.
const THREADS: u32 = 256;

/// Rounds of the generator.
const ROUNDS: u32 = 10;

/// Multipliers of the counter in each round.
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];

/// Increments of the key from round to round.
const INCREMENTS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// A distribution, the dtype of its numbers, and the source of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    pub(crate) kind: RandomKind,
    pub(crate) dtype: DType,
    /// The dtype of arithmetic on normal numbers: `f64`, or `f32` where a device lacks it.
    pub(crate) computed: DType,
    /// Whether the key is a tensor, of which the kernel reads two words, or two numbers.
    pub(crate) has_key_tensor: bool,
}

impl Draw {
    /// Elements per four words.
    pub(crate) fn each(&self) -> usize {
        if self.kind != RandomKind::Normal && self.dtype.size() == 8 { 2 } else { 4 }
    }

    fn elements(&self, k: &Builder, words: &[Expression; 4]) -> Vec<Expression> {
        match self.kind {
            RandomKind::Bits if self.each() == 2 => {
                let pair = |low: &Expression, high: &Expression| {
                    (high.cast(DType::U64).shl(32) | low.cast(DType::U64)).cast(self.dtype)
                };
                vec![pair(&words[0], &words[1]), pair(&words[2], &words[3])]
            }
            RandomKind::Bits => words.iter().map(|word| word.cast(self.dtype)).collect(),
            RandomKind::Uniform if self.each() == 2 => {
                vec![uniform_f64(&words[0], &words[1]), uniform_f64(&words[2], &words[3])]
            }
            RandomKind::Uniform => words.iter().map(|word| uniform(word, self.dtype)).collect(),
            RandomKind::Normal => {
                let pairs = [[&words[0], &words[1]], [&words[2], &words[3]]];
                let drawn =
                    pairs.into_iter().flat_map(|[first, second]| normal(k, first, second, self.computed));
                drawn.map(|number| number.cast(self.dtype)).collect()
            }
        }
    }
}

/// Fills a tensor. Parameters: the key tensor if there is one; the result; the two words of the key if they are numbers;
/// the number of generator blocks and of elements.
pub(crate) fn random(draw: &Draw) -> BlockKernel {
    let k = Builder::new("random", THREADS);
    let (key, y) = if draw.has_key_tensor {
        let tensor = k.input("key", DType::U32);
        let y = k.output("y", draw.dtype);
        ([0, 1].map(|half| k.bind(&tensor.at(&index(half)))), y)
    } else {
        let y = k.output("y", draw.dtype);
        (["key_low", "key_high"].map(|name| k.number(name, DType::U32)), y)
    };
    let [blocks, total] = k.lengths(["blocks", "total"]);
    k.for_points(&blocks, |block| {
        let words = philox(&k, &block, &key);
        let elements = draw.elements(&k, &words);
        store_elements(&k, &y, &(&block * &index(draw.each())), &total, &elements);
    });
    k.finish()
}

fn store_elements(k: &Builder, y: &Buffer, first: &Expression, total: &Expression, elements: &[Expression]) {
    for (place, element) in elements.iter().enumerate() {
        let at = k.bind(&(first + &index(place)));
        k.when(&at.lt(total), || k.store(y, &at, element));
    }
}

fn word(value: u32) -> Expression {
    constant(Scalar::UInt(value.into()), DType::U32)
}

/// The words of a generator block. Counters have 32 bits, since no tensor has more blocks.
fn philox(k: &Builder, block: &Expression, key: &[Expression; 2]) -> [Expression; 4] {
    let mut words = [k.bind(&block.cast(DType::U32)), word(0), word(0), word(0)];
    let mut key = key.clone();
    for _ in 0..ROUNDS {
        let [a, b] = MULTIPLIERS.map(word);
        words = [
            k.bind(&(words[2].mul_high(&b) ^ &words[1] ^ &key[0])),
            k.bind(&(&words[2] * &b)),
            k.bind(&(words[0].mul_high(&a) ^ &words[3] ^ &key[1])),
            k.bind(&(&words[0] * &a)),
        ];
        key = [0, 1].map(|half| k.bind(&(&key[half] + &word(INCREMENTS[half]))));
    }
    words
}

/// As many of the topmost bits of a word as the dtype represents exactly, as a fraction.
fn uniform(word: &Expression, dtype: DType) -> Expression {
    let bits = match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        // Inference rejects dtypes other than floats; those of 64 bits take two words.
        DType::F64
        | DType::F32
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => 24,
    };
    let scale = constant(1.0 / f64::from(1u32 << bits), DType::F32);
    (word.shr(32 - bits).cast(DType::F32) * scale).cast(dtype)
}

/// The topmost 53 of 64 bits as a fraction. The sum of both parts is exact.
fn uniform_f64(low: &Expression, high: &Expression) -> Expression {
    let number = |value: f64| constant(value, DType::F64);
    let upper = high.cast(DType::F64) * number(f64::from(1u32 << 21));
    (upper + low.shr(11).cast(DType::F64)) * number(0.5f64.powi(53))
}

/// Two normal numbers of two words, by the Box-Muller transform.
fn normal(k: &Builder, first: &Expression, second: &Expression, dtype: DType) -> [Expression; 2] {
    let radius = k.bind(&k.bind(&twice_log(k, first, dtype)).unary(Unary::Sqrt));
    circle(k, second, dtype).map(|coordinate| &radius * &coordinate)
}

/// `-2 ln((word + 1) / 2^32)`. With `word + 1 = 2^e m` and `m` near 1, `ln m` is a series in `s = (m - 1) / (m + 1)`,
/// where integers give `m - 1` without cancellation.
fn twice_log(k: &Builder, word_of: &Expression, dtype: DType) -> Expression {
    let number = |value: f64| constant(value, dtype);
    let approximate = word_of.cast(DType::F32) + constant(1.0, DType::F32);
    // Rounds the exponent so that m is between the square roots of 1/2 and of 2.
    let biased = (approximate.bitcast(DType::U32) + word(0x3F80_0000 - 0x3F35_04F3)).shr(23);
    let exponent = k.bind(&(biased - word(127)));
    let power = power_of_two(k, &exponent);
    let scale = (word(127) - &exponent).shl(23).bitcast(DType::F32).cast(dtype);
    let rest = (word_of + &word(1) - power).bitcast(DType::I32).cast(dtype);
    let rest = k.bind(&(rest * scale));
    let s = k.bind(&(&rest / &(&rest + &number(2.0))));
    let square = k.bind(&(&s * &s));
    let terms = if dtype == DType::F64 { 12 } else { 6 };
    let series: Vec<f64> = (0..terms).map(|term| 4.0 / f64::from(2 * term + 1)).collect();
    let log = s * polynomial(k, &square, &series, dtype);
    (word(32) - &exponent).cast(dtype) * number(2.0 * core::f64::consts::LN_2) - log
}

/// `2^exponent` in 32 bits; 0 for 32.
fn power_of_two(k: &Builder, exponent: &Expression) -> Expression {
    // The shift is below 32 in both branches.
    let shift = k.bind(&(exponent & &word(31)));
    let power = word(1).binary(kiln_ir::Binary::Shl, &shift);
    select(&exponent.lt(&word(32)), &power, &word(0))
}

/// Cosine and sine of `2π word / 2^32`: polynomials in the distance from the nearest quarter turn.
fn circle(k: &Builder, word_of: &Expression, dtype: DType) -> [Expression; 2] {
    let quarter = k.bind(&(word_of + &word(1 << 29)).shr(30));
    let rest = (word_of - &quarter.shl(30)).bitcast(DType::I32).cast(dtype);
    let angle = k.bind(&(rest * constant(core::f64::consts::TAU * 0.5f64.powi(32), dtype)));
    let square = k.bind(&(&angle * &angle));
    let terms = if dtype == DType::F64 { 10 } else { 6 };
    let cosine = k.bind(&polynomial(k, &square, &alternating(0, terms), dtype));
    let sine = k.bind(&(&angle * &polynomial(k, &square, &alternating(1, terms), dtype)));
    let turned = (&quarter & &word(1)).eq(&word(1));
    let [x, y] = [select(&turned, &sine, &cosine), select(&turned, &cosine, &sine)].map(|z| k.bind(&z));
    let is_left = (&(&quarter + &word(1)) & &word(2)).eq(&word(2));
    let is_below = (&quarter & &word(2)).eq(&word(2));
    [select(&is_left, &-&x, &x), select(&is_below, &-&y, &y)]
}

/// `(-1)^i / (2i + first)!`: the Taylor series of the cosine (0), or of the sine (1) divided by its argument.
fn alternating(first: u32, terms: u32) -> Vec<f64> {
    let factorial = |n: u32| (1..=n).map(f64::from).product::<f64>();
    let sign = |i: u32| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    (0..terms).map(|i| sign(i) / factorial(2 * i + first)).collect()
}

/// A polynomial by Horner's rule, with the coefficient of degree 0 first.
fn polynomial(k: &Builder, x: &Expression, coefficients: &[f64], dtype: DType) -> Expression {
    let mut sum = constant(0.0, dtype);
    for (place, &coefficient) in coefficients.iter().rev().enumerate() {
        let coefficient = constant(coefficient, dtype);
        sum = if place == 0 { coefficient } else { k.bind(&(sum * x + coefficient)) };
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::printed::assert_printed;

    fn check(kind: RandomKind, dtype: DType, computed: DType) {
        for has_key_tensor in [false, true] {
            assert_printed(&random(&Draw { kind, dtype, computed, has_key_tensor }));
        }
    }

    #[test]
    fn bits_are_printed() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
            check(RandomKind::Bits, dtype, DType::F32);
        }
    }

    #[test]
    fn floats_are_printed() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            check(RandomKind::Uniform, dtype, DType::F32);
        }
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            check(RandomKind::Normal, dtype, DType::F32);
        }
        check(RandomKind::Normal, DType::F64, DType::F64);
    }
}
