//! Uniform numbers of a range.

use super::{Key, numbers};
use crate::{AnyTensor, DType, Error, Result, Scalar, Stack, TensorType, bf16, f16};
use alloc::format;
use kiln_ir::{Binary, RandomKind};

/// Draws uniform integers from `first` to `last`, both included: the upper bits of the product of their number with
/// random bits, 64 for at most 2³² integers and 128 for more. Two integers differ in probability by less than 2⁻³² of
/// it.
///
/// Source: [Lemire 2019](https://doi.org/10.1145/3230636), without the rejection of draws.
///
/// # Errors
/// When the dtype is no integer, or cannot represent `first` or `last`; `op` is the op in the message.
pub(crate) fn integers(
    op: &str,
    ty: TensorType,
    [first, last]: [i128; 2],
    key: Key,
    stack: &Stack,
) -> Result<AnyTensor> {
    let fits = |x: &Scalar| ty.dtype.is_int() && x.fits(ty.dtype);
    let [Some(start), Some(_)] = [first, last].map(|x| whole(x).filter(fits)) else {
        let problem = match ty.dtype.is_int() {
            true => format!("the integers from {first} to {last} are out of bounds for {}", ty.dtype),
            false => "needs an integer dtype".into(),
        };
        return Err(Error::type_error(op, problem, &[(&ty).into()])
            .hint("use an integer dtype that can represent the range"));
    };
    let count = last.abs_diff(first) + 1;
    let word = if count <= 1 << 32 { DType::U32 } else { DType::U64 };
    let words = numbers(TensorType::new([ty.num_elements(), 2], word), RandomKind::Bits, key, stack)?;
    let (low, high) = (words.clone().narrow(1, 0, 1)?, words.narrow(1, 1, 1)?);
    let offset = match u64::try_from(count) {
        Ok(count) if word == DType::U64 || count < 1 << 32 => high.expression_with([low], |high, [low]| {
            let ((whole, rest), (more, _)) = (high.mul_wide(count), low.mul_wide(count));
            let sum = rest.binary(Binary::Add, &more);
            whole.binary(Binary::Add, &sum.less(&rest).cast(word))
        }),
        // As many integers as a word has values.
        Ok(_) | Err(_) => high,
    };
    // The sum wraps into the range if an offset does not fit the dtype.
    offset.reshape(ty.shape)?.cast(ty.dtype)?.binary_scalar(Binary::Add, start)
}

fn whole(x: i128) -> Option<Scalar> {
    i64::try_from(x).map(Scalar::Int).or(u64::try_from(x).map(Scalar::UInt)).ok()
}

/// Draws uniform floats from `low` to below `high`, which are computed in at least `f32` and rounded within the range.
///
/// # Errors
/// As [`least_and_greatest`].
pub(crate) fn floats(ty: TensorType, low: f64, high: f64, key: Key, stack: &Stack) -> Result<AnyTensor> {
    let [least, greatest] = least_and_greatest(ty.dtype, low, high)?;
    let wide = ty.dtype.accumulator();
    // A range that is wider than the greatest number is drawn at half its size.
    let size = if nearest(high - low, wide).is_finite() { 1.0 } else { 0.5 };
    let x = numbers(ty.with_dtype(wide), RandomKind::Uniform, key, stack)?;
    let x = x.binary_scalar(Binary::Mul, high * size - low * size)?.binary_scalar(Binary::Add, low * size)?;
    let x = if size == 1.0 { x } else { x.binary_scalar(Binary::Div, size)? };
    x.clamp(least, greatest)?.cast(ty.dtype)
}

/// Returns the least number of a float dtype that is not below `low`, and the greatest that is below `high`.
///
/// # Errors
/// When a bound is beyond the greatest finite number of the dtype, or no number of the dtype is in the range.
pub(crate) fn least_and_greatest(dtype: DType, low: f64, high: f64) -> Result<[f64; 2]> {
    let problem = if [low, high].iter().all(|bound| nearest(*bound, dtype).is_finite()) {
        let (least, greatest) = (-at_most(-low, dtype), below(high, dtype));
        if least <= greatest {
            return Ok([least, greatest]);
        }
        format!("no {dtype} number is from {low} to below {high}")
    } else {
        format!("the bounds {low} and {high} exceed the numbers of {dtype}")
    };
    Err(Error::value("random", problem).hint("use a wider range or another float dtype"))
}

/// Returns the greatest number of a float dtype that is at most `x`.
fn at_most(x: f64, dtype: DType) -> f64 {
    let near = nearest(x, dtype);
    if near > x { predecessor(near, dtype) } else { near }
}

/// Returns the greatest number of a float dtype that is below `x`.
fn below(x: f64, dtype: DType) -> f64 {
    let near = nearest(x, dtype);
    if near < x { near } else { predecessor(near, dtype) }
}

fn nearest(x: f64, dtype: DType) -> f64 {
    match dtype.size() {
        2 if dtype == DType::F16 => f16::from_f64(x).to_f64(),
        2 => bf16::from_f64(x).to_f64(),
        4 => f64::from(x as f32),
        _ => x,
    }
}

/// Returns the next number of a float dtype below one of its numbers.
fn predecessor(x: f64, dtype: DType) -> f64 {
    let step = |bits: u16| match bits {
        0 | 0x8000 => 0x8001,
        0x8001.. => bits + 1,
        _ => bits - 1,
    };
    match dtype.size() {
        2 if dtype == DType::F16 => f16::from_bits(step(f16::from_f64(x).to_bits())).to_f64(),
        2 => bf16::from_bits(step(bf16::from_f64(x).to_bits())).to_f64(),
        4 => f64::from((x as f32).next_down()),
        _ => x.next_down(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_numbers_of_the_dtype() {
        // Spacings: 2⁻¹⁰ above 1 in f16 and half of it below, 4 above 512 in bf16, 2⁻¹⁴ above 512 in f32.
        let cases = [
            (DType::F16, 1.0, 2.0, [1.0, 2.0 - 0.5f64.powi(10)]),
            (DType::F16, -1.0, 1.0, [-1.0, 1.0 - 0.5f64.powi(11)]),
            (DType::F16, -2.0, -1.0, [-2.0, -1.0 - 0.5f64.powi(10)]),
            (DType::F16, -1.0, 0.0, [-1.0, -0.5f64.powi(24)]),
            (DType::F16, 0.1, 65_504.0, [0.100_036_621_093_75, 65_472.0]),
            (DType::BF16, 1000.0, 1001.0, [1000.0, 1000.0]),
            (DType::BF16, 0.0, 0.7, [0.0, 0.699_218_75]),
            (DType::F32, 1000.0, 1001.0, [1000.0, 1001.0 - 0.5f64.powi(14)]),
            (DType::F32, -0.1, 0.1, [-0.099_999_994_039_535_52, 0.099_999_994_039_535_52]),
            (DType::F64, 0.0, 1.0, [0.0, 1.0 - 0.5f64.powi(53)]),
        ];
        for (dtype, low, high, expected) in cases {
            assert_eq!(least_and_greatest(dtype, low, high).unwrap(), expected, "{dtype} {low} {high}");
        }
    }
}
