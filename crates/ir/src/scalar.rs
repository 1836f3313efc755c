//! Plain numbers: operands that are not tensors, and real-valued attributes.

use crate::{DType, Element};
use core::fmt;
use core::hash::{Hash, Hasher};
use serde::{Deserialize, Serialize};

/// A plain number used as an operand. It takes the dtype of the tensors beside it.
///
/// Two scalars are equal when they are of the same kind and hold the same bits, so that ops and programs can be
/// compared and hashed; a NaN equals itself.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scalar {
    /// A real number. Beside an integer tensor it must be a whole number.
    Float(f64),
    /// An integer.
    Int(i64),
    /// An unsigned integer, for values above `i64::MAX` (random keys, for instance).
    UInt(u64),
    /// A truth value.
    Bool(bool),
}

impl Scalar {
    /// The number as `f64`; `true` is 1.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Float(x) => x,
            Scalar::Int(x) => x as f64,
            Scalar::UInt(x) => x as f64,
            Scalar::Bool(x) => x as u8 as f64,
        }
    }

    /// The number as `i64`: a real is truncated and saturates, an unsigned wraps.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Float(x) => x as i64,
            Scalar::Int(x) => x,
            Scalar::UInt(x) => x as i64,
            Scalar::Bool(x) => x as i64,
        }
    }

    /// The number as `u64`: a real is truncated and saturates, a negative integer wraps.
    pub fn to_u64(self) -> u64 {
        match self {
            Scalar::Float(x) => x as u64,
            Scalar::Int(x) => x as u64,
            Scalar::UInt(x) => x,
            Scalar::Bool(x) => x as u64,
        }
    }

    /// The number as an element: rounded to a float; truncated to an integer, where it wraps if out of range; `bool` is
    /// whether it differs from zero once truncated.
    ///
    /// ```
    /// use kiln_ir::Scalar;
    /// assert_eq!(Scalar::Float(-1.9).element::<i8>(), -1);
    /// assert_eq!(Scalar::Int(3).element::<f32>(), 3.0);
    /// ```
    pub fn element<T: Element>(self) -> T {
        match self {
            Scalar::Float(x) if T::DTYPE.is_float() => T::from_f64(x),
            Scalar::Float(x) => T::from_i128(x as i128),
            Scalar::Int(x) => T::from_i128(x.into()),
            Scalar::UInt(x) => T::from_i128(x.into()),
            Scalar::Bool(x) => T::from_i128(x.into()),
        }
    }

    /// Whether the number differs from zero.
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Float(x) => x != 0.0,
            Scalar::Int(x) => x != 0,
            Scalar::UInt(x) => x != 0,
            Scalar::Bool(x) => x,
        }
    }

    /// Whether the number may stand beside a tensor of `dtype` without losing its meaning: any number beside
    /// floats, whole numbers beside integers, only truth values beside `bool`.
    pub fn fits(self, dtype: DType) -> bool {
        match self {
            Scalar::Float(x) => dtype.is_float() || (dtype.is_int() && x as i64 as f64 == x),
            Scalar::Int(_) | Scalar::UInt(_) => !dtype.is_bool(),
            Scalar::Bool(_) => dtype.is_bool(),
        }
    }

    fn bits(self) -> (u8, u64) {
        match self {
            Scalar::Float(x) => (0, x.to_bits()),
            Scalar::Int(x) => (1, x as u64),
            Scalar::UInt(x) => (2, x),
            Scalar::Bool(x) => (3, x as u64),
        }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        self.bits() == other.bits()
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bits().hash(state);
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Float(x) => write!(f, "{x:?}"),
            Scalar::Int(x) => write!(f, "{x}"),
            Scalar::UInt(x) => write!(f, "{x}u"),
            Scalar::Bool(x) => write!(f, "{x}"),
        }
    }
}

macro_rules! scalar_from {
    ($($kind:ident as $wide:ty: $($from:ty),*;)*) => {$($(
        impl From<$from> for Scalar {
            fn from(x: $from) -> Scalar {
                Scalar::$kind(<$wide>::from(x))
            }
        }
    )*)*};
}

scalar_from! {
    Float as f64: f64, f32, half::f16, half::bf16;
    Int as i64: i64, i32, i16, i8, u32, u16, u8;
    UInt as u64: u64;
    Bool as bool: bool;
}

impl From<usize> for Scalar {
    fn from(x: usize) -> Scalar {
        i64::try_from(x).map_or(Scalar::UInt(x as u64), Scalar::Int)
    }
}

/// A real-valued attribute of an op: an `f64` that is equal to itself by bits, so that ops can be compared and
/// hashed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

impl Hash for Real {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl From<f64> for Real {
    fn from(x: f64) -> Real {
        Real(x)
    }
}

impl Scalar {
    /// The dtype of a tensor made of this number alone: `f32`, `i32`, `u64` or `bool`.
    pub fn default_dtype(self) -> DType {
        match self {
            Scalar::Float(_) => DType::F32,
            Scalar::Int(_) => DType::I32,
            Scalar::UInt(_) => DType::U64,
            Scalar::Bool(_) => DType::Bool,
        }
    }
}
