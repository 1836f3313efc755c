//! Scalar arithmetic of the interpreter: floats in `f64`, integers in `i128`, rounded or wrapped to a dtype after each
//! step.

use alloc::vec::Vec;
use kiln_ir::number::Number;
use kiln_ir::{Binary, Comparison, DType, Element, Elements, Result, Scalar, Unary};

/// Values in the interpreter's wide types.
#[derive(Clone, Debug)]
pub(super) enum Numbers {
    /// Values of a float dtype.
    Real(Vec<f64>),
    /// Values of an integer dtype, or `bool` as 0 and 1.
    Whole(Vec<i128>),
}

impl Numbers {
    /// `count` copies of a scalar, converted to the dtype.
    pub(super) fn repeated(scalar: Scalar, dtype: DType, count: usize) -> Numbers {
        if dtype.is_float() {
            return Numbers::Real(alloc::vec![scalar.to_f64(); count]).rounded_to(dtype);
        }
        Numbers::Whole(alloc::vec![i128::from_scalar(scalar); count]).rounded_to(dtype)
    }

    /// The elements of a tensor, converted exactly.
    pub(super) fn of(elements: &Elements) -> Numbers {
        if elements.dtype().is_float() {
            return Numbers::Real(widened(elements));
        }
        if let Elements::U64(wide) = elements {
            return Numbers::Whole(wide.iter().map(|&x| i128::from(x)).collect());
        }
        Numbers::Whole(widened::<i64>(elements).into_iter().map(i128::from).collect())
    }

    /// Converts to elements in memory: rounded, wrapped, or compared with 0 for `bool`.
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

    /// Rounds or wraps to the range of a dtype: floats are rounded (16-bit ones to `f32`), integers wrapped.
    pub(super) fn rounded_to(self, dtype: DType) -> Numbers {
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

    /// Casts to another dtype, like [`Op::Cast`](kiln_ir::Op::Cast).
    pub(super) fn cast(self, from: DType, to: DType) -> Numbers {
        Numbers::of(&self.stored(held(from)).cast(to))
    }

    /// Reinterprets the bits in another dtype of the same size.
    pub(super) fn bitcast(self, from: DType, to: DType) -> Result<Numbers> {
        Ok(Numbers::of(&Elements::from_bytes(self.stored(from).bytes(), to)?))
    }

    /// Gathers the values at these indices.
    pub(super) fn pick(&self, places: &[isize]) -> Numbers {
        match self {
            Numbers::Real(reals) => Numbers::Real(places.iter().map(|&i| reals[i as usize]).collect()),
            Numbers::Whole(wholes) => Numbers::Whole(places.iter().map(|&i| wholes[i as usize]).collect()),
        }
    }

    /// Copies one value from another table of the same kind.
    pub(super) fn set(&mut self, place: usize, others: &Numbers, other: usize) {
        match (self, others) {
            (Numbers::Real(to), Numbers::Real(from)) => to[place] = from[other],
            (Numbers::Whole(to), Numbers::Whole(from)) => to[place] = from[other],
            (Numbers::Real(_), Numbers::Whole(_)) | (Numbers::Whole(_), Numbers::Real(_)) => {
                unreachable!("elements of a dtype are numbers of its kind")
            }
        }
    }

    pub(super) fn unary(self, function: Unary, dtype: DType) -> Numbers {
        match self {
            Numbers::Real(x) => Numbers::Real(x.into_iter().map(|x| x.unary(function, dtype)).collect()),
            Numbers::Whole(x) => Numbers::Whole(x.into_iter().map(|x| x.unary(function, dtype)).collect()),
        }
        .rounded_to(dtype)
    }

    /// Applies a binary function; both tables are of the same kind in verified kernels.
    pub(super) fn binary(self, function: Binary, other: Numbers, dtype: DType) -> Numbers {
        match (self, other) {
            (Numbers::Real(a), Numbers::Real(b)) => {
                Numbers::Real(a.into_iter().zip(b).map(|(a, b)| a.binary(function, b, dtype)).collect())
            }
            (Numbers::Whole(a), Numbers::Whole(b)) => {
                Numbers::Whole(a.into_iter().zip(b).map(|(a, b)| a.binary(function, b, dtype)).collect())
            }
            (Numbers::Real(_), Numbers::Whole(_)) | (Numbers::Whole(_), Numbers::Real(_)) => {
                unreachable!("a verified kernel combines values of one dtype")
            }
        }
        .rounded_to(dtype)
    }

    pub(super) fn compare(self, comparison: Comparison, other: Numbers) -> Numbers {
        fn compared<N: Number>(comparison: Comparison, a: &[N], b: &[N]) -> Numbers {
            Numbers::Whole(a.iter().zip(b).map(|(a, &b)| i128::from(a.compares(comparison, b))).collect())
        }
        match (self, other) {
            (Numbers::Real(a), Numbers::Real(b)) => compared(comparison, &a, &b),
            (Numbers::Whole(a), Numbers::Whole(b)) => compared(comparison, &a, &b),
            (Numbers::Real(_), Numbers::Whole(_)) | (Numbers::Whole(_), Numbers::Real(_)) => {
                unreachable!("a verified kernel compares values of one dtype")
            }
        }
    }

    /// Selects from `a` where the condition is true, else from `b`.
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

    /// The integers of the table; empty for floats.
    pub(super) fn wholes(self) -> Vec<i128> {
        match self {
            Numbers::Real(_) => Vec::new(),
            Numbers::Whole(wholes) => wholes,
        }
    }
}

/// Converts the elements to a wider dtype.
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

/// The dtype of a value between instructions.
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
