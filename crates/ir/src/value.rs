//! Values and operands of ops.

use crate::{DType, Error, Scalar, Shape, TensorType};
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use smallvec::SmallVec;

/// The operands of an op, passed by value.
pub type Operands = SmallVec<[Operand; 3]>;

/// The results of an op.
pub type Values = SmallVec<[Value; 1]>;

/// The types of the results of an op.
pub type ResultTypes = SmallVec<[TensorType; 1]>;

/// A tensor as engines see it: its type, and a payload that only its engine understands.
///
/// A clone shares the payload; dropping the last clone frees its memory. An engine that receives the only clone may
/// reuse the payload ([`payload_mut`](Value::payload_mut)) to write results in place.
#[derive(Clone)]
pub struct Value(Arc<Inner<dyn Payload>>);

struct Inner<P: ?Sized> {
    ty: TensorType,
    payload: P,
}

/// The data that an engine stores in a [`Value`]. Implemented by every `Send + Sync + 'static` type.
pub trait Payload: Any + Send + Sync {}

impl<T: Any + Send + Sync> Payload for T {}

/// The payload of a value whose computation failed.
struct Poison(Error);

/// The payload of a value without data.
struct Absent;

impl Value {
    /// Creates a value with this type and payload. One allocation.
    #[inline]
    pub fn new<P: Payload>(ty: TensorType, payload: P) -> Value {
        Value(Arc::new(Inner { ty, payload }))
    }

    /// Creates a value whose computation failed. Ops on it fail with the same error, which a read returns.
    pub fn poisoned(ty: TensorType, error: Error) -> Value {
        Value::new(ty, Poison(error))
    }

    /// Creates a value with a type but no data. A gradient rule gets it for operands that it does not save.
    pub fn absent(ty: TensorType) -> Value {
        Value::new(ty, Absent)
    }

    /// Returns the error of a poisoned value.
    #[inline]
    pub fn error(&self) -> Option<&Error> {
        self.payload::<Poison>().map(|poison| &poison.0)
    }

    /// Returns whether the value has only a type.
    pub fn is_absent(&self) -> bool {
        self.payload::<Absent>().is_some()
    }

    /// Returns the type.
    #[inline]
    pub fn ty(&self) -> &TensorType {
        &self.0.ty
    }

    /// Returns the shape.
    #[inline]
    pub fn shape(&self) -> &Shape {
        &self.0.ty.shape
    }

    /// Returns the dtype.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.0.ty.dtype
    }

    /// Returns the payload, if it is of this type.
    #[inline]
    pub fn payload<P: Payload>(&self) -> Option<&P> {
        (&self.0.payload as &dyn Any).downcast_ref()
    }

    /// Returns the payload, mutable, if it is of this type and this is the only clone of the value.
    #[inline]
    pub fn payload_mut<P: Payload>(&mut self) -> Option<&mut P> {
        let inner = Arc::get_mut(&mut self.0)?;
        (&mut inner.payload as &mut dyn Any).downcast_mut()
    }

    /// Returns whether this is the only clone.
    #[inline]
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Returns whether both are clones of the same value.
    pub fn same(&self, other: &Value) -> bool {
        core::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }

    /// Returns an address that identifies the value while it is alive.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as *const () as usize
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error() {
            Some(error) => write!(f, "Value({}, poisoned: {error})", self.ty()),
            None => write!(f, "Value({})", self.ty()),
        }
    }
}

/// An operand of an op: a tensor, or a plain number.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor.
    Value(Value),
    /// A plain number, of the dtype of the tensor operands.
    Scalar(Scalar),
}

impl Operand {
    /// Returns the type, or the number.
    #[inline]
    pub fn ty(&self) -> OperandType<'_> {
        match self {
            Operand::Value(value) => OperandType::Tensor(value.ty()),
            Operand::Scalar(scalar) => OperandType::Scalar(*scalar),
        }
    }

    /// Returns the tensor, if it is one.
    #[inline]
    pub fn value(&self) -> Option<&Value> {
        match self {
            Operand::Value(value) => Some(value),
            Operand::Scalar(_) => None,
        }
    }

    /// Returns the number, if it is one.
    #[inline]
    pub fn scalar(&self) -> Option<Scalar> {
        match self {
            Operand::Value(_) => None,
            Operand::Scalar(scalar) => Some(*scalar),
        }
    }
}

impl From<Value> for Operand {
    #[inline]
    fn from(value: Value) -> Operand {
        Operand::Value(value)
    }
}

impl From<&Value> for Operand {
    #[inline]
    fn from(value: &Value) -> Operand {
        Operand::Value(value.clone())
    }
}

impl From<Scalar> for Operand {
    #[inline]
    fn from(scalar: Scalar) -> Operand {
        Operand::Scalar(scalar)
    }
}

/// The type of an operand, or its number, for [`infer`](mod@crate::infer). Displays as `f32[2, 3]` or as the number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OperandType<'a> {
    /// A tensor of this type.
    Tensor(&'a TensorType),
    /// This number.
    Scalar(Scalar),
}

impl<'a> OperandType<'a> {
    /// Returns the types of a list of operands.
    #[inline]
    pub fn list(operands: &'a [Operand]) -> SmallVec<[OperandType<'a>; 3]> {
        // A loop of pushes: collecting into a small vector costs several times as much.
        let mut types = SmallVec::new();
        for operand in operands {
            types.push(operand.ty());
        }
        types
    }

    /// Returns the tensor's type, if it is one.
    pub fn tensor(self) -> Option<&'a TensorType> {
        match self {
            OperandType::Tensor(ty) => Some(ty),
            OperandType::Scalar(_) => None,
        }
    }
}

impl<'a> From<&'a TensorType> for OperandType<'a> {
    fn from(ty: &'a TensorType) -> OperandType<'a> {
        OperandType::Tensor(ty)
    }
}

impl From<Scalar> for OperandType<'_> {
    fn from(scalar: Scalar) -> Self {
        OperandType::Scalar(scalar)
    }
}

impl fmt::Display for OperandType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperandType::Tensor(ty) => ty.fmt(f),
            OperandType::Scalar(scalar) => scalar.fmt(f),
        }
    }
}
