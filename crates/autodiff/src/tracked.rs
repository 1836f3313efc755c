//! Tracked values: a tensor with its edge of the tape.

use crate::node::{Edge, NodeId, NodeKind};
use crate::recompute::Recompute;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use kiln_ir::{LayerId, Value, Wrapped};

/// The payload of a tracked value, in a [`Wrapped`]. Untracked values are the inner engine's own and have no such payload.
pub(crate) struct Tracked {
    pub(crate) parts: Parts,
    /// Whether the value stays in memory anyway.
    kept: AtomicBool,
}

/// The parts of a tracked value.
#[derive(Clone)]
pub(crate) struct Parts {
    /// The inner engine's value.
    pub(crate) inner: Value,
    pub(crate) edge: Edge,
    /// How to compute the value again, where that is cheap.
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

    /// Whether the value stays in memory anyway.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Notes that the value stays in memory.
    pub(crate) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Takes apart a value that `layer` tracks; the value comes back as it is if it does not. The only clone is
    /// moved out of, so that the inner engine may overwrite the inner value.
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

    /// The inner value of a value that `layer` tracks; any other value as it is.
    pub(crate) fn strip(value: Value, layer: LayerId) -> Value {
        match Tracked::open(value, layer) {
            Ok(parts) => parts.inner,
            Err(value) => value,
        }
    }

    /// The leaf that a value is, of whichever layer.
    pub(crate) fn leaf_of(value: &Value) -> Option<NodeId> {
        Wrapped::<Tracked>::of_any(value)?.leaf()
    }
}
