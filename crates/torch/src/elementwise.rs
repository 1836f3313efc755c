//! Functions of one, two and three elements, and conversions.

use crate::call::{Call, Native, numbers, ordered, rounded, unordered, widened};
use crate::data::stored;
use crate::ffi::Argument::{Int, Real};
use crate::tensor::{Result, Tensor, TorchType};
use core::ffi::CStr;
use kiln_ir::{Binary, Comparison, DType, Unary};

pub(crate) fn unary(call: &Call<'_>, function: Unary) -> Native {
    let (x, dtype) = (call.tensor(0)?, call.dtype());
    if function == Unary::Not {
        return x.map(c"bitwise_not").map(Some);
    }
    if function == Unary::Sqrt && call.place.is_processor() {
        return square_root(&x, dtype);
    }
    if dtype.is_float() {
        let y = float_unary(&widened(&x)?, function)?;
        return y.map(|y| rounded(&y, dtype)).transpose();
    }
    integer_unary(&x, function, dtype)
}

/// MKL's square root may be off by the last bit: narrower floats are computed in `f64`.
fn square_root(x: &Tensor, dtype: DType) -> Native {
    if dtype == DType::F64 {
        return Ok(None);
    }
    let y = widened(x)?.to(TorchType::Double)?.map(c"sqrt")?.to(TorchType::Float)?;
    rounded(&y, dtype).map(Some)
}

/// From this number on, the logarithms of `x` and of `1 + x` are the same float.
const GREAT: f64 = 1e20;

fn float_unary(x: &Tensor, function: Unary) -> Native {
    let op = match function {
        // Of NaN and of zeros, the sign is the operand.
        Unary::Sign => {
            let has_sign = x.map(c"abs")?.with(c"gt.Scalar", Real(0.0))?;
            return has_sign.select(&x.map(c"sign")?, x).map(Some);
        }
        // LibTorch's is infinite for the greatest numbers.
        Unary::Log1p => {
            let is_great = x.with(c"gt.Scalar", Real(GREAT))?;
            return is_great.select(&x.map(c"log")?, &x.map(c"log1p")?).map(Some);
        }
        // LibTorch's has too few digits for negative numbers.
        Unary::Erfcx => return Ok(None),
        Unary::Neg => c"neg",
        Unary::Abs => c"abs",
        Unary::Recip => c"reciprocal",
        Unary::Sqrt => c"sqrt",
        Unary::Rsqrt => c"rsqrt",
        Unary::Exp => c"exp",
        Unary::Expm1 => c"expm1",
        Unary::Ln => c"log",
        Unary::Sin => c"sin",
        Unary::Cos => c"cos",
        Unary::Tan => c"tan",
        Unary::Tanh => c"tanh",
        Unary::Atan => c"atan",
        Unary::Erf => c"erf",
        Unary::Floor => c"floor",
        Unary::Ceil => c"ceil",
        Unary::Round => c"round",
        Unary::Trunc => c"trunc",
        Unary::Not => c"bitwise_not",
    };
    x.map(op).map(Some)
}

fn integer_unary(x: &Tensor, function: Unary, dtype: DType) -> Native {
    let is_signed = dtype.is_signed_int();
    Ok(Some(match function {
        Unary::Neg => x.map(c"neg")?,
        Unary::Abs if is_signed => x.map(c"abs")?,
        Unary::Abs => x.clone(),
        Unary::Sign if is_signed => x.map(c"sign")?,
        Unary::Sign => x.with(c"ne.Scalar", Int(0))?.to(stored(dtype))?,
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
        | Unary::Erfcx
        | Unary::Floor
        | Unary::Ceil
        | Unary::Round
        | Unary::Trunc
        | Unary::Not => return Ok(None),
    }))
}

pub(crate) fn binary(call: &Call<'_>, function: Binary) -> Native {
    let dtype = call.dtype();
    combined(&call.filled(0, dtype)?, &call.filled(1, dtype)?, function, dtype)
}

/// A function of two tensors of a dtype.
pub(crate) fn combined(a: &Tensor, b: &Tensor, function: Binary, dtype: DType) -> Native {
    match function {
        Binary::And => return a.and(c"bitwise_and.Tensor", b).map(Some),
        Binary::Or => return a.and(c"bitwise_or.Tensor", b).map(Some),
        Binary::Xor => return a.and(c"bitwise_xor.Tensor", b).map(Some),
        Binary::Min => return extreme(a, b, c"minimum", dtype).map(Some),
        Binary::Max => return extreme(a, b, c"maximum", dtype).map(Some),
        Binary::Add
        | Binary::Sub
        | Binary::Mul
        | Binary::Div
        | Binary::Rem
        | Binary::Pow
        | Binary::Atan2
        | Binary::Shl
        | Binary::Shr => {}
    }
    if dtype.is_float() {
        let y = float_binary(&widened(a)?, &widened(b)?, function)?;
        return y.map(|y| rounded(&y, dtype)).transpose();
    }
    integer_binary(a, b, function, dtype)
}

/// The lesser or the greater; a NaN wins.
fn extreme(a: &Tensor, b: &Tensor, op: &CStr, dtype: DType) -> Result {
    unordered(&ordered(a, dtype)?.and(op, &ordered(b, dtype)?)?, dtype)
}

fn float_binary(a: &Tensor, b: &Tensor, function: Binary) -> Native {
    let op = match function {
        Binary::Add => c"add.Tensor",
        Binary::Sub => c"sub.Tensor",
        Binary::Mul => c"mul.Tensor",
        Binary::Div => c"div.Tensor",
        Binary::Atan2 => c"atan2",
        // LibTorch's remainder is NaN where the quotient is great, its power infinite for the greatest numbers.
        Binary::Rem | Binary::Pow => return Ok(None),
        Binary::Min | Binary::Max | Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => {
            return Ok(None);
        }
    };
    a.and(op, b).map(Some)
}

/// Sums, differences, products and shifts to the left are the same for bits of signed and of unsigned numbers.
fn integer_binary(a: &Tensor, b: &Tensor, function: Binary, dtype: DType) -> Native {
    match function {
        Binary::Add => return a.and(c"add.Tensor", b).map(Some),
        Binary::Sub => return a.and(c"sub.Tensor", b).map(Some),
        Binary::Mul => return a.and(c"mul.Tensor", b).map(Some),
        Binary::Div | Binary::Rem | Binary::Shl | Binary::Shr => {}
        Binary::Pow | Binary::Atan2 | Binary::Min | Binary::Max | Binary::And | Binary::Or | Binary::Xor => {
            return Ok(None);
        }
    }
    let (Some(a), Some(b)) = (numbers(a, dtype)?, numbers(b, dtype)?) else { return Ok(None) };
    let y = match function {
        Binary::Div => quotient(&a, &b)?,
        Binary::Rem => remainder(&a, &b)?,
        Binary::Shl => shifted_left(&a, &b, dtype)?,
        Binary::Shr => shifted_right(&a, &b, dtype)?,
        Binary::Add
        | Binary::Sub
        | Binary::Mul
        | Binary::Pow
        | Binary::Atan2
        | Binary::Min
        | Binary::Max
        | Binary::And
        | Binary::Or
        | Binary::Xor => return Ok(None),
    };
    rounded(&y, dtype).map(Some)
}

/// LibTorch raises an error for a divisor of 0, and the processor traps where the least number is divided by -1: both divisors are
/// replaced by 1 and corrected.
fn quotient(a: &Tensor, b: &Tensor) -> Result {
    let is_zero = b.with(c"eq.Scalar", Int(0))?;
    let divisor = b.masked(&is_zero, Int(1))?;
    if b.is(TorchType::Byte) {
        return a.div_truncated(&divisor)?.masked(&is_zero, Int(0));
    }
    let negates = b.with(c"eq.Scalar", Int(-1))?;
    let y = a.div_truncated(&divisor.masked(&negates, Int(1))?)?;
    negates.select(&a.map(c"neg")?, &y)?.masked(&is_zero, Int(0))
}

/// The remainder by 0 is 0, as those by 1 and -1.
fn remainder(a: &Tensor, b: &Tensor) -> Result {
    let mut divisor = b.masked(&b.with(c"eq.Scalar", Int(0))?, Int(1))?;
    if !b.is(TorchType::Byte) {
        divisor = divisor.masked(&b.with(c"eq.Scalar", Int(-1))?, Int(1))?;
    }
    a.and(c"fmod.Tensor", &divisor)
}

/// A mask of the shifts that are below the width.
fn is_shift(b: &Tensor, dtype: DType) -> Result {
    let width = 8 * dtype.size() as i64;
    b.with(c"ge.Scalar", Int(0))?.and(c"bitwise_and.Tensor", &b.with(c"lt.Scalar", Int(width))?)
}

fn shifted_left(a: &Tensor, b: &Tensor, dtype: DType) -> Result {
    let beyond = is_shift(b, dtype)?.map(c"bitwise_not")?;
    a.and(c"__lshift__.Tensor", &b.masked(&beyond, Int(0))?)?.masked(&beyond, Int(0))
}

/// Shifts beyond the width give the sign, as the greatest shift does for signed numbers.
fn shifted_right(a: &Tensor, b: &Tensor, dtype: DType) -> Result {
    let beyond = is_shift(b, dtype)?.map(c"bitwise_not")?;
    let most = 8 * dtype.size() as i64 - 1;
    let y = a.and(c"__rshift__.Tensor", &b.masked(&beyond, Int(most))?)?;
    if dtype.is_signed_int() { Ok(y) } else { y.masked(&beyond, Int(0)) }
}

pub(crate) fn compare(call: &Call<'_>, comparison: Comparison) -> Native {
    let dtype = call.dtype();
    let (a, b) = (ordered(&call.filled(0, dtype)?, dtype)?, ordered(&call.filled(1, dtype)?, dtype)?);
    let op = match comparison {
        Comparison::Eq => c"eq.Tensor",
        Comparison::Ne => c"ne.Tensor",
        Comparison::Lt => c"lt.Tensor",
        Comparison::Le => c"le.Tensor",
    };
    a.and(op, &b).map(Some)
}

pub(crate) fn select(call: &Call<'_>) -> Native {
    let dtype = call.ty().dtype;
    let (a, b) = (call.filled(1, dtype)?, call.filled(2, dtype)?);
    call.tensor(0)?.select(&a, &b).map(Some)
}

pub(crate) fn cast(call: &Call<'_>, to: DType) -> Native {
    let (x, from) = (call.tensor(0)?, call.dtype());
    if from == to {
        return Ok(Some(x));
    }
    if to.is_bool() {
        return widened(&x)?.with(c"ne.Scalar", Int(0)).map(Some);
    }
    if from.is_float() && !to.is_float() {
        return saturated(&widened(&x)?, to);
    }
    // LibTorch rounds to `f32` first.
    let is_narrow = to.is_float() && to.size() == 2;
    let rounds_twice = is_narrow && (from == DType::F64 || (from.is_int() && from.size() > 2));
    let Some(x) = numbers(&x, from)? else {
        return if to.is_float() { Ok(None) } else { x.to(stored(to)).map(Some) };
    };
    Ok(if rounds_twice {
        None
    } else if is_narrow {
        Some(x.to(TorchType::Float)?.to(stored(to))?)
    } else {
        Some(x.to(stored(to))?)
    })
}

/// The integer part of floats in the range of a dtype; NaN becomes 0. LibTorch converts numbers beyond the range as the processor does.
fn saturated(x: &Tensor, to: DType) -> Native {
    if to == DType::U64 {
        return Ok(None);
    }
    let bits = 8 * to.size() as i32;
    let (least, beyond) = if to.is_signed_int() {
        (-(2f64.powi(bits - 1)), 2f64.powi(bits - 1))
    } else {
        (0.0, 2f64.powi(bits))
    };
    let greatest = match to.is_signed_int() {
        true => i64::MAX >> (64 - bits),
        false => (1 << bits) - 1,
    };
    let is_below = x.with(c"lt.Scalar", Real(least))?;
    let is_above = x.with(c"ge.Scalar", Real(beyond))?;
    let is_nan = x.and(c"ne.Tensor", x)?;
    let is_outside = is_below.and(c"bitwise_or.Tensor", &is_above)?.and(c"bitwise_or.Tensor", &is_nan)?;
    let inside = x.masked(&is_outside, Real(0.0))?.to(TorchType::Long)?;
    let y = inside.masked(&is_below, Int(least as i64))?.masked(&is_above, Int(greatest))?;
    rounded(&y, to).map(Some)
}

pub(crate) fn bitcast(call: &Call<'_>, to: DType) -> Native {
    call.tensor(0)?.bits_as(stored(to)).map(Some)
}
