//! Values that are tracked.

use crate::node::{Edge, NodeId, NodeKind};
use crate::recipe::Recipe;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use kiln_ir::Value;

/// The payload of a tracked value. Untracked values are the inner engine's own and have no such payload.
pub(crate) struct Tracked {
    /// The layer that tracks it: below another autodiff layer, values of both look alike otherwise.
    pub(crate) layer: usize,
    /// The inner engine's value. Taken only out of a payload that is about to be dropped.
    inner: Option<Value>,
    pub(crate) edge: Edge,
    /// How to compute the value again, where that is cheap.
    pub(crate) recipe: Option<Arc<Recipe>>,
    /// Whether the value stays in memory anyway.
    kept: AtomicBool,
}

/// A tracked value taken apart.
pub(crate) struct Parts {
    pub(crate) inner: Value,
    pub(crate) edge: Edge,
    pub(crate) recipe: Option<Arc<Recipe>>,
    pub(crate) kept: bool,
}

impl Tracked {
    pub(crate) fn wrap(
        layer: usize,
        inner: Value,
        edge: Edge,
        recipe: Option<Arc<Recipe>>,
        kept: bool,
    ) -> Value {
        let ty = *inner.ty();
        Value::new(ty, Tracked { layer, inner: Some(inner), edge, recipe, kept: AtomicBool::new(kept) })
    }

    /// The payload of a value that `layer` tracks.
    pub(crate) fn of(value: &Value, layer: usize) -> Option<&Tracked> {
        value.payload::<Tracked>().filter(|tracked| tracked.layer == layer)
    }

    pub(crate) fn inner(&self) -> &Value {
        self.inner.as_ref().expect("a tracked value in use holds its inner value")
    }

    pub(crate) fn leaf(&self) -> Option<NodeId> {
        matches!(self.edge.node.kind, NodeKind::Leaf).then_some(self.edge.node.id)
    }

    /// Notes that the value stays in memory.
    pub(crate) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Takes apart a value that `layer` tracks; the value comes back as it is if it does not. From the only clone, the
    /// inner value is moved out, so that the inner engine may overwrite it.
    pub(crate) fn open(mut value: Value, layer: usize) -> Result<Parts, Value> {
        let Some(tracked) = Tracked::of(&value, layer) else { return Err(value) };
        let (edge, recipe) = (tracked.edge.clone(), tracked.recipe.clone());
        let kept = tracked.kept.load(Ordering::Relaxed);
        let moved = value.payload_mut::<Tracked>().and_then(|tracked| tracked.inner.take());
        let inner = match moved {
            Some(inner) => inner,
            None => Tracked::of(&value, layer).expect("checked above").inner().clone(),
        };
        Ok(Parts { inner, edge, recipe, kept })
    }

    /// The inner value of a value that `layer` tracks; any other value as it is.
    pub(crate) fn strip(mut value: Value, layer: usize) -> Value {
        let Some(tracked) = Tracked::of(&value, layer) else { return value };
        if !value.is_unique() {
            return tracked.inner().clone();
        }
        match value.payload_mut::<Tracked>().and_then(|tracked| tracked.inner.take()) {
            Some(inner) => inner,
            None => Tracked::of(&value, layer).expect("checked above").inner().clone(),
        }
    }
}
