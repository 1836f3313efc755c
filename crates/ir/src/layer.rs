//! Values that a layer wraps.

use crate::engine::{is_same, lowered_to};
use crate::{Engine, TensorType, Value};
use core::any::TypeId;

/// The payload of a value that a layer wraps around a value of the engine below: the layer, and the parts that it keeps, the
/// inner value among them.
///
/// A value without such a payload, or of another layer's, is one of the engine below.
pub struct Wrapped<T> {
    /// Below another layer of the same kind, values of both look alike otherwise.
    layer: LayerId,
    /// Taken only out of a payload that is about to be dropped.
    parts: Option<T>,
}

/// Tells layers apart: by the engine below, so that two layers of a kind around one engine are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerId(usize);

impl LayerId {
    /// The id of the layers around an engine.
    #[inline]
    pub fn around(below: &dyn Engine) -> LayerId {
        LayerId(core::ptr::from_ref(below).addr())
    }

    /// The id of an engine that is not around one other engine: by the address of a part that it owns as long as it lives.
    #[inline]
    pub fn of_part<T>(part: &alloc::sync::Arc<T>) -> LayerId {
        LayerId(alloc::sync::Arc::as_ptr(part).addr())
    }
}

/// For [`Engine::import`]: the layer whose values carry the same as those of the importing one, with the value lowered to it. That is
/// the outermost layer of the type that `from` is, or is around. `below` is the engine below the importing layer: a layer that
/// is part of it is none of the importing layer's level.
///
/// # Errors
/// The value, where there is no such layer.
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

/// The value of the engine `target` inside a value of `from`, which is that engine or a layer around it.
///
/// # Errors
/// The value, where `from` is neither.
pub fn lowered(from: &dyn Engine, target: &dyn Engine, value: Value) -> Result<Value, Value> {
    lowered_to(from, (core::ptr::from_ref(target).addr(), target.type_id()), value)
}

impl<T: Send + Sync + 'static> Wrapped<T> {
    /// A value of a layer, of the type `ty`.
    #[inline]
    pub fn wrap(layer: LayerId, ty: TensorType, parts: T) -> Value {
        Value::new(ty, Wrapped { layer, parts: Some(parts) })
    }

    /// The parts of a value that `layer` wraps; `None` for any other.
    #[inline]
    pub fn of(value: &Value, layer: LayerId) -> Option<&T> {
        value.payload::<Wrapped<T>>().filter(|wrapped| wrapped.layer == layer)?.parts.as_ref()
    }

    /// The parts of a value that some layer of this kind wraps.
    #[inline]
    pub fn of_any(value: &Value) -> Option<&T> {
        value.payload::<Wrapped<T>>()?.parts.as_ref()
    }

    /// Moves the parts out of the only clone of a value that `layer` wraps, so that the engine below may overwrite the inner
    /// value. `None`, and nothing is changed, where there are other clones or the value is not wrapped by `layer`. Drop the
    /// value afterwards.
    #[inline]
    pub fn take(value: &mut Value, layer: LayerId) -> Option<T> {
        // Asked first, since it takes no lock of the count.
        if !value.is_unique() {
            return None;
        }
        value.payload_mut::<Wrapped<T>>().filter(|wrapped| wrapped.layer == layer)?.parts.take()
    }
}

impl<T: Clone + Send + Sync + 'static> Wrapped<T> {
    /// The parts of a value that `layer` wraps, moved out of the only clone; any other value as it is.
    ///
    /// # Errors
    /// The value, where `layer` does not wrap it.
    #[inline]
    pub fn open(mut value: Value, layer: LayerId) -> Result<T, Value> {
        match Wrapped::take(&mut value, layer) {
            Some(parts) => Ok(parts),
            None => Wrapped::of(&value, layer).cloned().ok_or(value),
        }
    }
}
