//! Functions of one, two and three elements, and conversions.

use crate::ffi::Argument::{Int, Real};
use crate::library::{Call, Native, Torch, numbers, ordered, stored, unordered};
use crate::tensor::{Result, Tensor, TorchType};
use core::ffi::CStr;
use kiln_foreign::{Elementwise, Library, entry};
use kiln_ir::{Binary, Comparison, DType, Unary};

/// Functions of bits.
const BITS: &[(Binary, &CStr)] = &[
    (Binary::And, c"bitwise_and.Tensor"),
    (Binary::Or, c"bitwise_or.Tensor"),
    (Binary::Xor, c"bitwise_xor.Tensor"),
];

/// Functions of numbers in order; a NaN wins.
const EXTREMES: &[(Binary, &CStr)] = &[(Binary::Min, c"minimum"), (Binary::Max, c"maximum")];

/// Functions of floats. LibTorch's remainder is NaN where the quotient is great, its power infinite for the greatest numbers.
const FLOATS: &[(Binary, &CStr)] = &[
    (Binary::Add, c"add.Tensor"),
    (Binary::Sub, c"sub.Tensor"),
    (Binary::Mul, c"mul.Tensor"),
    (Binary::Div, c"div.Tensor"),
    (Binary::Atan2, c"atan2"),
];

/// Functions of integers, the same for bits of signed and of unsigned numbers.
const INTEGERS: &[(Binary, &CStr)] =
    &[(Binary::Add, c"add.Tensor"), (Binary::Sub, c"sub.Tensor"), (Binary::Mul, c"mul.Tensor")];

/// Functions of one integer.
const SIGNED: &[(Unary, &CStr)] = &[(Unary::Neg, c"neg"), (Unary::Abs, c"abs"), (Unary::Sign, c"sign")];

/// A function of two tensors of a dtype.
type Pair = fn(&Tensor, &Tensor, DType) -> Result;

/// Functions of [numbers] that LibTorch refuses or leaves undefined for some operands.
const MASKED: &[(Binary, Pair)] = &[
    (Binary::Div, quotient),
    (Binary::Rem, remainder),
    (Binary::Shl, shifted_left),
    (Binary::Shr, shifted_right),
];

impl Elementwise for Torch {
    fn unary(call: &Call<'_>, x: &Tensor, function: Unary, dtype: DType) -> Native {
        if function == Unary::Not {
            return x.map(c"bitwise_not").map(Some);
        }
        if function == Unary::Sqrt && call.library.0.is_processor() {
            return square_root(x);
        }
        if dtype.is_float() { float_unary(x, function) } else { integer_unary(x, function, dtype) }
    }

    fn binary(a: &Tensor, b: &Tensor, function: Binary, dtype: DType) -> Native {
        if let Some(op) = entry(EXTREMES, function) {
            return unordered(&ordered(a, dtype)?.and(op, &ordered(b, dtype)?)?, dtype).map(Some);
        }
        let table = if dtype.is_float() { FLOATS } else { INTEGERS };
        if let Some(op) = entry(BITS, function).or(entry(table, function)) {
            return a.and(op, b).map(Some);
        }
        let Some(masked) = entry(MASKED, function).filter(|_| !dtype.is_float()) else { return Ok(None) };
        let (Some(a), Some(b)) = (numbers(a, dtype)?, numbers(b, dtype)?) else { return Ok(None) };
        masked(&a, &b, dtype).map(Some)
    }

    fn compare(a: &Tensor, b: &Tensor, comparison: Comparison, dtype: DType) -> Native {
        let op = match comparison {
            Comparison::Eq => c"eq.Tensor",
            Comparison::Ne => c"ne.Tensor",
            Comparison::Lt => c"lt.Tensor",
            Comparison::Le => c"le.Tensor",
        };
        ordered(a, dtype)?.and(op, &ordered(b, dtype)?).map(Some)
    }

    fn select(mask: &Tensor, a: &Tensor, b: &Tensor) -> Result {
        mask.select(a, b)
    }

    fn cast(x: &Tensor, from: DType, to: DType) -> Native {
        if to.is_bool() {
            return Torch::widened(x)?.with(c"ne.Scalar", Int(0)).map(Some);
        }
        if from.is_float() && !to.is_float() {
            return saturated(&Torch::widened(x)?, to);
        }
        // LibTorch rounds to `f32` first.
        let is_narrow = to.is_float() && to.size() == 2;
        let rounds_twice = is_narrow && (from == DType::F64 || (from.is_int() && from.size() > 2));
        let Some(x) = numbers(x, from)? else {
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

    fn bitcast(x: &Tensor, _: DType, to: DType) -> Native {
        x.bits_as(stored(to)).map(Some)
    }
}

/// MKL's square root may be off by the last bit: `f32` is computed in `f64`.
fn square_root(x: &Tensor) -> Native {
    if x.is(TorchType::Double) {
        return Ok(None);
    }
    x.to(TorchType::Double)?.map(c"sqrt")?.to(TorchType::Float).map(Some)
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
    if dtype.is_signed_int() || function == Unary::Neg {
        return entry(SIGNED, function).map(|op| x.map(op)).transpose();
    }
    if function == Unary::Abs {
        return Ok(Some(x.clone()));
    }
    (function == Unary::Sign).then(|| x.with(c"ne.Scalar", Int(0))).transpose()
}

/// LibTorch raises an error for a divisor of 0, and the processor traps where the least number is divided by -1: both divisors are
/// replaced by 1 and corrected.
fn quotient(a: &Tensor, b: &Tensor, _: DType) -> Result {
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
fn remainder(a: &Tensor, b: &Tensor, _: DType) -> Result {
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
    Torch::rounded(&y, to).map(Some)
}
