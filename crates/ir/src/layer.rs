//! Values with the metadata of a layer.

use crate::engine::{is_same, lowered_to};
use crate::{Engine, TensorType, Value};
use core::any::TypeId;

/// The payload of a value that a layer wraps around a value of the engine below: the layer's id, and its parts,
/// including the inner value.
///
/// A value without such a payload, or with that of another layer, is a value of the engine below.
pub struct Wrapped<T> {
    /// Distinguishes the values of two layers of the same kind, one around the other.
    layer: LayerId,
    /// `None` only in a payload that is about to be dropped.
    parts: Option<T>,
}

/// The identity of a layer, by the engine below: two layers of a kind around one engine are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerId(usize);

impl LayerId {
    /// Returns the id of the layers around an engine.
    #[inline]
    pub fn around(below: &dyn Engine) -> LayerId {
        LayerId(core::ptr::from_ref(below).addr())
    }

    /// Returns the id of an engine that is not around one other engine: by the address of a part that it owns as long
    /// as it lives.
    #[inline]
    pub fn of_part<T>(part: &alloc::sync::Arc<T>) -> LayerId {
        LayerId(alloc::sync::Arc::as_ptr(part).addr())
    }
}

/// Finds, for [`Engine::import`], the layer of `from` whose values carry the same metadata, and lowers the value to it.
/// That is the outermost layer of this type in `from`. `below` is the engine below the importing layer: a layer inside
/// it is at another level, and does not count.
///
/// # Errors
/// The value, if there is no such layer.
pub fn imported_from<'a, L: Engine>(
    below: &dyn Engine,
    from: &'a dyn Engine,
    value: Value,
) -> Result<(&'a L, Value), Value> {
    let Some(source) = from.find::<L>() else { return Err(value) };
    let place = (core::ptr::from_ref(source).addr(), TypeId::of::<L>());
    if below.layers().any(|engine| is_same(engine, place)) {
        return Err(value);
    }
    Ok((source, lowered_to(from, place, value)?))
}

/// Returns the value of the engine `target` inside a value of `from`, which is that engine or a layer around it.
///
/// # Errors
/// The value, where `from` is neither.
pub fn lowered(from: &dyn Engine, target: &dyn Engine, value: Value) -> Result<Value, Value> {
    lowered_to(from, (core::ptr::from_ref(target).addr(), target.type_id()), value)
}

impl<T: Send + Sync + 'static> Wrapped<T> {
    /// Wraps the parts of a value of type `ty`.
    #[inline]
    pub fn wrap(layer: LayerId, ty: TensorType, parts: T) -> Value {
        Value::new(ty, Wrapped { layer, parts: Some(parts) })
    }

    /// Returns the parts of a value that `layer` wraps; `None` for any other.
    #[inline]
    pub fn of(value: &Value, layer: LayerId) -> Option<&T> {
        value.payload::<Wrapped<T>>().filter(|wrapped| wrapped.layer == layer)?.parts.as_ref()
    }

    /// Returns the parts of a value that any layer of this kind wraps.
    #[inline]
    pub fn of_any(value: &Value) -> Option<&T> {
        value.payload::<Wrapped<T>>()?.parts.as_ref()
    }

    /// Moves the parts out of a value that `layer` wraps, if there are no other clones, so that the engine below may
    /// overwrite the inner value. `None`, without changes, if there are other clones or the value is not wrapped by
    /// `layer`. Drop the value afterwards.
    #[inline]
    pub fn take(value: &mut Value, layer: LayerId) -> Option<T> {
        // Checked first, since it does not lock the reference count.
        if !value.is_unique() {
            return None;
        }
        value.payload_mut::<Wrapped<T>>().filter(|wrapped| wrapped.layer == layer)?.parts.take()
    }
}

impl<T: Clone + Send + Sync + 'static> Wrapped<T> {
    /// Moves or clones the parts of a value that `layer` wraps.
    ///
    /// # Errors
    /// The value, if `layer` does not wrap it.
    #[inline]
    pub fn open(mut value: Value, layer: LayerId) -> Result<T, Value> {
        match Wrapped::take(&mut value, layer) {
            Some(parts) => Ok(parts),
            None => Wrapped::of(&value, layer).cloned().ok_or(value),
        }
    }
}
