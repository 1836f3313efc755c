//! The gradient of `to_device`: transfer nodes between engines.

use crate::layer::Autodiff;
use crate::node::{Edge, Node, NodeKind, Parents};
use crate::tracked::{Parts, Tracked};
use kiln_ir::Value;

/// Converts a value of `source` to a value of `target`. A tracked value stays tracked: its node refers to the tape of
/// `source`, and a backward pass transfers the gradient back to the engine below `source`.
pub(crate) fn transfer(target: &Autodiff, source: &Autodiff, value: Value) -> Value {
    if source.id() == target.id() {
        return value;
    }
    let (below, from) = (&**target.inner(), &**source.inner());
    let Parts { inner, edge, .. } = match Tracked::open(value, source.id()) {
        Ok(parts) => parts,
        Err(value) => return below.import(from, value),
    };
    let inner = below.import(from, inner);
    #[cfg(feature = "std")]
    crate::pause::follow(source.id(), target.id());
    if inner.error().is_some() || target.is_paused() || source.is_paused() {
        return inner;
    }
    let node = Node::new(Parents::from_iter([Some(edge)]), NodeKind::Transfer(source.clone()));
    Tracked::wrap(target.id(), Parts { inner, edge: Edge { node, output: 0 }, recompute: None }, false)
}
