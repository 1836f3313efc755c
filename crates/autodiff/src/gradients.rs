//! The gradients that a backward pass returns.

use crate::node::NodeId;
use crate::tracked::Tracked;
use alloc::collections::BTreeMap;
use kiln_ir::{Binary, Engine, Op, Value};
use smallvec::smallvec;

/// Gradients of leaves by [`NodeId`]: values of the inner engine of the leaf's layer. `Send` between threads.
#[derive(Clone, Debug, Default)]
pub struct Gradients {
    values: BTreeMap<NodeId, Value>,
}

impl Gradients {
    /// Returns an empty collection.
    pub fn new() -> Gradients {
        Gradients::default()
    }

    /// Returns the gradient of a leaf; `None` if the value is no leaf or has no effect on the root.
    pub fn get(&self, leaf: &Value) -> Option<Value> {
        self.get_id(id_of(leaf)?)
    }

    /// Returns the gradient of the leaf with that id.
    pub fn get_id(&self, id: NodeId) -> Option<Value> {
        self.values.get(&id).cloned()
    }

    /// Removes and returns the gradient of a leaf.
    pub fn take(&mut self, leaf: &Value) -> Option<Value> {
        self.remove(id_of(leaf)?)
    }

    /// Removes and returns the gradient of the leaf with that id.
    pub fn remove(&mut self, id: NodeId) -> Option<Value> {
        self.values.remove(&id)
    }

    /// Sets the gradient of the leaf with that id; returns the previous one.
    pub fn insert(&mut self, id: NodeId, gradient: Value) -> Option<Value> {
        self.values.insert(id, gradient)
    }

    /// Accumulates into the gradient of the leaf with that id, on the engine that computed both.
    pub fn accumulate(&mut self, engine: &dyn Engine, id: NodeId, gradient: Value) {
        let sum = match self.values.remove(&id) {
            Some(present) => add(engine, present, gradient),
            None => gradient,
        };
        self.values.insert(id, sum);
    }

    /// Accumulates all gradients of another pass, on the engine that computed both; all leaves must be of that engine.
    pub fn merge(&mut self, engine: &dyn Engine, other: Gradients) {
        for (id, gradient) in other.values {
            self.accumulate(engine, id, gradient);
        }
    }

    /// Returns the ids of the leaves that have a gradient, oldest first.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.values.keys().copied()
    }

    /// Returns the gradients with the ids of their leaves, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Value)> {
        self.values.iter().map(|(id, value)| (*id, value))
    }

    /// Returns the number of leaves with a gradient.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether no leaf has a gradient.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// Sums two gradients of the same type. Overwrites operands without aliases.
pub(crate) fn add(engine: &dyn Engine, a: Value, b: Value) -> Value {
    let ty = *a.ty();
    engine.execute(&Op::Binary(Binary::Add), smallvec![a.into(), b.into()], &[ty]).remove(0)
}

fn id_of(leaf: &Value) -> Option<NodeId> {
    Tracked::leaf_of(leaf)
}
