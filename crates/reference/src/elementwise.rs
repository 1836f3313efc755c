//! Functions of each element.

use crate::call::Call;
use crate::numbers::{Number, Numbers, wholes};
use crate::places::pick;
use core::cmp::Ordering;
use kiln_ir::{Binary, Comparison, DType, Result, TensorData, Unary};

pub(crate) fn cast(x: &TensorData, dtype: DType) -> Result<TensorData> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    Numbers::of(x).into_data(x.ty().with_dtype(dtype))
}

pub(crate) fn unary(x: &TensorData, function: Unary) -> Result<TensorData> {
    let dtype = x.dtype();
    let numbers = match Numbers::of(x) {
        Numbers::Real(x) => Numbers::Real(x.into_iter().map(|x| unary_real(function, x)).collect()),
        Numbers::Whole(x) => Numbers::Whole(x.into_iter().map(|x| unary_whole(function, x, dtype)).collect()),
    };
    numbers.into_data(x.ty())
}

fn unary_real(function: Unary, x: f64) -> f64 {
    match function {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sign => {
            if x.is_nan() || x == 0.0 {
                x
            } else {
                x.signum()
            }
        }
        Unary::Recip => 1.0 / x,
        Unary::Sqrt => libm::sqrt(x),
        Unary::Rsqrt => 1.0 / libm::sqrt(x),
        Unary::Exp => libm::exp(x),
        Unary::Expm1 => libm::expm1(x),
        Unary::Ln => libm::log(x),
        Unary::Log1p => libm::log1p(x),
        Unary::Sin => libm::sin(x),
        Unary::Cos => libm::cos(x),
        Unary::Tan => libm::tan(x),
        Unary::Tanh => libm::tanh(x),
        Unary::Atan => libm::atan(x),
        Unary::Erf => libm::erf(x),
        Unary::Floor => libm::floor(x),
        Unary::Ceil => libm::ceil(x),
        Unary::Round => libm::rint(x),
        Unary::Trunc => libm::trunc(x),
        Unary::Not => unreachable!("inference refuses `not` of floats"),
    }
}

fn unary_whole(function: Unary, x: i128, dtype: DType) -> i128 {
    match function {
        Unary::Neg => x.wrapping_neg(),
        Unary::Abs => x.abs(),
        Unary::Sign => x.signum(),
        Unary::Not if dtype.is_bool() => 1 - x,
        Unary::Not => !x,
        Unary::Recip
        | Unary::Sqrt
        | Unary::Rsqrt
        | Unary::Exp
        | Unary::Expm1
        | Unary::Ln
        | Unary::Log1p
        | Unary::Sin
        | Unary::Cos
        | Unary::Tan
        | Unary::Tanh
        | Unary::Atan
        | Unary::Erf
        | Unary::Floor
        | Unary::Ceil
        | Unary::Round
        | Unary::Trunc => unreachable!("inference refuses this function of integers"),
    }
}

pub(crate) fn binary(call: &Call<'_>, function: Binary) -> Result<TensorData> {
    let ty = call.ty();
    let (a, b) = (call.filled(0, ty)?, call.filled(1, ty)?);
    let numbers = match (Numbers::of(&a), Numbers::of(&b)) {
        (Numbers::Real(a), Numbers::Real(b)) => {
            Numbers::Real(a.into_iter().zip(b).map(|(a, b)| binary_real(function, a, b)).collect())
        }
        (Numbers::Whole(a), Numbers::Whole(b)) => {
            let width = ty.dtype.size() as i128 * 8;
            Numbers::Whole(a.into_iter().zip(b).map(|(a, b)| binary_whole(function, a, b, width)).collect())
        }
        (Numbers::Real(_), Numbers::Whole(_)) | (Numbers::Whole(_), Numbers::Real(_)) => {
            unreachable!("inference refuses operands of different dtypes")
        }
    };
    numbers.into_data(ty)
}

fn binary_real(function: Binary, a: f64, b: f64) -> f64 {
    match function {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Rem => libm::fmod(a, b),
        Binary::Pow => libm::pow(a, b),
        Binary::Min => a.lesser(b),
        Binary::Max => a.greater(b),
        Binary::Atan2 => libm::atan2(a, b),
        Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => {
            unreachable!("inference refuses this function of floats")
        }
    }
}

/// Of integers of `width` bits; the result is yet to be wrapped.
fn binary_whole(function: Binary, a: i128, b: i128, width: i128) -> i128 {
    match function {
        Binary::Add => a.plus(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.times(b),
        Binary::Div => a.checked_div(b).unwrap_or(0),
        Binary::Rem => a.checked_rem(b).unwrap_or(0),
        Binary::Pow => pow_whole(a, b),
        Binary::Min => a.lesser(b),
        Binary::Max => a.greater(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl => {
            if (0..width).contains(&b) {
                a << b
            } else {
                0
            }
        }
        Binary::Shr => {
            if (0..width).contains(&b) {
                a >> b
            } else {
                a.signum().min(0)
            }
        }
        Binary::Atan2 => unreachable!("inference refuses the angle of integers"),
    }
}

/// `base` to the power `exponent`, modulo 2¹²⁸. A negative exponent gives the real result truncated, which is
/// 0 but for the bases 1 and -1; and 0, like a division by zero, for the base 0.
fn pow_whole(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut power, mut square, mut rest) = (1i128, base, exponent);
    while rest > 0 {
        if rest % 2 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest /= 2;
    }
    power
}

pub(crate) fn compare(call: &Call<'_>, comparison: Comparison) -> Result<TensorData> {
    fn holds<N: Number>(comparison: Comparison, a: N, b: N) -> bool {
        // Nothing where one is a NaN.
        let order = a.partial_cmp(&b);
        match comparison {
            Comparison::Eq => order == Some(Ordering::Equal),
            Comparison::Ne => order != Some(Ordering::Equal),
            Comparison::Lt => order == Some(Ordering::Less),
            Comparison::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        }
    }
    let ty = call.common(0..2);
    let (a, b) = (call.filled(0, ty)?, call.filled(1, ty)?);
    let truths = match (Numbers::of(&a), Numbers::of(&b)) {
        (Numbers::Real(a), Numbers::Real(b)) => {
            a.into_iter().zip(b).map(|(a, b)| holds(comparison, a, b)).collect()
        }
        (Numbers::Whole(a), Numbers::Whole(b)) => {
            a.into_iter().zip(b).map(|(a, b)| holds(comparison, a, b)).collect()
        }
        (Numbers::Real(_), Numbers::Whole(_)) | (Numbers::Whole(_), Numbers::Real(_)) => {
            unreachable!("inference refuses operands of different dtypes")
        }
    };
    TensorData::from_elements(kiln_ir::Elements::Bool(truths), ty.shape)
}

pub(crate) fn select(call: &Call<'_>) -> Result<TensorData> {
    let ty = call.ty();
    let condition = wholes(call.data(0)?);
    let (a, b) = (call.filled(1, ty)?, call.filled(2, ty)?);
    let count = condition.len();
    let places = condition.iter().enumerate().map(|(i, &holds)| if holds != 0 { i } else { count + i });
    pick(&[&a, &b], places, ty.shape)
}
