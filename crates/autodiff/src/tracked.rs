//! Tracked values: a tensor with its edge in the tape.

use crate::node::{Edge, NodeId, NodeKind};
use crate::recompute::Recompute;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use kiln_ir::{LayerId, Value, Wrapped};

/// The payload of a tracked value, in a [`Wrapped`]. Untracked values are the inner engine's own and have no such payload.
pub(crate) struct Tracked {
    pub(crate) parts: Parts,
    /// Whether the value is kept alive anyway.
    kept: AtomicBool,
}

/// The parts of a tracked value.
#[derive(Clone)]
pub(crate) struct Parts {
    /// The inner engine's value.
    pub(crate) inner: Value,
    pub(crate) edge: Edge,
    /// The recomputation of the value, if it is cheap.
    pub(crate) recompute: Option<Arc<Recompute>>,
}

impl Tracked {
    #[inline]
    pub(crate) fn wrap(layer: LayerId, parts: Parts, kept: bool) -> Value {
        let ty = *parts.inner.ty();
        Wrapped::wrap(layer, ty, Tracked { parts, kept: AtomicBool::new(kept) })
    }

    /// The payload of a value that `layer` tracks.
    #[inline]
    pub(crate) fn of(value: &Value, layer: LayerId) -> Option<&Tracked> {
        Wrapped::of(value, layer)
    }

    pub(crate) fn leaf(&self) -> Option<NodeId> {
        let node = &self.parts.edge.node;
        matches!(node.kind, NodeKind::Leaf(_)).then_some(node.id)
    }

    /// Whether the value is kept alive anyway.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Marks the value as kept alive.
    pub(crate) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// The parts of a value that `layer` tracks, moved out if there are no other clones, so that the inner engine may
    /// overwrite the inner value. Returns any other value unchanged.
    #[inline]
    pub(crate) fn open(mut value: Value, layer: LayerId) -> Result<Parts, Value> {
        if let Some(tracked) = Wrapped::<Tracked>::take(&mut value, layer) {
            return Ok(tracked.parts);
        }
        match Tracked::of(&value, layer) {
            Some(tracked) => Ok(tracked.parts.clone()),
            None => Err(value),
        }
    }

    /// The inner value of a value that `layer` tracks; any other value unchanged.
    pub(crate) fn strip(value: Value, layer: LayerId) -> Value {
        match Tracked::open(value, layer) {
            Ok(parts) => parts.inner,
            Err(value) => value,
        }
    }

    /// The id of a leaf of any layer.
    pub(crate) fn leaf_of(value: &Value) -> Option<NodeId> {
        Wrapped::<Tracked>::of_any(value)?.leaf()
    }
}
