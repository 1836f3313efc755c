//! Functions of one, two and three elements, and conversions.

use crate::library::{Call, CandleCore, Native, constant, has_numbers, nan_mask, stored};
use candle_core::{DType as CandleDType, Result, Tensor};
use kiln_foreign::{Elementwise, entry};
use kiln_ir::{Binary, Comparison, DType, Unary};

/// A function of two tensors.
type Pair = fn(&Tensor, &Tensor) -> Result<Tensor>;

const FLOATS: &[(Binary, Pair)] = &[
    (Binary::Add, Tensor::add),
    (Binary::Sub, Tensor::sub),
    (Binary::Mul, Tensor::mul),
    (Binary::Div, Tensor::div),
    (Binary::Min, |a, b| extreme(a, b, &a.lt(b)?)),
    (Binary::Max, |a, b| extreme(a, b, &a.gt(b)?)),
];

const BOOLS: &[(Binary, Pair)] =
    &[(Binary::And, |a, b| a.minimum(b)), (Binary::Or, |a, b| a.maximum(b)), (Binary::Xor, |a, b| a.ne(b))];

const EXTREMES: &[(Binary, Pair)] = &[(Binary::Min, |a, b| a.minimum(b)), (Binary::Max, |a, b| a.maximum(b))];

/// Arithmetic in `i64`, which holds each sum and product of narrower integers, except of two `u32`. The result wraps when it is
/// narrowed.
const INTEGERS: &[(Binary, Pair)] = &[
    (Binary::Add, Tensor::add),
    (Binary::Sub, Tensor::sub),
    (Binary::Mul, Tensor::mul),
    (Binary::Div, quotient),
];

impl Elementwise for CandleCore {
    fn unary(_: &Call<'_>, x: &Tensor, function: Unary, dtype: DType) -> Native {
        if dtype.is_float() {
            float_unary(x, function)
        } else if dtype.is_bool() && function == Unary::Not {
            x.eq(0u8).map(Some)
        } else {
            Ok(None)
        }
    }

    fn binary(a: &Tensor, b: &Tensor, function: Binary, dtype: DType) -> Native {
        let table = match (dtype.is_float(), dtype.is_bool()) {
            (true, _) => FLOATS,
            (_, true) => BOOLS,
            (false, false) => EXTREMES,
        };
        if let Some(run) = entry(table, function).filter(|_| has_numbers(dtype)) {
            return run(a, b).map(Some);
        }
        let may_exceed = dtype == DType::I64 || (dtype == DType::U32 && function == Binary::Mul);
        if !dtype.is_int() || !has_numbers(dtype) || may_exceed {
            return Ok(None);
        }
        let wide = |x: &Tensor| x.to_dtype(CandleDType::I64);
        entry(INTEGERS, function).map(|run| run(&wide(a)?, &wide(b)?)).transpose()
    }

    fn compare(a: &Tensor, b: &Tensor, comparison: Comparison, dtype: DType) -> Native {
        let ordered = has_numbers(dtype);
        Ok(match comparison {
            Comparison::Eq => Some(a.eq(b)?),
            Comparison::Ne => Some(a.ne(b)?),
            Comparison::Lt if ordered => Some(a.lt(b)?),
            Comparison::Le if ordered => Some(a.le(b)?),
            Comparison::Lt | Comparison::Le => None,
        })
    }

    fn select(mask: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        mask.where_cond(a, b)
    }

    fn cast(x: &Tensor, from: DType, to: DType) -> Native {
        if to.is_bool() {
            return x.ne(&constant(x, 0.0)?).map(Some);
        }
        let is_exact = has_numbers(from) && has_numbers(to);
        // Candle rounds to `f32` first.
        let rounds_twice = to.size() == 2 && to.is_float() && from != DType::F32 && !from.is_bool();
        if is_exact && !rounds_twice { x.to_dtype(stored(to)).map(Some) } else { Ok(None) }
    }

    /// Bits of one stored dtype stay as they are.
    fn bitcast(x: &Tensor, from: DType, to: DType) -> Native {
        Ok((stored(from) == stored(to)).then(|| x.clone()))
    }
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

/// `a` where it is picked or NaN, otherwise `b`.
fn extreme(a: &Tensor, b: &Tensor, picked: &Tensor) -> Result<Tensor> {
    picked.maximum(&nan_mask(a)?)?.where_cond(a, b)
}

/// The quotient of `i64`, 0 by 0.
fn quotient(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let by_zero = b.eq(0i64)?;
    let quotient = a.div(&by_zero.where_cond(&constant(b, 1.0)?, b)?)?;
    by_zero.where_cond(&constant(a, 0.0)?, &quotient)
}
