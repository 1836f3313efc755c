//! The gradient of `to_device`: transfer nodes between engines.

use crate::layer::Autodiff;
use crate::node::{Edge, Node, NodeKind, Parents};
use crate::tracked::{Parts, Tracked};
use kiln_ir::{Engine, Value};

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

/// A value on another device of the engine below, which stands for several. A tracked value stays so: a backward pass takes
/// its gradient back to the device from which it comes.
pub(crate) fn move_to(layer: &Autodiff, value: Value, device: usize) -> Value {
    let below = &**layer.inner();
    let from = layer.device_of(&value);
    if from == Some(device) {
        return value;
    }
    let Parts { inner, edge, .. } = match Tracked::open(value, layer.id()) {
        Ok(parts) => parts,
        Err(value) => return below.to_device(value, device),
    };
    let inner = below.to_device(inner, device);
    if inner.error().is_some() || layer.is_paused() {
        return inner;
    }
    let edge = match from {
        Some(from) => {
            let node = Node::new(Parents::from_iter([Some(edge)]), NodeKind::Move(from));
            Edge { node, output: 0 }
        }
        // It was on no device before: the same value.
        None => edge,
    };
    Tracked::wrap(layer.id(), Parts { inner, edge, recompute: None }, false)
}
