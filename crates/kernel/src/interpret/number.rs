//! Scalar arithmetic of the interpreter: reals in `f64`, whole numbers in `i128`, brought back to a dtype after each step.

use alloc::vec::Vec;
use core::cmp::Ordering;
use kiln_ir::{Binary, Comparison, DType, Element, Elements, Reduction, Result, Scalar, Unary};

/// Numbers while they are computed with.
#[derive(Clone, Debug)]
pub(super) enum Numbers {
    /// Of a float dtype.
    Real(Vec<f64>),
    /// Of an integer dtype, or `bool` as 0 and 1.
    Whole(Vec<i128>),
}

impl Numbers {
    /// So many copies of a scalar, as numbers of the dtype.
    pub(super) fn repeated(scalar: Scalar, dtype: DType, count: usize) -> Numbers {
        if dtype.is_float() {
            return Numbers::Real(alloc::vec![scalar.to_f64(); count]).settled(dtype);
        }
        let whole = match scalar {
            Scalar::Float(x) => x as i128,
            Scalar::Int(x) => i128::from(x),
            Scalar::UInt(x) => i128::from(x),
            Scalar::Bool(x) => i128::from(x),
        };
        Numbers::Whole(alloc::vec![whole; count]).settled(dtype)
    }

    /// What memory holds, exactly.
    pub(super) fn of(elements: &Elements) -> Numbers {
        if elements.dtype().is_float() {
            return Numbers::Real(widened(elements));
        }
        if let Elements::U64(wide) = elements {
            return Numbers::Whole(wide.iter().map(|&x| i128::from(x)).collect());
        }
        Numbers::Whole(widened::<i64>(elements).into_iter().map(i128::from).collect())
    }

    /// As elements in memory: rounded, wrapped, or compared with 0 for `bool`.
    pub(super) fn stored(self, dtype: DType) -> Elements {
        match self {
            Numbers::Real(reals) => Elements::F64(reals).cast(dtype),
            Numbers::Whole(wholes) if dtype == DType::U64 => {
                Elements::U64(wholes.into_iter().map(|x| x as u64).collect())
            }
            Numbers::Whole(wholes) => {
                Elements::I64(wholes.into_iter().map(|x| x as i64).collect()).cast(dtype)
            }
        }
    }

    /// Brought back to what a value of that dtype can be: floats rounded (16-bit ones to `f32`), integers wrapped.
    pub(super) fn settled(self, dtype: DType) -> Numbers {
        match self {
            Numbers::Real(mut reals) => {
                if dtype != DType::F64 {
                    reals.iter_mut().for_each(|x| *x = f64::from(*x as f32));
                }
                Numbers::Real(reals)
            }
            Numbers::Whole(mut wholes) => {
                wholes.iter_mut().for_each(|x| *x = wrapped(*x, dtype));
                Numbers::Whole(wholes)
            }
        }
    }

    /// In another dtype, as [`Op::Cast`](kiln_ir::Op::Cast) converts.
    pub(super) fn cast(self, from: DType, to: DType) -> Numbers {
        Numbers::of(&self.stored(held(from)).cast(to))
    }

    /// The same bits in another dtype of the same size.
    pub(super) fn bitcast(self, from: DType, to: DType) -> Result<Numbers> {
        Ok(Numbers::of(&Elements::from_bytes(self.stored(from).bytes(), to)?))
    }

    /// The numbers at these places.
    pub(super) fn pick(&self, places: &[isize]) -> Numbers {
        match self {
            Numbers::Real(reals) => Numbers::Real(places.iter().map(|&i| reals[i as usize]).collect()),
            Numbers::Whole(wholes) => Numbers::Whole(places.iter().map(|&i| wholes[i as usize]).collect()),
        }
    }

    pub(super) fn unary(self, function: Unary, dtype: DType) -> Numbers {
        match self {
            Numbers::Real(x) => Numbers::Real(x.into_iter().map(|x| unary_real(function, x)).collect()),
            Numbers::Whole(x) => {
                Numbers::Whole(x.into_iter().map(|x| unary_whole(function, x, dtype)).collect())
            }
        }
        .settled(dtype)
    }

    /// Both of the same kind, as verified kernels have them.
    pub(super) fn binary(self, function: Binary, other: Numbers, dtype: DType) -> Numbers {
        match (self, other) {
            (Numbers::Real(a), Numbers::Real(b)) => {
                Numbers::Real(a.into_iter().zip(b).map(|(a, b)| binary_real(function, a, b)).collect())
            }
            (Numbers::Whole(a), Numbers::Whole(b)) => {
                let bits = dtype.size() as i128 * 8;
                let apply = |(a, b)| binary_whole(function, a, b, bits);
                Numbers::Whole(a.into_iter().zip(b).map(apply).collect())
            }
            (Numbers::Real(_), Numbers::Whole(_)) | (Numbers::Whole(_), Numbers::Real(_)) => {
                unreachable!("a verified kernel combines values of one dtype")
            }
        }
        .settled(dtype)
    }

    pub(super) fn compare(self, comparison: Comparison, other: Numbers) -> Numbers {
        let holds = |order: Option<Ordering>| {
            i128::from(match comparison {
                Comparison::Eq => order == Some(Ordering::Equal),
                Comparison::Ne => order != Some(Ordering::Equal),
                Comparison::Lt => order == Some(Ordering::Less),
                Comparison::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            })
        };
        match (self, other) {
            (Numbers::Real(a), Numbers::Real(b)) => {
                Numbers::Whole(a.iter().zip(&b).map(|(a, b)| holds(a.partial_cmp(b))).collect())
            }
            (Numbers::Whole(a), Numbers::Whole(b)) => {
                Numbers::Whole(a.iter().zip(&b).map(|(a, b)| holds(a.partial_cmp(b))).collect())
            }
            (Numbers::Real(_), Numbers::Whole(_)) | (Numbers::Whole(_), Numbers::Real(_)) => {
                unreachable!("a verified kernel compares values of one dtype")
            }
        }
    }

    /// Where this truth value holds the first, otherwise the second.
    pub(super) fn select(self, a: Numbers, b: Numbers) -> Numbers {
        let condition = self.wholes();
        match (a, b) {
            (Numbers::Real(a), Numbers::Real(b)) => Numbers::Real(chosen(&condition, a, b)),
            (Numbers::Whole(a), Numbers::Whole(b)) => Numbers::Whole(chosen(&condition, a, b)),
            (Numbers::Real(_), Numbers::Whole(_)) | (Numbers::Whole(_), Numbers::Real(_)) => {
                unreachable!("a verified kernel selects among values of one dtype")
            }
        }
    }

    /// Whole numbers; none where these are real.
    pub(super) fn wholes(self) -> Vec<i128> {
        match self {
            Numbers::Real(_) => Vec::new(),
            Numbers::Whole(wholes) => wholes,
        }
    }
}

/// The elements in a dtype that holds all of them.
fn widened<E: Element>(elements: &Elements) -> Vec<E> {
    E::unwrap(elements.cast(E::DTYPE)).unwrap_or_default()
}

fn chosen<N: Copy>(condition: &[i128], a: Vec<N>, b: Vec<N>) -> Vec<N> {
    condition
        .iter()
        .zip(a.into_iter().zip(b))
        .map(|(&holds, (a, b))| if holds != 0 { a } else { b })
        .collect()
}

/// The dtype in which values of a dtype are held between instructions.
fn held(dtype: DType) -> DType {
    dtype.accumulator()
}

fn wrapped(x: i128, dtype: DType) -> i128 {
    match dtype {
        DType::I64 => i128::from(x as i64),
        DType::I32 => i128::from(x as i32),
        DType::I16 => i128::from(x as i16),
        DType::I8 => i128::from(x as i8),
        DType::U64 => i128::from(x as u64),
        DType::U32 => i128::from(x as u32),
        DType::U16 => i128::from(x as u16),
        DType::U8 => i128::from(x as u8),
        DType::Bool => i128::from(x != 0),
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => x,
    }
}

/// Two numbers as a reduction combines them.
pub(super) fn combine_real(reduction: Reduction, a: f64, b: f64) -> f64 {
    binary_real(reduction.binary(), a, b)
}

/// Two numbers as a reduction combines them, yet to be wrapped.
pub(super) fn combine_whole(reduction: Reduction, a: i128, b: i128) -> i128 {
    binary_whole(reduction.binary(), a, b, 128)
}

fn unary_real(function: Unary, x: f64) -> f64 {
    match function {
        Unary::Neg => -x,
        Unary::Abs => libm::fabs(x),
        Unary::Sign if x > 0.0 => 1.0,
        Unary::Sign if x < 0.0 => -1.0,
        Unary::Sign => x,
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
        Unary::Not => unreachable!("a verified kernel has no `not` of floats"),
    }
}

fn unary_whole(function: Unary, x: i128, dtype: DType) -> i128 {
    match function {
        Unary::Neg => -x,
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
        | Unary::Trunc => unreachable!("a verified kernel applies this function to floats only"),
    }
}

fn binary_real(function: Binary, a: f64, b: f64) -> f64 {
    match function {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Rem => libm::fmod(a, b),
        Binary::Pow => libm::pow(a, b),
        Binary::Min => {
            if a.is_nan() || a < b {
                a
            } else {
                b
            }
        }
        Binary::Max => {
            if a.is_nan() || a > b {
                a
            } else {
                b
            }
        }
        Binary::Atan2 => libm::atan2(a, b),
        Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => {
            unreachable!("a verified kernel applies this function to integers only")
        }
    }
}

/// Of integers with so many bits; the result is yet to be wrapped.
fn binary_whole(function: Binary, a: i128, b: i128, bits: i128) -> i128 {
    match function {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div => a.checked_div(b).unwrap_or(0),
        Binary::Rem => a.checked_rem(b).unwrap_or(0),
        Binary::Pow => pow_whole(a, b),
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl if (0..bits).contains(&b) => a << b,
        Binary::Shl => 0,
        Binary::Shr if (0..bits).contains(&b) => a >> b,
        Binary::Shr => a.signum().min(0),
        Binary::Atan2 => unreachable!("a verified kernel takes angles of floats only"),
    }
}

/// Modulo 2¹²⁸. A negative exponent gives the real result truncated, and 0 for the base 0.
fn pow_whole(base: i128, exponent: i128) -> i128 {
    match (base, u32::try_from(exponent)) {
        (1, _) => 1,
        (-1, _) => 1 - 2 * (exponent & 1),
        (_, Ok(exponent)) => base.wrapping_pow(exponent),
        _ if exponent < 0 => 0,
        // What is left is far above the width of any integer: only odd bases have bits there.
        _ => {
            let (mut power, mut square, mut rest) = (1i128, base, exponent);
            while rest > 0 {
                if rest & 1 == 1 {
                    power = power.wrapping_mul(square);
                }
                square = square.wrapping_mul(square);
                rest >>= 1;
            }
            power
        }
    }
}
