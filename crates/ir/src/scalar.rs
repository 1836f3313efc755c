//! Plain numbers: operands that are not tensors, and real-valued attributes.

use crate::number::Number;
use crate::op::{greatest, least};
use crate::{DType, Element};
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use serde::{Deserialize, Serialize};

/// A plain number used as an operand. It takes the dtype of the tensor operands.
///
/// Two scalars are equal if they are of the same kind and have the same bits, so that ops and programs can be compared
/// and hashed; a NaN equals itself.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scalar {
    /// A float. With integer tensors it must be an integer.
    Float(f64),
    /// An integer.
    Int(i64),
    /// An unsigned integer, for values above `i64::MAX` (random keys, for instance).
    UInt(u64),
    /// A boolean.
    Bool(bool),
}

impl Scalar {
    /// Returns the number as `f64`; `true` is 1.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Float(x) => x,
            Scalar::Int(x) => x as f64,
            Scalar::UInt(x) => x as f64,
            Scalar::Bool(x) => x as u8 as f64,
        }
    }

    /// Returns the number as `i64`: a float is truncated and saturates, an unsigned integer wraps.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Float(x) => x as i64,
            Scalar::Int(x) => x,
            Scalar::UInt(x) => x as i64,
            Scalar::Bool(x) => x as i64,
        }
    }

    /// Returns the number as `u64`: a float is truncated and saturates, a negative integer wraps.
    pub fn to_u64(self) -> u64 {
        match self {
            Scalar::Float(x) => x as u64,
            Scalar::Int(x) => x as u64,
            Scalar::UInt(x) => x,
            Scalar::Bool(x) => x as u64,
        }
    }

    /// Converts to an element type. Floats round. To an integer, the number is truncated, and wraps if out of range.
    /// `bool` is whether the truncated number differs from zero.
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

    /// Returns whether the number differs from zero.
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Float(x) => x != 0.0,
            Scalar::Int(x) => x != 0,
            Scalar::UInt(x) => x != 0,
            Scalar::Bool(x) => x,
        }
    }

    /// Returns whether the dtype can take the number as an operand: any number for floats, integers in range for
    /// integer dtypes, only booleans for `bool`.
    ///
    /// ```
    /// use kiln_ir::{DType, Scalar};
    /// assert!(Scalar::Int(255).fits(DType::U8) && !Scalar::Int(300).fits(DType::U8));
    /// assert!(Scalar::Float(2.0).fits(DType::I8) && !Scalar::Float(2.5).fits(DType::I8));
    /// ```
    pub fn fits(self, dtype: DType) -> bool {
        match self {
            Scalar::Float(x) => {
                dtype.is_float() || (dtype.is_int() && is_integer(x) && self.beyond(dtype).is_none())
            }
            Scalar::Int(_) | Scalar::UInt(_) => {
                dtype.is_float() || (dtype.is_int() && self.beyond(dtype).is_none())
            }
            Scalar::Bool(_) => dtype.is_bool(),
        }
    }

    /// Returns the position of an integer relative to the range of an integer dtype: `Less` below it, `Greater` above
    /// it. `None` within the range, for other numbers and for other dtypes. Infinities are outside every range.
    ///
    /// ```
    /// use core::cmp::Ordering;
    /// use kiln_ir::{DType, Scalar};
    /// assert_eq!(Scalar::Int(-1).beyond(DType::U8), Some(Ordering::Less));
    /// assert_eq!(Scalar::Int(300).beyond(DType::U8), Some(Ordering::Greater));
    /// assert_eq!(Scalar::Int(300).beyond(DType::F16), None);
    /// ```
    pub fn beyond(self, dtype: DType) -> Option<Ordering> {
        let may_be_outside = match self {
            Scalar::Float(x) => is_integer(x),
            // Every integer dtype can represent these: a fast path for most numbers of programs.
            Scalar::Int(0..=127) => false,
            Scalar::Int(_) | Scalar::UInt(_) => true,
            Scalar::Bool(_) => false,
        };
        if !dtype.is_int() || !may_be_outside {
            return None;
        }
        let bound = |scalar: Scalar| i128::from_scalar(scalar);
        let number = bound(self);
        if number < bound(least(dtype)) {
            Some(Ordering::Less)
        } else if number > bound(greatest(dtype)) {
            Some(Ordering::Greater)
        } else {
            None
        }
    }

    /// The index of the variant, and the bits of the number.
    pub(crate) fn bits(self) -> (u8, u64) {
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
    /// Returns the dtype of a tensor created from this number alone: `f32`, `i32` (`i64` for an integer outside its
    /// range), `u64` or `bool`.
    pub fn default_dtype(self) -> DType {
        match self {
            Scalar::Float(_) => DType::F32,
            Scalar::Int(x) if i32::try_from(x).is_err() => DType::I64,
            Scalar::Int(_) => DType::I32,
            Scalar::UInt(_) => DType::U64,
            Scalar::Bool(_) => DType::Bool,
        }
    }
}

/// Whether a float is an integer; infinities count as such.
fn is_integer(x: f64) -> bool {
    libm::trunc(x) == x
}
