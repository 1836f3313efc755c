//! The storage of values in 16 bits or `f32`.

use kiln_ir::{DType, LayerId, TensorType, Value, Wrapped};
use spin::Once;

/// The payload of a value that the program sees as `f32`, in a [`Wrapped`]: values of the inner engine.
pub(crate) enum StoredFloat {
    /// Stored in 16 bits only.
    Low(Value),
    /// Stored in `f32`, and also in 16 bits after the first use in 16 bits.
    Full { full: Value, low: Once<Value> },
}

impl StoredFloat {
    /// A value of the inner engine, of `f32` or of 16 bits.
    pub(crate) fn new(inner: Value) -> StoredFloat {
        if inner.dtype() == DType::F32 {
            StoredFloat::Full { full: inner, low: Once::new() }
        } else {
            StoredFloat::Low(inner)
        }
    }

    /// The value of the inner engine: the `f32` one if there is one.
    pub(crate) fn value(&self) -> &Value {
        match self {
            StoredFloat::Low(value) | StoredFloat::Full { full: value, .. } => value,
        }
    }

    pub(crate) fn into_value(self) -> Value {
        match self {
            StoredFloat::Low(value) | StoredFloat::Full { full: value, .. } => value,
        }
    }
}

impl StoredFloat {
    /// Wraps a value of the inner engine as a float of the dtype `seen`. Poison stays visible.
    pub(crate) fn wrap(layer: LayerId, inner: Value, seen: DType) -> Value {
        let ty = TensorType { dtype: seen, ..*inner.ty() };
        match inner.error() {
            Some(error) => Value::poisoned(ty, error.clone()),
            None => Wrapped::wrap(layer, ty, StoredFloat::new(inner)),
        }
    }

    /// The form of a value that `layer` wraps; `None` for a value of the inner engine.
    pub(crate) fn of(value: &Value, layer: LayerId) -> Option<&StoredFloat> {
        Wrapped::of(value, layer)
    }

    /// Moves the form out of a value that `layer` wraps, if there are no other clones, so that the inner engine may
    /// overwrite the inner value.
    pub(crate) fn take(value: &mut Value, layer: LayerId) -> Option<StoredFloat> {
        Wrapped::take(value, layer)
    }
}
