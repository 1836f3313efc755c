//! Functions of one, two and three elements, and conversions.

use crate::call::{Call, Native, constant, nan_mask, rounded, widened};
use crate::data::{has_numbers, stored};
use candle_core::{DType as CandleDType, Result, Tensor};
use kiln_ir::{Binary, Comparison, DType, Unary};

pub(crate) fn unary(call: &Call<'_>, function: Unary) -> Native {
    let (x, dtype) = (call.tensor(0)?, call.dtype());
    if dtype.is_float() {
        let result = float_unary(&widened(&x)?, function)?;
        return result.map(|y| rounded(&y, dtype)).transpose();
    }
    if dtype.is_bool() && function == Unary::Not { x.eq(0u8).map(Some) } else { Ok(None) }
}

fn float_unary(x: &Tensor, function: Unary) -> Native {
    Ok(Some(match function {
        Unary::Neg => x.neg()?,
        Unary::Abs => x.abs()?,
        Unary::Sign => x.abs()?.gt(0.0)?.where_cond(&x.sign()?, x)?,
        Unary::Recip => x.recip()?,
        Unary::Sqrt => x.sqrt()?,
        Unary::Rsqrt => x.sqrt()?.recip()?,
        Unary::Exp => x.exp()?,
        Unary::Ln => x.log()?,
        Unary::Sin => x.sin()?,
        Unary::Cos => x.cos()?,
        Unary::Tan => x.sin()?.div(&x.cos()?)?,
        Unary::Tanh => x.tanh()?,
        Unary::Erf => x.erf()?,
        Unary::Floor => x.floor()?,
        Unary::Ceil => x.ceil()?,
        Unary::Round => round(x)?,
        Unary::Trunc => x.lt(0.0)?.where_cond(&x.ceil()?, &x.floor()?)?,
        Unary::Expm1 | Unary::Log1p | Unary::Atan | Unary::Erfcx | Unary::Not => return Ok(None),
    }))
}

/// The nearest whole number, ties to even. Candle's `round` takes ties away from zero.
fn round(x: &Tensor) -> Result<Tensor> {
    let away = x.round()?;
    let is_tie = x.sub(&away)?.abs()?.eq(0.5)?;
    let even = x.mul(&constant(x, 0.5)?)?.round()?.mul(&constant(x, 2.0)?)?;
    is_tie.where_cond(&even, &away)
}

pub(crate) fn binary(call: &Call<'_>, function: Binary) -> Native {
    let dtype = call.dtype();
    let (a, b) = (call.filled(0, dtype)?, call.filled(1, dtype)?);
    let result = if dtype.is_float() {
        float_binary(&widened(&a)?, &widened(&b)?, function)?
    } else if dtype.is_bool() {
        bool_binary(&a, &b, function)?
    } else if has_numbers(dtype) {
        integer_binary(&a, &b, function, dtype)?
    } else {
        None
    };
    result.map(|y| rounded(&y, dtype)).transpose()
}

fn float_binary(a: &Tensor, b: &Tensor, function: Binary) -> Native {
    Ok(Some(match function {
        Binary::Add => a.add(b)?,
        Binary::Sub => a.sub(b)?,
        Binary::Mul => a.mul(b)?,
        Binary::Div => a.div(b)?,
        Binary::Min => extreme(a, b, &a.lt(b)?)?,
        Binary::Max => extreme(a, b, &a.gt(b)?)?,
        Binary::Rem
        | Binary::Pow
        | Binary::Atan2
        | Binary::And
        | Binary::Or
        | Binary::Xor
        | Binary::Shl
        | Binary::Shr => return Ok(None),
    }))
}

/// `a` where it is picked or NaN, otherwise `b`.
fn extreme(a: &Tensor, b: &Tensor, picked: &Tensor) -> Result<Tensor> {
    picked.maximum(&nan_mask(a)?)?.where_cond(a, b)
}

fn bool_binary(a: &Tensor, b: &Tensor, function: Binary) -> Native {
    Ok(match function {
        Binary::And => Some(a.minimum(b)?),
        Binary::Or => Some(a.maximum(b)?),
        Binary::Xor => Some(a.ne(b)?),
        Binary::Add
        | Binary::Sub
        | Binary::Mul
        | Binary::Div
        | Binary::Rem
        | Binary::Pow
        | Binary::Min
        | Binary::Max
        | Binary::Atan2
        | Binary::Shl
        | Binary::Shr => None,
    })
}

/// Arithmetic in `i64`, which holds each sum and product of narrower integers; the result wraps when it is narrowed.
fn integer_binary(a: &Tensor, b: &Tensor, function: Binary, dtype: DType) -> Native {
    match function {
        Binary::Min => return a.minimum(b).map(Some),
        Binary::Max => return a.maximum(b).map(Some),
        Binary::Add
        | Binary::Sub
        | Binary::Mul
        | Binary::Div
        | Binary::Rem
        | Binary::Pow
        | Binary::Atan2
        | Binary::And
        | Binary::Or
        | Binary::Xor
        | Binary::Shl
        | Binary::Shr => {}
    }
    if dtype == DType::I64 {
        return Ok(None);
    }
    let (a, b) = (a.to_dtype(CandleDType::I64)?, b.to_dtype(CandleDType::I64)?);
    Ok(match function {
        Binary::Add => Some(a.add(&b)?),
        Binary::Sub => Some(a.sub(&b)?),
        // The product of two `u32` may exceed `i64`.
        Binary::Mul if dtype != DType::U32 => Some(a.mul(&b)?),
        Binary::Div => {
            let by_zero = b.eq(0i64)?;
            let quotient = a.div(&by_zero.where_cond(&constant(&b, 1.0)?, &b)?)?;
            Some(by_zero.where_cond(&constant(&a, 0.0)?, &quotient)?)
        }
        Binary::Mul
        | Binary::Rem
        | Binary::Pow
        | Binary::Min
        | Binary::Max
        | Binary::Atan2
        | Binary::And
        | Binary::Or
        | Binary::Xor
        | Binary::Shl
        | Binary::Shr => None,
    })
}

pub(crate) fn compare(call: &Call<'_>, comparison: Comparison) -> Native {
    let dtype = call.dtype();
    let (a, b) = (call.filled(0, dtype)?, call.filled(1, dtype)?);
    let ordered = has_numbers(dtype);
    Ok(match comparison {
        Comparison::Eq => Some(a.eq(&b)?),
        Comparison::Ne => Some(a.ne(&b)?),
        Comparison::Lt if ordered => Some(a.lt(&b)?),
        Comparison::Le if ordered => Some(a.le(&b)?),
        Comparison::Lt | Comparison::Le => None,
    })
}

pub(crate) fn select(call: &Call<'_>) -> Native {
    let dtype = call.ty().dtype;
    let (a, b) = (call.filled(1, dtype)?, call.filled(2, dtype)?);
    call.tensor(0)?.where_cond(&a, &b).map(Some)
}

pub(crate) fn cast(call: &Call<'_>, to: DType) -> Native {
    let (x, from) = (call.tensor(0)?, call.dtype());
    if from == to {
        return Ok(Some(x));
    }
    if to.is_bool() {
        return x.ne(&constant(&x, 0.0)?).map(Some);
    }
    let is_exact = has_numbers(from) && has_numbers(to);
    // Candle rounds to `f32` first.
    let rounds_twice = to.size() == 2 && to.is_float() && from != DType::F32 && !from.is_bool();
    if is_exact && !rounds_twice { x.to_dtype(stored(to)).map(Some) } else { Ok(None) }
}

/// Bits of one stored dtype stay as they are.
pub(crate) fn bitcast(call: &Call<'_>, to: DType) -> Native {
    let x = call.tensor(0)?;
    Ok((stored(call.dtype()) == stored(to)).then_some(x))
}
